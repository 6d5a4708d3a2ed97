use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Error, ModelDescription, Patch, Result, TensorDescription};

/// The element type that a checkpoint is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DType {
    /// 32-bit floats, the exact values of the description.
    #[default]
    F32,
    /// bfloat16, rounded to nearest even.
    Bf16,
    /// IEEE half precision, rounded to nearest even.
    F16,
}

/// Builds a checkpoint folder from a [`ModelDescription`].
///
/// As it stands: one `model.safetensors` in f32 with every described tensor.
///
/// ```
/// use prefill_test_support::Checkpoint;
///
/// let folder = Checkpoint::named("gemma4_e2b")?.prune_unused().text_only().build()?;
/// assert!(folder.path().join("model.safetensors").exists());
/// # Ok::<(), prefill_test_support::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    description: ModelDescription,
    dtype: DType,
    shards: usize,
    prune_unused: bool,
    text_only: bool,
    patches: Vec<Patch>,
}

impl Checkpoint {
    /// A checkpoint of the description of that name, such as `gemma4_e2b`.
    ///
    /// # Errors
    /// See [`ModelDescription::named`].
    pub fn named(name: &str) -> Result<Self> {
        ModelDescription::named(name).map(Self::new)
    }

    /// A checkpoint of that description.
    #[must_use]
    pub fn new(description: ModelDescription) -> Self {
        Self {
            description,
            dtype: DType::default(),
            shards: 1,
            prune_unused: false,
            text_only: false,
            patches: Vec::new(),
        }
    }

    /// Sets the element type; `config.json` names it too.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Writes `count` files and an index instead of one file, when `count` is above one.
    #[must_use]
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = count.max(1);
        self
    }

    /// Leaves out the keys and values of KV-shared layers, which nothing reads.
    #[must_use]
    pub fn prune_unused(mut self) -> Self {
        self.prune_unused = true;
        self
    }

    /// Leaves out the towers, and sets `vision_config` and `audio_config` to null.
    #[must_use]
    pub fn text_only(mut self) -> Self {
        self.text_only = true;
        self
    }

    /// Replaces one value of a JSON file, such as an image budget in `processor_config.json`.
    #[must_use]
    pub fn patch(mut self, patch: Patch) -> Self {
        self.patches.push(patch);
        self
    }

    /// Writes the checkpoint into a temporary folder, which is removed when the value is dropped.
    ///
    /// # Errors
    /// A file can't be read or written, or a patch points nowhere.
    pub fn build(&self) -> Result<TempDir> {
        let folder = tempfile::Builder::new()
            .prefix("prefill-checkpoint-")
            .tempdir()
            .map_err(Error::io(&std::env::temp_dir()))?;
        self.write(folder.path())?;
        Ok(folder)
    }

    /// Writes the checkpoint into `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// As for [`Checkpoint::build`].
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        self.copy_settings(folder)?;
        edit_json(&folder.join("config.json"), |config| {
            let name = match self.dtype {
                DType::F32 => "float32",
                DType::Bf16 => "bfloat16",
                DType::F16 => "float16",
            };
            config["dtype"] = json!(name);
            if self.text_only {
                config["vision_config"] = Value::Null;
                config["audio_config"] = Value::Null;
            }
            Ok(())
        })?;
        for patch in &self.patches {
            let path = folder.join(&patch.file);
            edit_json(&path, |document| {
                let pointer = patch.pointer.clone();
                let value = document.pointer_mut(&patch.pointer).ok_or(Error::Pointer {
                    path: path.clone(),
                    pointer,
                })?;
                *value = patch.value.clone();
                Ok(())
            })?;
        }
        self.write_weights(folder)
    }

    fn copy_settings(&self, folder: &Path) -> Result<()> {
        let source = self.description.folder();
        for entry in source.read_dir().map_err(Error::io(source))? {
            let entry = entry.map_err(Error::io(source))?;
            if entry.file_name() != "tensors.json" {
                let target = folder.join(entry.file_name());
                std::fs::copy(entry.path(), &target).map_err(Error::io(&target))?;
            }
        }
        Ok(())
    }

    fn tensors(&self) -> Vec<&TensorDescription> {
        let is_text = |name: &str| name.contains("language_model.") || name.starts_with("lm_head.");
        let tensors = self.description.tensors().iter();
        tensors
            .filter(|t| !(self.prune_unused && t.unused))
            .filter(|t| !self.text_only || is_text(&t.name))
            .collect()
    }

    fn write_weights(&self, folder: &Path) -> Result<()> {
        let tensors = self.tensors();
        let per_shard = tensors.len().div_ceil(self.shards).max(1);
        let shards: Vec<_> = tensors.chunks(per_shard).collect();
        let mut weight_map = BTreeMap::new();
        let mut total_size = 0;
        for (i, shard) in shards.iter().enumerate() {
            let file = if self.shards == 1 {
                "model.safetensors".to_owned()
            } else {
                format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len())
            };
            total_size += self.write_shard(&folder.join(&file), shard)?;
            weight_map.extend(shard.iter().map(|t| (t.name.clone(), file.clone())));
        }
        if self.shards > 1 {
            let path = folder.join("model.safetensors.index.json");
            let index =
                json!({ "metadata": { "total_size": total_size }, "weight_map": weight_map });
            write_json(&path, &index)?;
        }
        Ok(())
    }

    /// Writes one file and returns the bytes of its tensors.
    fn write_shard(&self, path: &Path, tensors: &[&TensorDescription]) -> Result<usize> {
        let seed = self.description.seed();
        let bytes: Vec<_> = tensors
            .iter()
            .map(|t| self.dtype.encode(&t.values(seed)))
            .collect();
        let views = tensors
            .iter()
            .zip(&bytes)
            .map(|(t, data)| {
                TensorView::new(self.dtype.into(), t.shape.clone(), data).map(|v| (&t.name, v))
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(Error::safetensors(path))?;
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize_to_file(views, Some(metadata), path)
            .map_err(Error::safetensors(path))?;
        Ok(bytes.iter().map(Vec::len).sum())
    }
}

impl DType {
    fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::Bf16 => values
                .iter()
                .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
                .collect(),
            Self::F16 => values
                .iter()
                .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                .collect(),
        }
    }
}

impl From<DType> for Dtype {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::Bf16 => Self::BF16,
            DType::F16 => Self::F16,
        }
    }
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    let mut document = serde_json::from_str(&text).map_err(Error::json(path))?;
    edit(&mut document)?;
    write_json(path, &document)
}

fn write_json(path: &Path, document: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(document).map_err(Error::json(path))?;
    std::fs::write(path, text).map_err(Error::io(path))
}
