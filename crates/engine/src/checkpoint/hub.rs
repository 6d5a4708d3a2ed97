//! The local cache of the Hugging Face hub.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The folder of a model: the path itself, or the snapshot that the cache holds under
/// that id.
pub(super) fn locate(model: &Path) -> Result<PathBuf> {
    if model.is_dir() {
        return Ok(model.to_owned());
    }
    let cache = cache_folder();
    let missing = || Error::NoModel {
        model: model.display().to_string(),
        cache: cache
            .clone()
            .unwrap_or_else(|| "~/.cache/huggingface/hub".into()),
    };
    let (Some(id), Some(cache)) = (model.to_str().filter(|id| is_id(id)), &cache) else {
        return Err(missing());
    };
    snapshot(&cache.join(format!("models--{}", id.replace('/', "--")))).ok_or_else(missing)
}

/// `org/name` of the characters that the hub allows, so that an id never leaves the cache.
fn is_id(id: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    id.split_once('/')
        .is_some_and(|(org, name)| is_part(org) && is_part(name))
}

fn cache_folder() -> Option<PathBuf> {
    let variable = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    variable("HF_HUB_CACHE")
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("huggingface/hub")))
        .or_else(|| Some(variable("HOME")?.join(".cache/huggingface/hub")))
}

/// `refs/main` names the commit whose files `snapshots` holds.
fn snapshot(model: &Path) -> Option<PathBuf> {
    let commit = fs::read_to_string(model.join("refs/main")).ok()?;
    let commit = commit.trim();
    let is_name = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
    let folder = model.join("snapshots").join(commit);
    (is_name && folder.is_dir()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_snapshot_of_the_main_branch() {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("models--org--name");
        fs::create_dir_all(model.join("snapshots/abc123")).unwrap();
        fs::create_dir_all(model.join("refs")).unwrap();
        assert_eq!(snapshot(&model), None);
        fs::write(model.join("refs/main"), "abc123\n").unwrap();
        assert_eq!(snapshot(&model), Some(model.join("snapshots/abc123")));
        fs::write(model.join("refs/main"), "../../secret").unwrap();
        assert_eq!(snapshot(&model), None);
    }

    #[test]
    fn ids_stay_inside_the_cache() {
        assert!(is_id("google/gemma-4-E2B-it"));
        for id in ["gemma", "a/b/c", "../x", "a/..", "/x", "a/", "a/b\\c"] {
            assert!(!is_id(id), "{id}");
        }
    }
}
