//! The cache's folders, as `huggingface_hub` lays them out.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, process};

use crate::info::{FileInfo, Info};
use crate::{Error, RepoId, Result};

/// One model's folder: `blobs` by hash, `snapshots` of links to them by commit, and `refs`.
#[derive(Debug)]
pub(crate) struct ModelCache {
    folder: PathBuf,
}

impl ModelCache {
    pub(crate) fn new(cache: &Path, id: &RepoId) -> Self {
        Self {
            folder: cache.join(id.folder()),
        }
    }

    /// The snapshot of the main branch, if there is one.
    pub(crate) fn main(&self) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.folder.join("refs/main")).ok()?;
        let commit = commit.trim();
        let is_name = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
        let folder = self.snapshot(commit);
        (is_name && folder.is_dir()).then_some(folder)
    }

    /// Where a commit's files are.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Where a file's contents are, once they are whole.
    pub(crate) fn blob(&self, file: &FileInfo) -> PathBuf {
        self.folder.join("blobs").join(file.hash.text())
    }

    /// The file whose lock a process holds while it fetches that blob; it stays, since who
    /// waits for it has it open.
    pub(crate) fn lock(&self, file: &FileInfo) -> PathBuf {
        let name = self.folder.file_name().unwrap_or_default();
        let locks = self.folder.with_file_name(".locks").join(name);
        locks.join(format!("{}.lock", file.hash.text()))
    }

    /// Makes a file of a snapshot: a link to its blob.
    pub(crate) fn link(&self, commit: &str, file: &FileInfo) -> Result<()> {
        let folder = self.snapshot(commit);
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let link = folder.join(&file.name);
        if link.exists() {
            return Ok(());
        }
        // Renamed into place: what is there, if anything, leads nowhere, unless another process
        // has just made it.
        let new = beside(&link);
        let _ = fs::remove_file(&new);
        self.place(&new, file).map_err(Error::io(&new))?;
        fs::rename(&new, &link).map_err(Error::io(&link))
    }

    #[cfg(unix)]
    #[allow(clippy::unused_self, reason = "other systems need it")]
    fn place(&self, link: &Path, file: &FileInfo) -> std::io::Result<()> {
        let blob = Path::new("../../blobs").join(file.hash.text());
        std::os::unix::fs::symlink(blob, link)
    }

    /// Links need rights that not everybody has there.
    #[cfg(not(unix))]
    fn place(&self, link: &Path, file: &FileInfo) -> std::io::Result<()> {
        fs::hard_link(self.blob(file), link)
            .or_else(|_| fs::copy(self.blob(file), link).map(|_| ()))
    }

    /// Names a commit as the main branch's, all of whose files are there.
    pub(crate) fn finish(&self, info: &Info) -> Result<PathBuf> {
        let refs = self.folder.join("refs");
        fs::create_dir_all(&refs).map_err(Error::io(&refs))?;
        let main = refs.join("main");
        let new = beside(&main);
        fs::write(&new, &info.commit).map_err(Error::io(&new))?;
        fs::rename(&new, &main).map_err(Error::io(&main))?;
        Ok(self.snapshot(&info.commit))
    }
}

/// A name beside `path` that no other writer has.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{count}.new", process::id()));
    PathBuf::from(name)
}

/// The cache that the environment names: `HF_HUB_CACHE`, else `HF_HOME/hub`, else
/// `XDG_CACHE_HOME/huggingface/hub`, else `~/.cache/huggingface/hub`.
pub(crate) fn folder() -> PathBuf {
    variable("HF_HUB_CACHE").map_or_else(|| home().join("hub"), PathBuf::from)
}

/// Where the hub's tools keep what they know, tokens among it.
pub(crate) fn home() -> PathBuf {
    variable("HF_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("huggingface")))
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/huggingface")))
        .unwrap_or_else(|| PathBuf::from(".cache/huggingface"))
}

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
