use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use crate::{DType, Key};

/// What can go wrong. Bad input and faults lose nothing that was there before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The record can't be had. A caller goes on without it; this is not a fault of the request.
    #[error("record {key} is not available: {reason}")]
    Miss {
        /// The key that was asked for.
        key: Key,
        /// Why.
        reason: Miss,
    },
    /// An offset of a strided view lies outside its buffer.
    #[error("elements {lowest} to {highest} lie outside a buffer of {available} elements")]
    OutOfBounds {
        /// The lowest element that the view reaches, relative to the buffer's start.
        lowest: i128,
        /// The highest element that the view reaches.
        highest: i128,
        /// Elements in the buffer.
        available: usize,
    },
    /// The numbers of dimensions and strides differ, or there are too many dimensions.
    #[error("{shape} dimensions with {strides} strides; at most {limit} of each")]
    Rank {
        /// Dimensions given.
        shape: usize,
        /// Strides given.
        strides: usize,
        /// The greatest rank.
        limit: usize,
    },
    /// A size or a count above what the format or the caller's limit allows.
    #[error("{what} is {found}, above the limit of {limit}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The value.
        found: u64,
        /// The greatest value.
        limit: u64,
    },
    /// Two shapes that must agree don't.
    #[error("shape {found:?} where {expected:?} is needed")]
    Shape {
        /// The shape that fits.
        expected: Vec<usize>,
        /// The shape that was given.
        found: Vec<usize>,
    },
    /// Two dtypes that must agree don't.
    #[error("dtype {found} where {expected} is needed")]
    Dtype {
        /// The dtype that fits.
        expected: DType,
        /// The dtype that was given.
        found: DType,
    },
    /// Two destinations, or one with itself, share bytes.
    #[error("destinations overlap at byte {offset} of buffer {buffer}")]
    Overlap {
        /// Which buffer.
        buffer: usize,
        /// The first shared byte.
        offset: usize,
    },
    /// An index (of a tensor, a buffer, an axis) that is too great.
    #[error("{what} {index} of {count}")]
    Index {
        /// What was indexed.
        what: &'static str,
        /// The index.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// An argument that means nothing.
    #[error("{what}")]
    Invalid {
        /// The fact.
        what: &'static str,
    },
    /// A key occurs twice in one batch.
    #[error("key {key} occurs twice in one batch")]
    Duplicate {
        /// The key.
        key: Key,
    },
    /// Bytes that do not follow the format.
    #[error("invalid at byte {offset}: {what}")]
    Format {
        /// Where.
        offset: u64,
        /// What was expected there.
        what: &'static str,
    },
    /// A format version that this program does not know.
    #[error("format version {found}; this program reads up to {supported}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The newest version known.
        supported: u32,
    },
    /// The batch can't fit, whatever is evicted.
    #[error("{needed} bytes are needed; at most {available} can be made available")]
    Full {
        /// Bytes of the batch, with its manifest.
        needed: u64,
        /// What the limits leave when all that may be evicted is gone.
        available: u64,
    },
    /// Files that this program can't read fill the limit. See [`crate::Store::remove_foreign`].
    #[error("files that this program can't read hold {foreign} bytes of a limit of {limit}")]
    FullOfForeign {
        /// Bytes in foreign files.
        foreign: u64,
        /// The limit.
        limit: u64,
    },
    /// Another process holds the writers' lock.
    #[error("another writer held the store for {waited:?}")]
    Busy {
        /// How long this one waited.
        waited: Duration,
    },
    /// The store was opened for reading only.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// The writer thread has stopped.
    #[error("the writer has stopped")]
    Stopped,
    /// The file system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file, relative to the store unless absolute.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// Why a record can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Miss {
    /// No manifest lists it.
    Absent,
    /// It was there, and was removed or evicted meanwhile.
    Removed,
    /// Its bytes do not have their hash. It is dropped, and the next write heals it.
    Torn,
    /// Its pack is missing or has another length. It is dropped.
    Truncated,
    /// The file system reported an error while reading. It is kept.
    Unreadable,
}

impl Miss {
    /// Every reason, in the order of the counters in [`crate::Stats`].
    pub const ALL: [Self; 5] = [
        Self::Absent,
        Self::Removed,
        Self::Torn,
        Self::Truncated,
        Self::Unreadable,
    ];
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Removed => "removed",
            Self::Torn => "torn",
            Self::Truncated => "truncated",
            Self::Unreadable => "unreadable",
        })
    }
}

impl Error {
    /// The reason, if this is a miss.
    #[must_use]
    pub const fn miss(&self) -> Option<Miss> {
        match self {
            Self::Miss { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn limit(what: &'static str, found: impl TryInto<u64>, limit: u64) -> Self {
        Self::Limit {
            what,
            found: found.try_into().unwrap_or(u64::MAX),
            limit,
        }
    }
}

/// The result of the crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
