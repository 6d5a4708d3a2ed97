//! The names of a commit's files, and their end if it fails.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::refresh::{FileKind, UNSETTLED, file_name};
use crate::store::Inner;

/// Removes the files of a commit that fails. Where even that fails the next writer does it.
pub(crate) struct NewFiles<'a> {
    inner: &'a Inner,
    id: [u8; 16],
    keep: bool,
}

impl<'a> NewFiles<'a> {
    pub(crate) const fn of(inner: &'a Inner, id: [u8; 16]) -> Self {
        Self {
            inner,
            id,
            keep: false,
        }
    }

    pub(crate) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for NewFiles<'_> {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // The manifest first: without it the pack is garbage, not the other way round.
        for kind in [FileKind::Commit, FileKind::Temporary, FileKind::Pack] {
            let name = file_name(&self.id, kind);
            if let Err(error) = self.inner.vfs.remove(&name)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = name, %error, "could not remove a failed write");
            }
        }
        self.inner.seen.store(UNSETTLED, Relaxed);
    }
}

/// An id that no other commit has: the standard library's hash seeds are random for each
/// process, and the time and a counter tell the commits of one process apart.
pub(crate) fn random_id() -> [u8; 16] {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let mut hasher = blake3::Hasher::new();
    for _ in 0..2 {
        hasher.update(&RandomState::new().hash_one(now).to_le_bytes());
    }
    hasher.update(&now.to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(&COUNTER.fetch_add(1, Relaxed).to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}
