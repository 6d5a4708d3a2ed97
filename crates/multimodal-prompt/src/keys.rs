//! The keys by which everything that depends on a prompt is found again.
//!
//! A key is the SHA-256 of exactly what the keyed thing depends on. All integers are little
//! endian; `u32` and `u64` say their widths.
//!
//! ```text
//! root       = H("prefill.keys.v1\0", model fingerprint [32], salt, block size u64)
//! block i    = H(key of block i-1 [32], 1 u8, B u32, the block's ids u32, extras)
//! tail       = H(key of the last full block [32], 2 u8, length u32, its ids u32, extras)
//! encoder    = H("prefill.encoder.v1\0", encoder fingerprint [32], salt, media digest [32])
//! salt       = 0 u8, or 1 u8, length u64, bytes
//! extras     = 0 or more of these, `start` counted from the block's first position:
//!   media    = 1 u8, start u32, length u32, kind u8, media digest [32],
//!              encoder fingerprint [32], row of the medium's features u64, scaling u8
//!   group    = 2 u8, start u32, length u32, offset in the group u64, group's length u64
//!   shifted  = 3 u8, start u32, length u32, delta u64
//!   placed   = 4 u8, start u32, length u32, the positions [3, length] u32
//! ```
//!
//! The key before block 0 is the root. `media` is there for each span that overlaps the
//! block; `group` for each group of positions that see each other; `shifted` for text whose
//! position is not its index but that plus `delta`, `placed` for soft tokens with mRoPE.
//! Plain text has no extras, whatever the model's family.

mod hashed;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use hashed::Hashed;

use crate::{Error, MediaKind, Positions, Prompt, Result};

/// The key of a run of positions together with all before it; or of an encoder's features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Key {
    /// A key whose bytes were kept.
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<Key> for [u8; 32] {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({self})")
    }
}

/// What all keys of one model and one tenant depend on.
///
/// ```
/// use prefill_multimodal_prompt::{KeySpace, MediaKind};
///
/// let space = KeySpace::new([1; 32])
///     .block_size(256)?
///     .salt(b"tenant 7")
///     .encoder(MediaKind::Image, [2; 32]);
/// let found = space.encoder_key(MediaKind::Image, &[3; 32]).unwrap();
/// assert_eq!(found.to_string().len(), 64);
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpace {
    model: [u8; 32],
    salt: Option<Vec<u8>>,
    block_size: NonZeroUsize,
    encoders: [Option<[u8; 32]>; MediaKind::ALL.len()],
}

impl KeySpace {
    /// The least positions that a block may have.
    pub const MIN_BLOCK_SIZE: usize = 16;
    /// The most positions that a block may have.
    pub const MAX_BLOCK_SIZE: usize = 1 << 20;
    /// The positions of a block, unless said otherwise.
    pub const DEFAULT_BLOCK_SIZE: NonZeroUsize = NonZeroUsize::new(256).unwrap();

    /// The keys of the model with this fingerprint, for blocks of 256 positions.
    #[must_use]
    pub fn new(model_fingerprint: [u8; 32]) -> Self {
        Self {
            model: model_fingerprint,
            salt: None,
            block_size: Self::DEFAULT_BLOCK_SIZE,
            encoders: Default::default(),
        }
    }

    /// Other positions a block: a power of two from 16 to 2^20.
    ///
    /// # Errors
    /// [`Error::BlockSize`] for any other number.
    pub fn block_size(mut self, block_size: usize) -> Result<Self> {
        let range = Self::MIN_BLOCK_SIZE..=Self::MAX_BLOCK_SIZE;
        self.block_size = NonZeroUsize::new(block_size)
            .filter(|size| size.is_power_of_two() && range.contains(&size.get()))
            .ok_or(Error::BlockSize { block_size })?;
        Ok(self)
    }

    /// A name for who asks. It enters every key, so that two tenants of one program never
    /// find what the other has computed.
    #[must_use]
    pub fn salt(mut self, salt: impl Into<Vec<u8>>) -> Self {
        self.salt = Some(salt.into());
        self
    }

    /// The fingerprint of the tower, with its projection, that encodes a kind of medium.
    #[must_use]
    pub fn encoder(mut self, kind: MediaKind, fingerprint: [u8; 32]) -> Self {
        self.encoders[kind as usize] = Some(fingerprint);
        self
    }

    /// The key of a medium's features, if its kind has an encoder.
    #[must_use]
    pub fn encoder_key(&self, kind: MediaKind, media_digest: &[u8; 32]) -> Option<Key> {
        let encoder = self.encoders[kind as usize]?;
        let mut hashed = Hashed::new(b"prefill.encoder.v1\0");
        hashed.bytes(&encoder);
        hashed.salt(self.salt.as_deref());
        hashed.bytes(media_digest);
        Some(hashed.finish())
    }

    /// How many positions a block has.
    #[must_use]
    pub fn positions_per_block(&self) -> NonZeroUsize {
        self.block_size
    }

    /// The key before the first block.
    #[must_use]
    pub fn root(&self) -> Key {
        let mut hashed = Hashed::new(b"prefill.keys.v1\0");
        hashed.bytes(&self.model);
        hashed.salt(self.salt.as_deref());
        hashed.u64(self.block_size.get());
        hashed.finish()
    }
}

/// What lies after the last full block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Its key, which a block's never equals.
    pub key: Key,
    /// Its first position.
    pub start: usize,
    /// How many positions: from 1 to the block size less 1.
    pub length: usize,
}

/// The keys of a prompt's blocks, kept up as the conversation grows.
///
/// ```
/// use prefill_multimodal_prompt::{BlockKeys, KeySpace, Prompt};
///
/// let space = KeySpace::new([1; 32]).block_size(16)?;
/// let mut keys = BlockKeys::new(space.clone(), Prompt::from_ids((0..40).collect()))?;
/// assert_eq!(keys.blocks().len(), 2);
/// assert_eq!(keys.tail().map(|tail| (tail.start, tail.length)), Some((32, 8)));
///
/// // What is generated goes on the same chain.
/// keys.push(&[40, 41, 42, 43, 44, 45, 46, 47]);
/// let whole = BlockKeys::new(space, Prompt::from_ids((0..48).collect()))?;
/// assert_eq!(keys.blocks(), whole.blocks());
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BlockKeys {
    space: KeySpace,
    root: Key,
    prompt: Arc<Prompt>,
    keys: Vec<Key>,
    hashed: Hashed,
}

impl BlockKeys {
    /// Hashes the prompt's blocks. The prompt is kept: share it as an [`Arc`] where it is
    /// needed elsewhere too.
    ///
    /// # Errors
    /// [`Error::NoEncoder`] if a medium's kind has no encoder in `space`;
    /// [`Error::PromptShape`] if the prompt's parts do not fit each other.
    pub fn new(space: KeySpace, prompt: impl Into<Arc<Prompt>>) -> Result<Self> {
        let mut keys = Self {
            root: space.root(),
            space,
            prompt: Arc::default(),
            keys: Vec::new(),
            hashed: Hashed::default(),
        };
        keys.advance(prompt)?;
        Ok(keys)
    }

    /// The keys of the full blocks, in order. Each depends on all before it.
    #[must_use]
    pub fn blocks(&self) -> &[Key] {
        &self.keys
    }

    /// The key of what lies after the last full block, if anything does.
    #[must_use]
    pub fn tail(&self) -> Option<Tail> {
        let start = self.full();
        let length = self.prompt.len() - start;
        (length > 0).then(|| Tail {
            key: self.tail_key(start, self.prompt.len()),
            start,
            length,
        })
    }

    /// The key of the first `position` positions: a block's if it ends there, else a tail's.
    ///
    /// None at 0, beyond the end, and inside a group of positions that see each other, where
    /// no cached prefix may end.
    #[must_use]
    pub fn at(&self, position: usize) -> Option<Key> {
        if position == 0 || position > self.prompt.len() || !self.prompt.can_cut_at(position) {
            return None;
        }
        let start = position / self.space.block_size * self.space.block_size.get();
        Some(if start == position {
            self.keys[position / self.space.block_size - 1]
        } else {
            self.tail_key(start, position)
        })
    }

    /// The prompt with what was generated since.
    #[must_use]
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// How many positions are known, generated ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prompt.len()
    }

    /// Whether no position is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prompt.is_empty()
    }

    /// What the keys depend on beside the prompt.
    #[must_use]
    pub fn space(&self) -> &KeySpace {
        &self.space
    }

    /// The key before the first block.
    #[must_use]
    pub fn root(&self) -> Key {
        self.root
    }

    /// What names the prompt's media in their places: the key of the last block or tail that
    /// holds a soft token. None without media.
    #[must_use]
    pub fn prefix_identity(&self) -> Option<Key> {
        let last = self.prompt.spans.last()?.end() - 1;
        let block = last / self.space.block_size;
        self.keys
            .get(block)
            .copied()
            .or_else(|| self.tail().map(|tail| tail.key))
    }

    /// Adds generated text at the end.
    pub fn push(&mut self, ids: &[u32]) {
        let start = self.prompt.len();
        let prompt = Arc::make_mut(&mut self.prompt);
        prompt.ids.extend_from_slice(ids);
        if let Positions::Mrope(mrope) = &mut prompt.positions {
            let first = (start as i64 + mrope.delta) as i32;
            for axis in &mut mrope.ids {
                axis.extend((first..).take(ids.len()));
            }
        }
        self.hash_full_blocks();
    }

    /// Goes over to another prompt, commonly the next turn's: keys of blocks that are the
    /// same stay, and the rest is hashed. Gives the number of blocks that stayed.
    ///
    /// # Errors
    /// As [`new`](Self::new); the keys then stay as they were.
    pub fn advance(&mut self, prompt: impl Into<Arc<Prompt>>) -> Result<usize> {
        let prompt = prompt.into();
        check(&self.space, &prompt)?;
        let size = self.space.block_size.get();
        let (mut old, mut new) = (Hashed::default(), Hashed::default());
        let is_same = |block: &usize| {
            let range = block * size..(block + 1) * size;
            if prompt.ids.get(range.clone()) != self.prompt.ids.get(range.clone()) {
                return false;
            }
            old.clear();
            new.clear();
            old.extras(&self.space.encoders, &self.prompt, range.clone());
            new.extras(&self.space.encoders, &prompt, range);
            old.same(&new)
        };
        let same = (0..self.keys.len()).take_while(is_same).count();
        self.keys.truncate(same);
        self.prompt = prompt;
        self.hash_full_blocks();
        Ok(same)
    }

    /// The end of the last full block.
    fn full(&self) -> usize {
        self.keys.len() * self.space.block_size.get()
    }

    fn hash_full_blocks(&mut self) {
        let size = self.space.block_size.get();
        let mut parent = self.keys.last().copied().unwrap_or(self.root);
        let mut start = self.full();
        while start + size <= self.prompt.len() {
            let range = start..start + size;
            let hashed = &mut self.hashed;
            hashed.run(&parent, 1, &self.space.encoders, &self.prompt, range);
            parent = hashed.key();
            self.keys.push(parent);
            start += size;
        }
    }

    fn tail_key(&self, start: usize, end: usize) -> Key {
        let block = start / self.space.block_size;
        let parent = match block.checked_sub(1) {
            Some(before) => self.keys[before],
            None => self.root,
        };
        let mut hashed = Hashed::default();
        hashed.run(&parent, 2, &self.space.encoders, &self.prompt, start..end);
        hashed.key()
    }
}

/// Whether the parts of a prompt, which anyone may have put together, fit each other.
fn check(space: &KeySpace, prompt: &Prompt) -> Result<()> {
    let length = prompt.len();
    let mut end = 0;
    for span in &prompt.spans {
        if span.start < end || span.length == 0 || span.length > length.saturating_sub(span.start) {
            let fact = "its spans overlap, are empty or leave it";
            return Err(Error::PromptShape {
                fact,
                at: span.start,
            });
        }
        end = span.end();
        let kind = span.kind;
        if space.encoders[kind as usize].is_none() {
            return Err(Error::NoEncoder { kind });
        }
    }
    end = 0;
    for group in prompt.attention.groups() {
        if group.start < end || group.is_empty() || group.end > length {
            let fact = "its groups overlap, are empty or leave it";
            return Err(Error::PromptShape {
                fact,
                at: group.start,
            });
        }
        end = group.end;
    }
    if let Positions::Mrope(mrope) = &prompt.positions
        && let Some(axis) = mrope.ids.iter().find(|axis| axis.len() != length)
    {
        let fact = "it has another number of positions than of ids";
        return Err(Error::PromptShape {
            fact,
            at: axis.len(),
        });
    }
    Ok(())
}
