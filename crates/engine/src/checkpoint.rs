//! A checkpoint's folder, in the layout of the Hugging Face hub.

mod adapter;
pub(crate) mod container;
mod hub;
pub(crate) mod weights;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use prefill_hub::Hub;
use prefill_multimodal_prompt::Gemma4Rules;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::adapter::Adapter;
use self::weights::{Recorder, StoredMatrix};
use crate::model::Progress;
use crate::{Error, Result};

/// A folder with `config.json`, weights, a tokenizer and settings; nothing is loaded yet.
///
/// ```no_run
/// let checkpoint = prefill_engine::Checkpoint::open("org/name")?;
/// println!("{} in {}", checkpoint.model_type(), checkpoint.folder().display());
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Checkpoint {
    folder: PathBuf,
    config: Value,
    adapter: Option<Adapter>,
    recorder: Option<Recorder>,
    stop_ids: BTreeSet<u32>,
}

impl Checkpoint {
    /// Opens a folder, or an `org/name` of the Hugging Face hub: from its cache, or else
    /// downloaded into it (see [`Hub::from_env`]).
    ///
    /// # Errors
    /// [`Error::NoModel`] and [`Error::Hub`] if it is not to be had, [`Error::File`] or
    /// [`Error::BadFile`] if `config.json` or `generation_config.json` is missing (the first
    /// only) or not as it should be.
    pub fn open(model: impl AsRef<Path>) -> Result<Self> {
        Self::open_from(&Hub::from_env(), model, &mut |_| {})
    }

    /// [`open`](Self::open) with a hub of the caller's. `progress` is told the bytes
    /// downloaded.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_from(
        hub: &Hub,
        model: impl AsRef<Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let folder = hub::locate(hub, model.as_ref(), progress)?;
        let config: Value = read_json(&folder.join("config.json"))?;
        let stop_ids = stop_ids(&folder, &config)?;
        Ok(Self {
            folder,
            config,
            adapter: None,
            recorder: None,
            stop_ids,
        })
    }

    /// This checkpoint with a `LoRA` adapter's folder, in mlx-lm's layout
    /// (`adapters.safetensors`) or PEFT's (`adapter_model.safetensors`). Its weights are read
    /// when the model is loaded, and must all belong to one of the model's linear layers.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::BadFile`]; the latter also for adapters of other kinds.
    pub fn with_adapter(mut self, folder: impl AsRef<Path>) -> Result<Self> {
        self.adapter = Some(Adapter::open(folder.as_ref())?);
        Ok(self)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The family, as `config.json` names it, such as `gemma4`.
    #[must_use]
    pub fn model_type(&self) -> &str {
        self.config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The ids that end an answer: all those of `generation_config.json`, of `config.json` and
    /// of its text part.
    #[must_use]
    pub fn stop_ids(&self) -> &BTreeSet<u32> {
        &self.stop_ids
    }

    /// Whether the model has that part, such as `vision_config`.
    pub(crate) fn has_part(&self, key: &str) -> bool {
        self.config.get(key).is_some_and(|config| !config.is_null())
    }

    /// The files of its weights, and the list of them if there is one, in a fixed order.
    pub(crate) fn weight_files(&self) -> Result<Vec<PathBuf>> {
        let files = weights::files(&self.folder)?.into_iter();
        let index = self.folder.join("model.safetensors.index.json");
        let index = index.is_file().then_some(index);
        Ok(files.map(|(path, _)| path).chain(index).collect())
    }

    /// The files of its adapter, if it has one.
    pub(crate) fn adapter_files(&self) -> Option<[PathBuf; 2]> {
        self.adapter.as_ref().map(Adapter::files)
    }

    /// The configuration, as bytes that are the same for the same settings.
    pub(crate) fn config_bytes(&self) -> Vec<u8> {
        self.config.to_string().into_bytes()
    }

    /// Bytes that the weights take in memory, in `dtype` or as stored.
    pub(crate) fn weight_bytes(&self, dtype: Option<mlx_rs::Dtype>) -> Result<usize> {
        weights::memory_bytes(&self.folder, dtype)
    }

    /// This checkpoint, of which a model reads no data but notes its matrices.
    pub(crate) fn recording(&self) -> Self {
        Self {
            adapter: None,
            recorder: Some(Recorder::default()),
            ..self.clone()
        }
    }

    /// What was noted.
    pub(crate) fn recorded(&self) -> Vec<StoredMatrix> {
        let recorder = self.recorder.as_ref();
        recorder.map_or_else(Vec::new, |recorder| {
            recorder
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    /// One setting at the top of `config.json`.
    pub(crate) fn setting(&self, key: &str) -> Option<&Value> {
        self.config.get(key)
    }

    /// Which of Gemma 4's rules of attention the configuration asks for.
    pub(crate) fn attention_rules(&self) -> Gemma4Rules {
        Gemma4Rules::from_config(&self.config)
    }

    /// The configuration as the family's own struct.
    pub(crate) fn config<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_value(self.config.clone())
            .map_err(|error| Error::bad_file(&self.folder.join("config.json"), error.to_string()))
    }

    /// The texts of the tokens that begin and end a sequence, empty where there are none:
    /// from `tokenizer_config.json`, else `special_tokens_map.json`.
    pub(crate) fn sequence_tokens(&self) -> Result<(String, String)> {
        let read = |name: &str| match read_json(&self.folder.join(name)) {
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(Value::Null)
            }
            other => other,
        };
        let files: [Value; 2] = [
            read("tokenizer_config.json")?,
            read("special_tokens_map.json")?,
        ];
        // A token is written as its text, or as an object that holds it.
        let token = |name: &str| {
            let text = files.iter().find_map(|file| {
                let value = file.get(name)?;
                value.as_str().or_else(|| value.get("content")?.as_str())
            });
            text.unwrap_or_default().to_owned()
        };
        Ok((token("bos_token"), token("eos_token")))
    }
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::bad_file(path, format!("it is not the expected JSON: {error}")))
}

/// mlx-lm's order: the generation's own setting stands above the model's.
fn stop_ids(folder: &Path, config: &Value) -> Result<BTreeSet<u32>> {
    let path = folder.join("generation_config.json");
    let generation: Value = match read_json(&path) {
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => Value::Null,
        other => other?,
    };
    let mut stop_ids = BTreeSet::new();
    for (file, value) in [
        ("generation_config.json", generation.get("eos_token_id")),
        ("config.json", config.get("eos_token_id")),
        ("config.json", config.pointer("/text_config/eos_token_id")),
    ] {
        let ids = match value {
            None | Some(Value::Null) => continue,
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
        };
        for id in ids {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            stop_ids.insert(id.ok_or_else(|| {
                let fact = "eos_token_id is neither a token id nor a list of them";
                Error::bad_file(&folder.join(file), fact)
            })?);
        }
    }
    Ok(stop_ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn every_file_may_name_ids_that_end_an_answer() {
        let config =
            r#"{"model_type": "gemma4", "eos_token_id": 1, "text_config": {"eos_token_id": 3}}"#;
        let with = folder(&[
            ("config.json", config),
            ("generation_config.json", r#"{"eos_token_id": [1, 106]}"#),
        ]);
        assert_eq!(
            Checkpoint::open(with.path()).unwrap().stop_ids(),
            &BTreeSet::from([1, 3, 106])
        );
        let without = folder(&[("config.json", config)]);
        assert_eq!(
            Checkpoint::open(without.path()).unwrap().stop_ids(),
            &BTreeSet::from([1, 3])
        );
    }

    #[test]
    fn missing_and_broken_files_are_named() {
        let empty = folder(&[]);
        let error = Checkpoint::open(empty.path()).unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
        let broken = folder(&[("config.json", "{")]);
        let error = Checkpoint::open(broken.path()).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains("JSON"),
            "{error}"
        );
        let ids = folder(&[
            ("config.json", "{}"),
            ("generation_config.json", r#"{"eos_token_id": [-1]}"#),
        ]);
        let error = Checkpoint::open(ids.path()).unwrap_err().to_string();
        assert!(error.contains("generation_config.json"), "{error}");
    }

    #[test]
    fn an_unknown_model_says_where_it_was_looked_for() {
        let hub = Hub::from_env().cache("/no/such/cache").offline(true);
        let error = Checkpoint::open_from(&hub, "no-org/no-model", &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("no-org/no-model"), "{error}");
        assert!(error.to_string().contains("/no/such/cache"), "{error}");
    }
}
