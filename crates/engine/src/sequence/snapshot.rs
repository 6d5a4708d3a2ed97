//! Ways back to what a sequence was.

use mlx_rs::Array;

use super::Sequence;
use crate::Result;
use crate::cache::{self, Cache};

/// What a sequence was after so many tokens, for [`Sequence::rewind`]. It shares its arrays
/// with the sequence: keys and values are not in it, only what can't be had by cutting them
/// off, such as the states of Qwen3.5's linear layers.
#[derive(Debug, Clone)]
pub struct Snapshot {
    cache: cache::Snapshot,
    logits: Array,
}

impl Snapshot {
    pub(crate) fn new(cache: &Cache, logits: &Array) -> Self {
        Self {
            cache: cache.snapshot(),
            logits: logits.clone(),
        }
    }

    /// Tokens that had been fed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.cache.position()
    }
}

impl Sequence<'_> {
    /// Whether the tokens at the end can be taken back without a snapshot.
    #[must_use]
    pub fn is_trimmable(&self) -> bool {
        self.cache.is_trimmable()
    }

    /// A way back to here.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.cache, &self.logits)
    }

    /// Goes back to a snapshot of this sequence, as if nothing had been fed since.
    ///
    /// # Errors
    /// [`Error::NotRestorable`](crate::Error::NotRestorable) if this sequence is shorter than
    /// the snapshot, or no longer has all that its next token would see.
    pub fn rewind(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.cache.restore(&snapshot.cache)?;
        self.ids.truncate(snapshot.position());
        self.logits = snapshot.logits.clone();
        Ok(())
    }
}
