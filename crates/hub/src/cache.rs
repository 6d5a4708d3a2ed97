//! The cache's folders, as `huggingface_hub` lays them out.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

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

    /// Makes a file of a snapshot: a link to its blob.
    pub(crate) fn link(&self, commit: &str, file: &FileInfo) -> Result<()> {
        let folder = self.snapshot(commit);
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let link = folder.join(&file.name);
        if link.exists() {
            return Ok(());
        }
        // What is there, if anything, leads nowhere.
        let _ = fs::remove_file(&link);
        self.place(&link, file).map_err(Error::io(&link))
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
        let (new, main) = (refs.join("main.new"), refs.join("main"));
        fs::write(&new, &info.commit).map_err(Error::io(&new))?;
        fs::rename(&new, &main).map_err(Error::io(&main))?;
        Ok(self.snapshot(&info.commit))
    }
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
