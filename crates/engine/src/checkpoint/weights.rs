//! A checkpoint's tensors, by the names that the models use.
//!
//! Headers are read first, so that missing, unexpected and misshapen tensors are found
//! before anything is loaded. The data are then read tensor by tensor, and nothing is
//! held twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mlx_rs::error::IoError;
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::{Quantization, Quantized};
use serde::Deserialize;

use super::adapter::AdapterTensors;
use super::container::{self, Entry};
use super::{Checkpoint, read_json};
use crate::{Error, Result};

/// The tensors of a checkpoint. A model takes those it needs, by canonical name; none is
/// read from disk before [`load`](Self::load).
#[derive(Debug)]
pub(crate) struct Weights {
    /// What is left, by canonical name.
    tensors: BTreeMap<String, Tensor>,
    taken: Vec<Taken>,
    missing: BTreeSet<String>,
    /// Matrices that were taken, where they are only to be known.
    recorded: Option<Recorder>,
    /// What an adapter adds, by canonical path; what is left.
    adapter: BTreeMap<String, AdapterTensors>,
    dtype: Option<Dtype>,
}

/// A matrix that a model takes from a checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct StoredMatrix {
    /// The name in the file.
    pub name: String,
    pub is_quantised: bool,
    /// Whether it is stored `[..., in, out]` rather than `[..., out, in]`.
    pub is_turned: bool,
}

/// Where the matrices of a model are noted while it is loaded without its data.
pub(crate) type Recorder = Arc<Mutex<Vec<StoredMatrix>>>;

/// A tensor that a model took.
#[derive(Debug)]
struct Taken {
    /// The name in the file.
    name: String,
    array: Array,
    /// Its length in the file.
    bytes: u64,
    is_float: bool,
}

#[derive(Debug)]
struct Tensor {
    /// The name in the file.
    name: String,
    entry: Entry,
    array: Array,
}

impl Tensor {
    fn is_float(&self) -> bool {
        self.float_dtype().is_some()
    }

    fn float_dtype(&self) -> Option<Dtype> {
        match self.entry.dtype.as_str() {
            "F32" => Some(Dtype::Float32),
            "F16" => Some(Dtype::Float16),
            "BF16" => Some(Dtype::Bfloat16),
            _ => None,
        }
    }
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
        checkpoint: &Checkpoint,
        dtype: Option<Dtype>,
        canonical: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let folder = checkpoint.folder();
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
                IoError::Exception(exception) => Error::bad_file(&path, exception.what()),
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
            recorded: checkpoint.recorder.clone(),
            adapter: match &checkpoint.adapter {
                Some(adapter) => adapter.tensors(&canonical)?,
                None => BTreeMap::new(),
            },
            dtype,
        })
    }

    /// Whether there is a tensor of that name, not taken yet.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The name in the file, and the shape, of a tensor not taken yet.
    pub(crate) fn stored(&self, name: &str) -> Option<(&str, &[i32])> {
        let tensor = self.tensors.get(name)?;
        Some((&tensor.name, &tensor.entry.shape))
    }

    /// [`take`](Self::take), in f32 whatever the working type is.
    pub(crate) fn take_f32(&mut self, name: &str, shape: &[i32]) -> Result<Array> {
        self.in_dtype(Dtype::Float32, |weights| weights.take(name, shape))
    }

    /// Takes a tensor of floats. One that is not there is remembered, and
    /// [`load`](Self::load) will list it; what this gives in its place is never read.
    ///
    /// # Errors
    /// [`Error::TensorShape`] and [`Error::TensorType`].
    pub(crate) fn take(&mut self, name: &str, shape: &[i32]) -> Result<Array> {
        let Some(tensor) = self.tensors.remove(name) else {
            self.missing.insert(name.to_owned());
            return Ok(mlx_rs::ops::zeros::<f32>(shape)?);
        };
        if tensor.entry.shape != shape {
            return Err(Error::TensorShape {
                name: tensor.name,
                expected: shape.to_vec(),
                found: tensor.entry.shape,
            });
        }
        if !tensor.is_float() {
            return Err(Error::TensorType {
                name: tensor.name,
                dtype: tensor.entry.dtype,
            });
        }
        self.keep(tensor)
    }

    /// Takes a quantised matrix of `shape` `[..., out, in]`, if `{path}.scales` says that it
    /// is one. The shapes and types of its tensors say how it is quantised; settings in
    /// `config.json` could only repeat or contradict them.
    ///
    /// # Errors
    /// [`Error::Quantized`] if the tensors do not fit.
    pub(crate) fn take_quantized(
        &mut self,
        path: &str,
        shape: &[i32],
    ) -> Result<Option<(Quantized, Quantization)>> {
        let scales = self.tensors.remove(&format!("{path}.scales"));
        self.record(&format!("{path}.weight"), scales.is_some(), false);
        let Some(scales) = scales else {
            return Ok(None);
        };
        let biases = self.tensors.remove(&format!("{path}.biases"));
        let Some(weight) = self.tensors.remove(&format!("{path}.weight")) else {
            self.missing.insert(format!("{path}.weight"));
            return Ok(None);
        };
        let stored_path = weight.name.trim_end_matches(".weight").to_owned();
        let quantization = quantization_of(&weight.entry, &scales, biases.as_ref(), shape)
            .map_err(|fact| Error::Quantized {
                path: stored_path,
                fact,
            })?;
        let quantized = Quantized {
            weight: self.keep(weight)?,
            scales: self.keep(scales)?,
            biases: biases.map(|biases| self.keep(biases)).transpose()?,
        };
        Ok(Some((quantized, quantization)))
    }

    /// Notes that a tensor is a stack of matrices, if that is to be known: fused experts.
    pub(crate) fn record_stack(&self, name: &str, is_turned: bool) {
        self.record(name, false, is_turned);
    }

    /// Notes that a tensor is a matrix.
    fn record(&self, name: &str, is_quantised: bool, is_turned: bool) {
        let (Some(recorded), Some(tensor)) = (&self.recorded, self.tensors.get(name)) else {
            return;
        };
        let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.push(StoredMatrix {
            name: tensor.name.clone(),
            is_quantised,
            is_turned,
        });
    }

    /// Takes what an adapter adds to a matrix `[out, input]`, if it does.
    ///
    /// # Errors
    /// [`Error::TensorShape`].
    pub(crate) fn take_adapter(
        &mut self,
        path: &str,
        input: i32,
        out: i32,
    ) -> Result<Option<AdapterTensors>> {
        let Some(found) = self.adapter.remove(path) else {
            return Ok(None);
        };
        let (a, b) = (found.a.shape(), found.b.shape());
        if a[0] != input || b[1] != out || a[1] != b[0] {
            return Err(Error::TensorShape {
                name: format!("{} of the adapter", found.module),
                expected: vec![out, input],
                found: vec![b[1], a[0]],
            });
        }
        let dtype = self.working_dtype();
        Ok(Some(AdapterTensors {
            a: found.a.as_dtype(dtype)?,
            b: found.b.as_dtype(dtype)?,
            ..found
        }))
    }

    /// The working type: the one asked for, or else that of the floats that are left.
    pub(crate) fn working_dtype(&self) -> Dtype {
        let stored = || self.tensors.values().find_map(Tensor::float_dtype);
        self.dtype.or_else(stored).unwrap_or(Dtype::Float32)
    }

    /// Does `load` with another working type, to which what it takes is brought.
    pub(crate) fn in_dtype<T>(
        &mut self,
        dtype: Dtype,
        load: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.dtype.replace(dtype);
        let loaded = load(self);
        self.dtype = outer;
        loaded
    }

    /// Notes a tensor for loading; floats are brought to the working type.
    fn keep(&mut self, tensor: Tensor) -> Result<Array> {
        let is_float = tensor.is_float();
        let array = match self.dtype {
            Some(dtype) if is_float => tensor.array.as_dtype(dtype)?,
            _ => tensor.array,
        };
        self.taken.push(Taken {
            name: tensor.name,
            array: array.clone(),
            bytes: tensor.entry.bytes,
            is_float,
        });
        Ok(array)
    }

    /// Reads what was taken. `progress` is told the bytes read so far and in all.
    ///
    /// # Errors
    /// [`Error::MissingTensors`] and [`Error::UnexpectedTensors`], before anything is read;
    /// [`Error::NotANumber`].
    pub(crate) fn load(self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        if !self.missing.is_empty() {
            return Err(Error::MissingTensors {
                names: self.missing.into_iter().collect(),
            });
        }
        if !self.tensors.is_empty() || !self.adapter.is_empty() {
            let modules = self.adapter.into_values();
            let of_adapter = modules.map(|found| format!("{} of the adapter", found.module));
            let tensors = self.tensors.into_values().map(|tensor| tensor.name);
            let mut names: Vec<_> = tensors.chain(of_adapter).collect();
            names.sort();
            return Err(Error::UnexpectedTensors { names });
        }
        if self.recorded.is_some() {
            return Ok(());
        }
        let total = self.taken.iter().map(|taken| taken.bytes).sum();
        let mut done = 0;
        for taken in self.taken {
            taken.array.eval()?;
            if taken.is_float && has_nan(&taken.array)? {
                return Err(Error::NotANumber { name: taken.name });
            }
            done += taken.bytes;
            progress(done, total);
        }
        Ok(())
    }
}

/// Whether any value is NaN: MLX's maximum then is.
fn has_nan(array: &Array) -> Result<bool> {
    if array.size() == 0 {
        return Ok(false);
    }
    let largest = mlx_rs::ops::max(array, false)?.as_dtype(Dtype::Float32)?;
    let largest = largest
        .try_item_exact::<f32>()
        .map_err(|error| Error::Conversion(error.to_string()))?;
    Ok(largest.is_nan())
}

/// The bytes that a folder's tensors take in memory, floats in `dtype` if one is given.
pub(crate) fn memory_bytes(folder: &Path, dtype: Option<Dtype>) -> Result<usize> {
    let mut total = 0;
    for (path, _) in files(folder)? {
        for entry in container::entries(&path)?.into_values() {
            let stored = entry.bytes;
            let bytes = match (entry.dtype.as_str(), dtype) {
                ("F32", Some(Dtype::Bfloat16 | Dtype::Float16)) => stored / 2,
                ("F16" | "BF16", Some(Dtype::Float32)) => stored * 2,
                _ => stored,
            };
            total += usize::try_from(bytes).unwrap_or(usize::MAX / 2);
        }
    }
    Ok(total)
}

/// How a matrix of `shape` `[..., out, in]` is quantised, by its tensors: a u32 holds 32
/// bits of a row, and a scale stands for a group. Scales are floats in the affine mode only.
fn quantization_of(
    weight: &Entry,
    scales: &Tensor,
    biases: Option<&Tensor>,
    shape: &[i32],
) -> Result<Quantization, String> {
    let scale_entry = &scales.entry;
    let misfit = || {
        format!(
            "a matrix {shape:?} in tensors {} {:?} with scales {} {:?}",
            weight.dtype, weight.shape, scale_entry.dtype, scale_entry.shape
        )
    };
    let (Some((&input, rows)), Some((&words, word_rows)), Some((&groups, group_rows))) = (
        shape.split_last(),
        weight.shape.split_last(),
        scale_entry.shape.split_last(),
    ) else {
        return Err(misfit());
    };
    let fits = weight.dtype == "U32"
        && rows == word_rows
        && rows == group_rows
        && groups > 0
        && input % groups == 0
        && (i64::from(words) * 32) % i64::from(input) == 0;
    if !fits {
        return Err(misfit());
    }
    let group_size = input / groups;
    let bits = (i64::from(words) * 32 / i64::from(input)) as i32;
    let quantization = match (scale_entry.dtype.as_str(), group_size, bits) {
        ("U8", 32, 4) => Quantization::Mxfp4,
        ("U8", 32, 8) => Quantization::Mxfp8,
        ("U8", 16, 4) => Quantization::Nvfp4,
        _ if scales.is_float() => {
            Quantization::affine(group_size, bits).map_err(|error| error.to_string())?
        }
        _ => return Err(misfit()),
    };
    let biases_fit = match biases {
        Some(biases) => quantization.has_biases() && biases.entry == *scale_entry,
        None => !quantization.has_biases(),
    };
    if !biases_fit {
        let mode = quantization.mode();
        return Err(format!(
            "its biases do not fit the mode {mode} and its scales"
        ));
    }
    Ok(quantization)
}

/// The weight files, each with the names that the index says it holds, if there is one.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, Option<BTreeSet<String>>)>> {
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
