//! Weight files, written one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use crate::{Error, Result};

/// Bytes of tensors in one file, as the hub's tools have it.
const SHARD: u64 = 5_000_000_000;

/// A tensor to write.
pub(super) struct Stored {
    pub name: String,
    /// As safetensors writes it.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Row-major, little-endian.
    pub bytes: Vec<u8>,
}

/// The files written so far, and what the next will hold.
pub(super) struct Shards<'a> {
    folder: &'a Path,
    pending: Vec<Stored>,
    pending_bytes: u64,
    total: u64,
    /// The tensors of each file.
    written: Vec<Vec<String>>,
}

impl<'a> Shards<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            pending: Vec::new(),
            pending_bytes: 0,
            total: 0,
            written: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, tensor: Stored) -> Result<()> {
        let bytes = tensor.bytes.len() as u64;
        if self.pending_bytes > 0 && self.pending_bytes + bytes > SHARD {
            self.write()?;
        }
        self.pending_bytes += bytes;
        self.total += bytes;
        self.pending.push(tensor);
        Ok(())
    }

    /// Writes the rest and the index; gives the bytes of all tensors.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.write()?;
        let count = self.written.len();
        let mut weight_map = BTreeMap::new();
        for (index, names) in self.written.iter().enumerate() {
            let name = if count == 1 {
                "model.safetensors".to_owned()
            } else {
                format!("model-{:05}-of-{count:05}.safetensors", index + 1)
            };
            let (from, to) = (self.unnamed(index), self.folder.join(&name));
            fs::rename(&from, &to).map_err(|source| Error::file(&to, source))?;
            weight_map.extend(names.iter().map(|tensor| (tensor.clone(), name.clone())));
        }
        if count > 1 {
            let path = self.folder.join("model.safetensors.index.json");
            let index = json!({
                "metadata": { "total_size": self.total },
                "weight_map": weight_map,
            });
            let text = serde_json::to_string_pretty(&index)
                .map_err(|error| Error::bad_file(&path, error.to_string()))?;
            fs::write(&path, text + "\n").map_err(|source| Error::file(&path, source))?;
        }
        Ok(self.total)
    }

    /// The name of a file before it is known how many there are.
    fn unnamed(&self, index: usize) -> PathBuf {
        self.folder.join(format!("part-{index:05}.safetensors"))
    }

    fn write(&mut self) -> Result<()> {
        let path = self.unnamed(self.written.len());
        let failed =
            |error: safetensors::SafeTensorError| Error::bad_file(&path, error.to_string());
        let mut views = Vec::with_capacity(self.pending.len());
        for tensor in &self.pending {
            let dtype = dtype(&tensor.dtype).ok_or_else(|| {
                Error::bad_file(&path, format!("type {} of {}", tensor.dtype, tensor.name))
            })?;
            let view =
                TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes).map_err(failed)?;
            views.push((tensor.name.clone(), view));
        }
        // MLX's tools look for the format.
        let metadata = Some([("format".to_owned(), "mlx".to_owned())].into());
        safetensors::serialize_to_file(views, metadata, &path).map_err(failed)?;
        let names = self.pending.drain(..).map(|tensor| tensor.name).collect();
        self.written.push(names);
        self.pending_bytes = 0;
        Ok(())
    }
}

fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "BOOL" => Dtype::BOOL,
        "U8" => Dtype::U8,
        "I8" => Dtype::I8,
        "U16" => Dtype::U16,
        "I16" => Dtype::I16,
        "U32" => Dtype::U32,
        "I32" => Dtype::I32,
        "U64" => Dtype::U64,
        "I64" => Dtype::I64,
        "F16" => Dtype::F16,
        "BF16" => Dtype::BF16,
        "F32" => Dtype::F32,
        _ => return None,
    })
}
