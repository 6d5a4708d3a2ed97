use std::time::Duration;

/// How a store is opened.
///
/// ```
/// let options = prefill_kv_store::Options { limit: 64 << 30, ..Default::default() };
/// assert_eq!(options.piece_threads(), options.threads.max(1));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The most bytes that the folder may hold, temporary and foreign files included.
    /// Default: no limit.
    pub limit: u64,
    /// Bytes of the file system that are left free. Default: 1 GiB.
    pub free_floor: u64,
    /// Threads that hash, read and write in one operation. Default: the cores, at most 4.
    pub threads: usize,
    /// How far a snapshot that is loaded may exceed the blocks that hold it. A snapshot may name
    /// one block many times, so that a small file from elsewhere can claim to be terabytes: its
    /// tensors may come to the bytes of its distinct blocks and this much more, which is checked
    /// before anything is allocated. Reading may take as much again for a moment, where the rows
    /// of a block land in runs of less than 512 bytes. Default: 4 GiB.
    pub repeat_limit: u64,
    /// How long to wait for another process's writer. Default: 30 s.
    pub lock_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            free_floor: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            repeat_limit: 4 << 30,
            lock_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// The threads that one operation uses at most: at least one.
    #[must_use]
    pub fn piece_threads(&self) -> usize {
        self.threads.max(1)
    }
}
