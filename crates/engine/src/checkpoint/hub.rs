//! Where a model's files are: in a folder, in the hub's cache, or still with the hub.

use std::fs;
use std::path::{Path, PathBuf};

use prefill_hub::{Hub, RepoId};
use serde_json::Value;

use crate::model::Progress;
use crate::{Error, Result};

/// The folder of a model: the path itself, or what the cache holds under that id, or what is
/// downloaded into it now.
pub(super) fn locate(
    hub: &Hub,
    model: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf> {
    if model.is_dir() {
        return Ok(model.to_owned());
    }
    let id = model.to_str().and_then(|id| RepoId::parse(id).ok());
    let id = id.ok_or_else(|| Error::NoModel {
        model: model.display().to_string(),
    })?;
    if let Some(folder) = hub.local(&id).filter(|folder| is_complete(folder)) {
        return Ok(folder);
    }
    let mut on_bytes = |bytes: prefill_hub::Progress| {
        progress(Progress {
            done: bytes.done,
            total: bytes.total,
        });
    };
    Ok(hub.fetch(&id, &mut on_bytes)?)
}

/// Whether a folder of the cache has what a checkpoint needs: other tools may have fetched some
/// of its files only.
fn is_complete(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    if !has("config.json") || !has("tokenizer.json") {
        return false;
    }
    let Ok(index) = fs::read(folder.join("model.safetensors.index.json")) else {
        return has("model.safetensors");
    };
    let index: Value = serde_json::from_slice(&index).unwrap_or_default();
    let files = index.get("weight_map").and_then(Value::as_object);
    files.is_some_and(|files| files.values().all(|file| file.as_str().is_some_and(has)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn a_snapshot_is_taken_when_every_shard_is_there() {
        let cache = tempfile::tempdir().unwrap();
        let hub = Hub::from_env().cache(cache.path()).offline(true);
        let model = cache.path().join("models--org--name");
        let snapshot = model.join("snapshots/abc123");
        write(&model.join("refs"), "main", "abc123\n");
        write(&snapshot, "config.json", "{}");
        write(&snapshot, "tokenizer.json", "{}");
        let locate = || locate(&hub, Path::new("org/name"), &mut |_| {});
        assert!(matches!(locate(), Err(Error::Hub(_))));
        write(
            &snapshot,
            "model.safetensors.index.json",
            r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#,
        );
        write(&snapshot, "model-1.safetensors", "");
        assert!(matches!(locate(), Err(Error::Hub(_))));
        write(&snapshot, "model-2.safetensors", "");
        assert_eq!(locate().unwrap(), snapshot);
    }

    #[test]
    fn neither_a_folder_nor_an_id_is_an_error() {
        let hub = Hub::from_env().offline(true);
        for model in ["no-such-folder", "a/b/c", "../x/y"] {
            let error = locate(&hub, Path::new(model), &mut |_| {}).unwrap_err();
            assert!(matches!(error, Error::NoModel { .. }), "{error}");
        }
    }
}
