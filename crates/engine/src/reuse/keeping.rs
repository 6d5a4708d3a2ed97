//! Taking out of a cache what is to be kept of it.

use std::sync::Arc;

use mlx_rs::Array;
use prefill_multimodal_prompt::BlockKeys;

use super::record::{About, New, Record, RecordKey, Role};
use super::tails::parent_of;
use super::{Mark, Reuse, parent_rows};
use crate::Result;
use crate::cache::{Cache, KvQuantization, Reach};

/// Keeps blocks as a prompt is fed, and what a later request needs to go on at its marks.
#[derive(Debug)]
pub(crate) struct Keeping {
    reuse: Arc<Reuse>,
    marks: Vec<Mark>,
    /// Tokens that are in the cache and were looked at.
    position: usize,
    /// The position of the last checkpoint.
    checkpoint: usize,
    /// Taken, and not evaluated yet.
    taken: Vec<New>,
    pub kept_bytes: u64,
}

impl Keeping {
    /// For a prompt of which the first `position` tokens were resumed.
    pub(crate) fn new(reuse: &Arc<Reuse>, marks: Vec<Mark>, position: usize) -> Self {
        Self {
            reuse: Arc::clone(reuse),
            marks,
            position,
            checkpoint: position,
            taken: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// Takes what is new up to the tokens that the cache holds; gives the arrays to evaluate
    /// before [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Error::Mlx`](crate::Error::Mlx).
    pub(crate) fn take(
        &mut self,
        keys: &BlockKeys,
        cache: &Cache,
        kv: Option<&KvQuantization>,
    ) -> Result<impl Iterator<Item = &Array>> {
        let size = keys.space().positions_per_block().get();
        let end = cache.offset();
        for block in self.position / size..end / size {
            let span = (block * size, (block + 1) * size);
            let name = RecordKey::rows(keys.blocks()[block]);
            self.take_rows(keys, cache, kv, name, span, Role::Block)?;
        }
        let new = |mark: &&Mark| (self.position + 1..=end).contains(&mark.position);
        let marks: Vec<Mark> = self.marks.iter().filter(new).copied().collect();
        for mark in marks {
            self.take_mark(keys, cache, kv, mark)?;
        }
        self.position = end;
        Ok(self.taken.iter().flat_map(|new| &new.record.arrays))
    }

    /// What the last [`take`](Self::take) took is evaluated: keeps it.
    pub(crate) fn commit(&mut self) {
        for new in self.taken.drain(..) {
            self.kept_bytes += new.record.bytes();
            self.reuse.keep(new);
        }
    }

    /// What the last [`take`](Self::take) took is not to be kept, nor what it left out.
    pub(crate) fn forget(&mut self) {
        self.taken.clear();
    }

    /// Takes the end of an answer, where the cache stands. `keys` know all that was fed.
    ///
    /// # Errors
    /// [`Error::Mlx`](crate::Error::Mlx).
    pub(crate) fn take_answer(
        &mut self,
        keys: &BlockKeys,
        cache: &Cache,
        kv: Option<&KvQuantization>,
    ) -> Result<impl Iterator<Item = &Array>> {
        self.marks = vec![Mark {
            position: cache.offset(),
            role: Role::Answer,
        }];
        self.take(keys, cache, kv)
    }

    fn take_mark(
        &mut self,
        keys: &BlockKeys,
        cache: &Cache,
        kv: Option<&KvQuantization>,
        mark: Mark,
    ) -> Result<()> {
        let Mark { position, role } = mark;
        let Some(key) = keys.at(position) else {
            return Ok(());
        };
        let size = keys.space().positions_per_block().get();
        let start = position / size * size;
        if start < position {
            let name = RecordKey::rows(key);
            self.take_rows(keys, cache, kv, name, (start, position), role)?;
            let before = parent_of(keys, position / size);
            self.reuse.note_tail(before, key, position, role);
        }
        let name = RecordKey::checkpoint(key);
        // A state is that of the cache's last token and no other.
        let is_there = !cache.has_states() || position == cache.offset();
        if !self.reuse.needs_checkpoint() || !is_there || self.reuse.is_in_ram(name) {
            return Ok(());
        }
        let (mut arrays, mut is_quantized) = (Vec::new(), false);
        if cache.has_windows() {
            let span = (cache.window_start(position), position);
            let window = cache.part(Reach::Sliding, span, kv)?;
            (arrays, is_quantized) = (window.arrays, window.is_quantized);
        }
        let window_arrays = arrays.len();
        arrays.extend(cache.state_arrays()?);
        let about = About {
            role,
            position,
            is_quantized,
            window_arrays,
            before: key,
        };
        let cost = (position - self.checkpoint.min(position - 1)) as f64;
        self.checkpoint = position;
        self.taken.push(New {
            name,
            parent: parent_rows(name, &about),
            cost,
            record: Record { about, arrays },
        });
        Ok(())
    }

    fn take_rows(
        &mut self,
        keys: &BlockKeys,
        cache: &Cache,
        kv: Option<&KvQuantization>,
        name: RecordKey,
        (from, to): (usize, usize),
        role: Role,
    ) -> Result<()> {
        if self.reuse.is_in_ram(name) {
            return Ok(());
        }
        let size = keys.space().positions_per_block().get();
        let part = cache.part(Reach::Full, (from, to), kv)?;
        let about = About {
            role,
            position: to,
            is_quantized: part.is_quantized,
            window_arrays: 0,
            before: parent_of(keys, from / size),
        };
        self.taken.push(New {
            name,
            parent: parent_rows(name, &about),
            cost: (to - from) as f64,
            record: Record {
                about,
                arrays: part.arrays,
            },
        });
        Ok(())
    }
}
