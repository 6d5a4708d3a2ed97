//! What is kept, where, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use prefill_multimodal_prompt::KeySpace;

use crate::{Error, Result};

/// What an engine keeps of what it computed: prefixes of prompts and features of media.
///
/// By default up to 1 GiB in memory, and nothing on disk.
///
/// ```
/// use prefill_engine::{CacheOptions, DiskOptions};
///
/// let cache = CacheOptions::default()
///     .ram_bytes(4 << 30)
///     .disk(DiskOptions::new("/var/cache/prefill").limit(64 << 30));
/// ```
#[derive(Debug, Clone)]
pub struct CacheOptions {
    pub(crate) ram_bytes: u64,
    pub(crate) block_size: usize,
    pub(crate) checkpoint_blocks: usize,
    pub(crate) disk: Option<DiskOptions>,
    pub(crate) gate: Gate,
    pub(crate) has_blind_keys: bool,
}

/// When what is on disk is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Gate {
    /// When, by what was measured so far, to read it takes less time than to compute it.
    #[default]
    Measured,
    /// Always.
    Open,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            ram_bytes: 1 << 30,
            block_size: KeySpace::DEFAULT_BLOCK_SIZE.get(),
            checkpoint_blocks: 16,
            disk: None,
            gate: Gate::Measured,
            has_blind_keys: false,
        }
    }
}

impl CacheOptions {
    /// The most bytes kept in memory, beside what requests under way use. 0 keeps nothing
    /// there.
    #[must_use]
    pub fn ram_bytes(mut self, bytes: u64) -> Self {
        self.ram_bytes = bytes;
        self
    }

    /// Tokens of a block, the unit that prompts share: a power of two from 16 to 2^20, 256 by
    /// default. Small blocks find more of short prompts and take more records.
    #[must_use]
    pub fn block_size(mut self, tokens: usize) -> Self {
        self.block_size = tokens;
        self
    }

    /// Blocks between checkpoints of layers that have a window or a state, in long prompts; 16
    /// by default. Few cost little memory, many let prompts that part in the middle share more.
    #[must_use]
    pub fn checkpoint_every(mut self, blocks: usize) -> Self {
        self.checkpoint_blocks = blocks.max(1);
        self
    }

    /// Keeps it on disk too, where it survives the process.
    #[must_use]
    pub fn disk(mut self, disk: DiskOptions) -> Self {
        self.disk = Some(disk);
        self
    }

    /// When what is on disk is read.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Makes keys that are blind to what media hold, which gives wrong answers: for tests that
    /// show that they would notice.
    #[doc(hidden)]
    #[must_use]
    pub fn with_blind_keys(mut self) -> Self {
        self.has_blind_keys = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        KeySpace::new([0; 32]).block_size(self.block_size)?;
        match &self.disk {
            Some(disk) if disk.folder.as_os_str().is_empty() => Err(Error::Request {
                setting: "cache folder",
                fact: "it is empty".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// A folder in which prefixes and features survive.
///
/// It holds what was said to the model, in a form that can be read back: it is made with mode
/// 0700, and its files with 0600. Several processes may use one folder at once.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    pub(crate) folder: PathBuf,
    pub(crate) limit: u64,
    pub(crate) free_floor: u64,
    pub(crate) delay: Option<Duration>,
    pub(crate) queue_bytes: u64,
    pub(crate) daily_bytes: u64,
}

impl DiskOptions {
    /// That folder, which is made if it is missing; up to 32 GiB.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            limit: 32 << 30,
            free_floor: 1 << 30,
            delay: Some(Duration::from_secs(3)),
            queue_bytes: 1 << 30,
            daily_bytes: u64::MAX,
        }
    }

    /// The most bytes that the folder may take.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Bytes of the file system that are left free, 1 GiB by default.
    #[must_use]
    pub fn free_floor(mut self, bytes: u64) -> Self {
        self.free_floor = bytes;
        self
    }

    /// How long after it was computed something is written, 3 s by default: what is superseded
    /// sooner, or used by the next request, is not written in between. What has to leave memory
    /// is written at once, and the rest when the model is unloaded.
    #[must_use]
    pub fn write_after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Reads only: nothing is written.
    #[must_use]
    pub fn never_write(mut self) -> Self {
        self.delay = None;
        self
    }

    /// The most bytes that wait to be written, 1 GiB by default. Where the disk is slower than
    /// the model, what does not fit is not written, and counted.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// The most bytes written on one day (UTC), no limit by default. From half of it on, only
    /// what has been used again is written.
    #[must_use]
    pub fn daily_bytes(mut self, bytes: u64) -> Self {
        self.daily_bytes = bytes;
        self
    }
}

/// What a request does with what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// It uses what is kept, and what it computes is kept.
    #[default]
    ReadWrite,
    /// It uses what is kept, and leaves nothing.
    ReadOnly,
    /// It computes everything, and leaves nothing.
    Bypass,
}
