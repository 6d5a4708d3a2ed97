//! Why an entry is not taken.

use thiserror::Error;

/// The result of this crate's fallible operations.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Why a [`Budget`](crate::Budget) refuses an entry. Nothing was evicted or changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The entry alone is larger than the whole budget.
    #[error("an entry of {bytes} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Bytes of the entry.
        bytes: u64,
        /// The budget's limit.
        limit: u64,
    },
    /// Too much is pinned, or an ancestor of something pinned, to make room.
    #[error("no room for {bytes} bytes: {held} of {limit} bytes are pinned or above a pin")]
    NoRoom {
        /// Bytes of the entry.
        bytes: u64,
        /// Bytes that can't be evicted now, the parent's chain of the refused entry included.
        held: u64,
        /// The budget's limit.
        limit: u64,
    },
    /// The policy expects the entry to be used less than what it would displace.
    #[error("an entry of {bytes} bytes is not expected to be used before what it would displace")]
    OneShot {
        /// Bytes of the entry.
        bytes: u64,
    },
    /// The parent is not in the budget: the entry could not be reached.
    #[error("the entry's parent is not in the budget")]
    MissingParent,
    /// The key is in the budget already.
    #[error("the key is in the budget already")]
    Present,
    /// The key is not in the budget.
    #[error("the key is not in the budget")]
    Absent,
    /// There are more entries than a slot number can tell apart.
    #[error("the budget already has {entries} entries")]
    TooManyEntries {
        /// Number of entries.
        entries: usize,
    },
}
