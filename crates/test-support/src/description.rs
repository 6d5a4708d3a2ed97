use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, Result, reference_dir, weights};

/// One tensor of a described model.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TensorDescription {
    /// Its name in the Hugging Face layout (`model.language_model.layers.0...`).
    pub name: String,
    /// Its shape; the values lie row-major.
    pub shape: Vec<usize>,
    /// The centre of its values.
    pub offset: f32,
    /// Half the width of its values' range.
    pub scale: f32,
    /// Whether no implementation reads it: keys and values of a KV-shared layer, which published
    /// checkpoints carry and newly saved ones do not.
    #[serde(default)]
    pub unused: bool,
}

impl TensorDescription {
    /// Its values in row-major order, `shape.iter().product()` of them.
    #[must_use]
    pub fn values(&self, seed: u64) -> Vec<f32> {
        let count = self.shape.iter().product();
        weights::generate(seed, &self.name, self.offset, self.scale)
            .take(count)
            .collect()
    }
}

/// A folder of `tests/reference/models`: everything of a checkpoint but the weights, and how to
/// make those.
#[derive(Clone, Debug)]
pub struct ModelDescription {
    folder: PathBuf,
    seed: u64,
    tensors: Vec<TensorDescription>,
}

#[derive(Deserialize)]
struct TensorsFile {
    seed: u64,
    tensors: Vec<TensorDescription>,
}

impl ModelDescription {
    /// The description of that name, such as `gemma4_e2b`.
    ///
    /// # Errors
    /// There is none of that name, or its `tensors.json` has another form.
    pub fn named(name: &str) -> Result<Self> {
        let folder = reference_dir().join("models").join(name);
        let path = folder.join("tensors.json");
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let file: TensorsFile = serde_json::from_str(&text).map_err(Error::json(&path))?;
        Ok(Self {
            folder,
            seed: file.seed,
            tensors: file.tensors,
        })
    }

    /// The folder with `config.json`, `tokenizer.json` and the rest.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The seed of all its tensors.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its tensors, sorted by name.
    #[must_use]
    pub fn tensors(&self) -> &[TensorDescription] {
        &self.tensors
    }
}
