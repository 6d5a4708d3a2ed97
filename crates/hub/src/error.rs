//! What can go wrong between the hub and the cache.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a download: it names the fact and carries the numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No `org/name`.
    #[error("{id:?} is not the id of a model (org/name)")]
    Id {
        /// What was given.
        id: String,
    },
    /// The model is not in the cache, and nothing may be downloaded.
    #[error("{id} is not in the cache {}, and HF_HUB_OFFLINE forbids to download it", cache.display())]
    Offline {
        /// The model.
        id: String,
        /// The cache that was looked in.
        cache: PathBuf,
    },
    /// There is no such model, or it is private.
    #[error("{id}: the hub knows no such model, or it is private (is HF_TOKEN set?)")]
    NotFound {
        /// The model.
        id: String,
    },
    /// The hub does not let this user have the model.
    #[error(
        "{id}: the hub refuses access ({status}): accept the model's terms there, and set HF_TOKEN"
    )]
    Refused {
        /// The model.
        id: String,
        /// The status, 401 or 403.
        status: u16,
    },
    /// A server answered with another status.
    #[error("{url}: status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
    },
    /// The connection failed, again and again.
    #[error("{url}: {fact}")]
    Connection {
        /// What was asked for.
        url: String,
        /// The last failure.
        fact: String,
    },
    /// What the hub says of the model is not as it should be.
    #[error("{url}: {fact}")]
    Info {
        /// What was asked for.
        url: String,
        /// What is wrong.
        fact: String,
    },
    /// The model has no files of a checkpoint.
    #[error("{id} holds no *.safetensors and config.json")]
    NoCheckpoint {
        /// The model.
        id: String,
    },
    /// A file of another length than the hub states.
    #[error("{file}: {found} bytes, and the hub states {expected}")]
    Length {
        /// The file.
        file: String,
        /// What the hub states.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// A file with another hash than the hub states.
    #[error("{file}: hash {found}, and the hub states {expected}")]
    Hash {
        /// The file.
        file: String,
        /// What the hub states.
        expected: String,
        /// That of what came.
        found: String,
    },
    /// The cache can't be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}
