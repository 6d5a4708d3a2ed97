//! An endpoint and a cache.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{self, ModelCache, variable};
use crate::download::Client;
use crate::{Error, RepoId, Result};

/// Bytes so far, of all files together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// So far, what was there already included.
    pub done: u64,
    /// In all.
    pub total: u64,
}

/// A hub: where models come from, and where they are kept.
///
/// ```
/// use prefill_hub::{Hub, RepoId};
///
/// let hub = Hub::from_env().cache("/no/such/folder").offline(true);
/// let id = RepoId::parse("org/name")?;
/// assert_eq!(hub.local(&id), None);
/// assert!(hub.fetch(&id, &mut |_| {}).is_err());
/// # Ok::<(), prefill_hub::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Hub {
    endpoint: String,
    cache: PathBuf,
    token: Option<String>,
    is_offline: bool,
}

impl Hub {
    /// As the environment says: `HF_ENDPOINT` (else <https://huggingface.co>), `HF_HUB_CACHE`,
    /// `HF_HOME` or `XDG_CACHE_HOME` (else `~/.cache/huggingface/hub`), `HF_TOKEN`,
    /// `HF_TOKEN_PATH` or the file `token` in `HF_HOME`, and `HF_HUB_OFFLINE`.
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| variable(name)?.into_string().ok();
        let token_path =
            variable("HF_TOKEN_PATH").map_or_else(|| cache::home().join("token"), PathBuf::from);
        let stored = || fs::read_to_string(token_path).ok();
        let token = text("HF_TOKEN").or_else(stored);
        let is_set = |value: String| {
            matches!(
                value.to_ascii_lowercase().as_str(),
                "1" | "true" | "yes" | "on"
            )
        };
        Self {
            endpoint: text("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".to_owned())
                .trim_end_matches('/')
                .to_owned(),
            cache: cache::folder(),
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            is_offline: text("HF_HUB_OFFLINE").is_some_and(is_set),
        }
    }

    /// Another endpoint, such as a mirror.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        let endpoint: String = endpoint.into();
        endpoint
            .trim_end_matches('/')
            .clone_into(&mut self.endpoint);
        self
    }

    /// Another cache.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = folder.into();
        self
    }

    /// Another token, or none. It is sent to the endpoint's host only.
    #[must_use]
    pub fn token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Whether nothing may be downloaded.
    #[must_use]
    pub fn offline(mut self, is_offline: bool) -> Self {
        self.is_offline = is_offline;
        self
    }

    /// The folder of the cache.
    #[must_use]
    pub fn cache_folder(&self) -> &Path {
        &self.cache
    }

    /// A model's folder in the cache, if its main branch is there; some of its files may not
    /// be, if another tool made it.
    #[must_use]
    pub fn local(&self, id: &RepoId) -> Option<PathBuf> {
        ModelCache::new(&self.cache, id).main()
    }

    /// Sees to it that all files of a model's checkpoint are in the cache, and gives their
    /// folder. What is there already is not downloaded again; what a broken connection left
    /// is continued.
    ///
    /// # Errors
    /// [`Error::Offline`], [`Error::NotFound`], [`Error::Refused`], [`Error::Status`],
    /// [`Error::Connection`], [`Error::Info`] and [`Error::NoCheckpoint`] of the hub;
    /// [`Error::Length`] and [`Error::Hash`] for files that are not what it states, which
    /// are removed; [`Error::Io`].
    pub fn fetch(&self, id: &RepoId, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf> {
        if self.is_offline {
            return Err(Error::Offline {
                id: id.to_string(),
                cache: self.cache.clone(),
            });
        }
        let span = tracing::info_span!("fetch", %id);
        let _entered = span.enter();
        let client = Client::new(&self.endpoint, self.token.as_deref());
        let info = client.info(id)?;
        let cache = ModelCache::new(&self.cache, id);
        let total = info.files.iter().map(|file| file.length).sum();
        let mut before = 0;
        progress(Progress { done: 0, total });
        for file in &info.files {
            let mut on_bytes = |bytes: u64| {
                let done = before + bytes.min(file.length);
                progress(Progress { done, total });
            };
            client.download(id, &info.commit, file, &cache, &mut on_bytes)?;
            cache.link(&info.commit, file)?;
            before += file.length;
            progress(Progress {
                done: before,
                total,
            });
        }
        cache.finish(&info)
    }
}
