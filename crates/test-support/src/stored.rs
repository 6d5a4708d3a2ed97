use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use crate::{Error, Result};

/// One tensor of a safetensors file, in memory: for tests that store a checkpoint otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, row-major and little-endian.
    pub bytes: Vec<u8>,
}

impl StoredTensor {
    /// The tensors of a file, by name.
    ///
    /// # Errors
    /// The file can't be read, or is not a safetensors file.
    pub fn read_file(path: &Path) -> Result<Vec<Self>> {
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        let file = SafeTensors::deserialize(&bytes).map_err(Error::safetensors(path))?;
        let mut tensors: Vec<_> = file
            .tensors()
            .into_iter()
            .map(|(name, tensor)| Self {
                name,
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                bytes: tensor.data().to_vec(),
            })
            .collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tensors)
    }

    /// Writes a file of these tensors.
    ///
    /// # Errors
    /// A tensor's bytes do not fit its shape, or the file can't be written.
    pub fn write_file(tensors: &[Self], path: &Path) -> Result<()> {
        let views = tensors
            .iter()
            .map(|tensor| {
                TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes)
                    .map(|view| (&tensor.name, view))
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(Error::safetensors(path))?;
        safetensors::serialize_to_file(views, None, path).map_err(Error::safetensors(path))
    }

    /// Fused experts as mlx-community stores them: `experts.gate_up_proj`, whose first rows in
    /// each expert are the gate's, and `experts.down_proj` become the three stacks
    /// `experts.switch_glu.{gate,up,down}_proj.weight`. Others stay as they are.
    #[must_use]
    pub fn split_experts(self) -> Vec<Self> {
        if let Some(path) = self.name.strip_suffix("gate_up_proj") {
            let [experts, rows, columns] = self.shape[..] else {
                return vec![self];
            };
            let half = self.bytes.len() / experts / 2;
            let parts = ["gate_proj", "up_proj"].into_iter().enumerate();
            return parts
                .map(|(index, part)| Self {
                    name: format!("{path}switch_glu.{part}.weight"),
                    dtype: self.dtype,
                    shape: vec![experts, rows / 2, columns],
                    bytes: self
                        .bytes
                        .chunks(2 * half)
                        .flat_map(|expert| &expert[index * half..(index + 1) * half])
                        .copied()
                        .collect(),
                })
                .collect();
        }
        let renamed = self
            .name
            .strip_suffix("experts.down_proj")
            .map(|path| format!("{path}experts.switch_glu.down_proj.weight"));
        vec![Self {
            name: renamed.unwrap_or(self.name),
            ..self
        }]
    }
}
