//! A checkpoint's tensors, by the names that the models use.
//!
//! Headers are read first, so that missing, unexpected and misshapen tensors are found
//! before anything is loaded. The data are then read tensor by tensor, and nothing is
//! held twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use mlx_rs::error::IoError;
use mlx_rs::{Array, Dtype};
use serde::Deserialize;

use super::container::{self, Entry};
use super::read_json;
use crate::{Error, Result};

/// The tensors of a checkpoint. A model takes those it needs, by canonical name; none is
/// read from disk before [`load`](Self::load).
#[derive(Debug)]
pub(crate) struct Weights {
    /// What is left, by canonical name.
    tensors: BTreeMap<String, Tensor>,
    /// What was taken, with its length in the file.
    taken: Vec<(Array, u64)>,
    missing: BTreeSet<String>,
    dtype: Option<Dtype>,
}

#[derive(Debug)]
struct Tensor {
    /// The name in the file.
    name: String,
    entry: Entry,
    array: Array,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Finds the tensors of a folder: those that `model.safetensors.index.json` lists, or
    /// else those of every `model*.safetensors`. `canonical` gives a tensor's name in the
    /// models, or nothing if the models have no use for it. Floats become `dtype`, or stay
    /// as they are stored.
    pub(crate) fn open(
        folder: &Path,
        dtype: Option<Dtype>,
        canonical: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for (path, listed) in files(folder)? {
            let entries = container::entries(&path)?;
            if let Some(name) = listed
                .iter()
                .flatten()
                .find(|&name| !entries.contains_key(name))
            {
                let fact = format!("the index says that it holds {name}, and it does not");
                return Err(Error::bad_file(&path, fact));
            }
            // Lazy: MLX reads a tensor when it is evaluated.
            let mut arrays = Array::load_safetensors(&path).map_err(|error| match error {
                IoError::Exception(exception) => Error::Mlx(exception),
                other => Error::bad_file(&path, other.to_string()),
            })?;
            for (name, entry) in entries {
                if listed
                    .as_ref()
                    .is_some_and(|listed| !listed.contains(&name))
                {
                    continue;
                }
                let Some(key) = canonical(&name) else {
                    continue;
                };
                let array = arrays.remove(&name).ok_or_else(|| {
                    Error::bad_file(&path, format!("MLX finds no tensor {name} in it"))
                })?;
                let tensor = Tensor { name, entry, array };
                if let Some(other) = tensors.insert(key, tensor) {
                    let fact = format!("tensor {} is in the checkpoint twice", other.name);
                    return Err(Error::bad_file(&path, fact));
                }
            }
        }
        Ok(Self {
            tensors,
            taken: Vec::new(),
            missing: BTreeSet::new(),
            dtype,
        })
    }

    /// Takes a tensor. One that is not there is remembered, and [`load`](Self::load) will
    /// list it; what this gives in its place is never read.
    ///
    /// # Errors
    /// [`Error::TensorShape`] and [`Error::TensorType`].
    pub(crate) fn take(&mut self, name: &str, shape: &[i32]) -> Result<Array> {
        let Some(Tensor { name, entry, array }) = self.tensors.remove(name) else {
            self.missing.insert(name.to_owned());
            return Ok(mlx_rs::ops::zeros::<f32>(shape)?);
        };
        if entry.shape != shape {
            let (expected, found) = (shape.to_vec(), entry.shape);
            return Err(Error::TensorShape {
                name,
                expected,
                found,
            });
        }
        if !matches!(entry.dtype.as_str(), "F32" | "F16" | "BF16") {
            return Err(Error::TensorType {
                name,
                dtype: entry.dtype,
            });
        }
        let array = match self.dtype {
            Some(dtype) => array.as_dtype(dtype)?,
            None => array,
        };
        self.taken.push((array.clone(), entry.bytes));
        Ok(array)
    }

    /// Reads what was taken. `progress` is told the bytes read so far and in all.
    ///
    /// # Errors
    /// [`Error::MissingTensors`] and [`Error::UnexpectedTensors`], before anything is read.
    pub(crate) fn load(self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        if !self.missing.is_empty() {
            return Err(Error::MissingTensors {
                names: self.missing.into_iter().collect(),
            });
        }
        if !self.tensors.is_empty() {
            let mut names: Vec<_> = self
                .tensors
                .into_values()
                .map(|tensor| tensor.name)
                .collect();
            names.sort();
            return Err(Error::UnexpectedTensors { names });
        }
        let total = self.taken.iter().map(|(_, bytes)| bytes).sum();
        let mut done = 0;
        for (array, bytes) in self.taken {
            array.eval()?;
            done += bytes;
            progress(done, total);
        }
        Ok(())
    }
}

/// The weight files, each with the names that the index says it holds, if there is one.
fn files(folder: &Path) -> Result<Vec<(PathBuf, Option<BTreeSet<String>>)>> {
    let index_path = folder.join("model.safetensors.index.json");
    if index_path.is_file() {
        let index: Index = read_json(&index_path)?;
        let mut by_file: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (name, file) in index.weight_map {
            if Path::new(&file)
                .file_name()
                .is_none_or(|plain| *plain != *file)
            {
                let fact = format!("{file:?} is not the name of a file beside it");
                return Err(Error::bad_file(&index_path, fact));
            }
            by_file.entry(file).or_default().insert(name);
        }
        let mut files: Vec<_> = by_file
            .into_iter()
            .map(|(file, names)| (folder.join(file), Some(names)))
            .collect();
        files.sort();
        return Ok(files);
    }
    let entries = fs::read_dir(folder).map_err(|source| Error::file(folder, source))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| Error::file(folder, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            files.push((path, None));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::bad_file(folder, "it holds no model*.safetensors"));
    }
    Ok(files)
}
