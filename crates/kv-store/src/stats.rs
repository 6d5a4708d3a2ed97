use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Miss;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a store has done since it was opened, in total, with its present size.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Misses by reason, in the order of [`Miss::ALL`].
            pub misses: [u64; Miss::ALL.len()],
            /// Records that can be found now.
            pub records: u64,
            /// Manifests that can be read now.
            pub commits: u64,
            /// Damaged records that are out of use, and that the next writer removes.
            pub quarantined: u64,
            /// Bytes that the folder holds now, foreign files included.
            pub used_bytes: u64,
            /// Bytes of foreign files, and of the packs that they keep alive.
            pub foreign_bytes: u64,
            /// Foreign files.
            pub foreign_files: u64,
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) misses: [AtomicU64; Miss::ALL.len()],
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                let mut stats = Stats::default();
                $(stats.$name = self.$name.load(Relaxed);)*
                for (out, count) in stats.misses.iter_mut().zip(&self.misses) {
                    *out = count.load(Relaxed);
                }
                stats
            }
        }
    };
}

counters! {
    /// Commits made.
    puts,
    /// Records written.
    records_written,
    /// Records that were already there.
    records_skipped,
    /// Bytes written: extents and manifests.
    bytes_written,
    /// Bytes of manifests among them.
    manifest_bytes_written,
    /// Bytes of known records, neither read nor hashed nor written.
    bytes_skipped,
    /// Bytes of content blocks that were hashed and found to be there.
    bytes_reused,
    /// Bytes packed in scratch memory before they were written.
    bytes_copied,
    /// The most scratch memory of one operation.
    peak_scratch_bytes,
    /// Bytes read and verified.
    bytes_read,
    /// Records read.
    hits,
    /// Records found torn or truncated, and dropped.
    torn,
    /// Records evicted to make room.
    evicted,
    /// Bytes freed by eviction and removal.
    bytes_freed,
    /// Packs whose bytes could not be freed yet, since somebody reads them.
    deferred,
    /// Files of dead writers that were removed.
    garbage_files,
    /// Microseconds spent in syncs.
    sync_micros,
    /// Microseconds spent in puts.
    put_micros,
    /// Microseconds spent in reads.
    read_micros,
}

impl Stats {
    /// How many look-ups of records missed for this reason.
    #[must_use]
    pub fn misses_for(&self, reason: Miss) -> u64 {
        self.misses[reason as usize]
    }
}

impl Counters {
    pub(crate) fn miss(&self, reason: Miss) {
        self.misses[reason as usize].fetch_add(1, Relaxed);
    }
}

pub(crate) fn add(counter: &AtomicU64, n: impl TryInto<u64>) {
    counter.fetch_add(n.try_into().unwrap_or(0), Relaxed);
}

pub(crate) fn add_micros(counter: &AtomicU64, since: Instant) -> Duration {
    let elapsed = since.elapsed();
    add(counter, elapsed.as_micros());
    elapsed
}

/// What one put did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutReport {
    /// Records written.
    pub written: usize,
    /// Records that were already there, whose data was not looked at.
    pub skipped: usize,
    /// Content blocks that were hashed and found to be there.
    pub reused: usize,
    /// Bytes written: extents with their padding, and the manifest.
    pub bytes_written: u64,
    /// Bytes of the skipped records.
    pub bytes_skipped: u64,
    /// Bytes of the reused blocks.
    pub bytes_reused: u64,
    /// Bytes packed in scratch memory, because their runs were short.
    pub bytes_copied: u64,
    /// Scratch memory, all threads together.
    pub peak_scratch_bytes: u64,
    /// Records evicted to make room.
    pub evicted: usize,
    /// Time spent waiting for syncs.
    pub sync: Duration,
    /// Time in all.
    pub elapsed: Duration,
}

/// What one read did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadReport {
    /// Records that were read.
    pub records: usize,
    /// Bytes read and verified: whole pieces.
    pub bytes_read: u64,
    /// Bytes that went through scratch memory.
    pub bytes_copied: u64,
    /// Threads used.
    pub threads: usize,
    /// Time in all.
    pub elapsed: Duration,
}
