//! A stored matrix, quantised or not.

use mlx_rs::ops::gather_mm;
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::{
    Backend, GatherIndices, Quantization, Quantized, dequantize, gather_qmm, quantized_matmul,
};

use crate::Result;
use crate::checkpoint::weights::Weights;

/// A matrix `[out, in]`, or a stack of them `[count, out, in]`.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// `[..., in, out]`: a view of what is stored.
    Plain { transposed: Array },
    /// In groups along the last axis.
    Quantized {
        tensors: Quantized,
        quantization: Quantization,
        /// The type of dequantised rows.
        dtype: Dtype,
    },
}

impl Matrix {
    /// Takes `{path}.weight` of `shape`, or that and its `scales` and `biases`.
    pub(crate) fn load(weights: &mut Weights, path: &str, shape: &[i32]) -> Result<Self> {
        if let Some((tensors, quantization)) = weights.take_quantized(path, shape)? {
            // The affine mode's scales have a type of their own; the others' are bytes.
            let dtype = match &tensors.biases {
                Some(biases) => biases.dtype(),
                None => weights.working_dtype(),
            };
            return Ok(Self::Quantized {
                tensors,
                quantization,
                dtype,
            });
        }
        Self::plain(&weights.take(&format!("{path}.weight"), shape)?)
    }

    /// A matrix, or a stack, that is not quantised.
    pub(crate) fn plain(stored: &Array) -> Result<Self> {
        let transposed = stored.swap_axes(-1, -2)?;
        Ok(Self::Plain { transposed })
    }

    /// `x W^T`: `[..., in]` to `[..., out]`.
    pub(crate) fn multiply(&self, x: &Array) -> Result<Array> {
        match self {
            Self::Plain { transposed } => Ok(x.matmul(transposed)?),
            Self::Quantized {
                tensors,
                quantization,
                ..
            } => Ok(quantized_matmul(x, tensors, *quantization, true)?),
        }
    }

    /// The rows at `indices`: `[...]` to `[..., in]`.
    pub(crate) fn rows(&self, indices: &Array) -> Result<Array> {
        match self {
            Self::Plain { transposed } => {
                Ok(transposed.swap_axes(-1, -2)?.take_axis(indices, 0)?)
            }
            Self::Quantized {
                tensors,
                quantization,
                dtype,
            } => {
                let chosen = Quantized {
                    weight: tensors.weight.take_axis(indices, 0)?,
                    scales: tensors.scales.take_axis(indices, 0)?,
                    biases: match &tensors.biases {
                        Some(biases) => Some(biases.take_axis(indices, 0)?),
                        None => None,
                    },
                };
                Ok(dequantize(&chosen, *quantization, Some(*dtype))?)
            }
        }
    }

    /// `x` `[..., 1, in]` times the transposed matrix of the stack at each of `indices`:
    /// `[..., 1, out]`. The leading axes broadcast against those of `indices`.
    pub(crate) fn gather(&self, x: &Array, indices: &Array) -> Result<Array> {
        match self {
            Self::Plain { transposed } if needs_f32(x)? => {
                let wide = |x: &Array| x.as_dtype(Dtype::Float32);
                let product = gather_mm(wide(x)?, wide(transposed)?, None, indices, false)?;
                Ok(product.as_dtype(x.dtype())?)
            }
            Self::Plain { transposed } => Ok(gather_mm(x, transposed, None, indices, false)?),
            Self::Quantized {
                tensors,
                quantization,
                ..
            } => {
                let right = GatherIndices {
                    right: Some(indices),
                    ..GatherIndices::default()
                };
                Ok(gather_qmm(x, tensors, *quantization, right, true)?)
            }
        }
    }
}

/// MLX's CPU back end gathers products of f32 only.
fn needs_f32(x: &Array) -> Result<bool> {
    Ok(x.dtype() != Dtype::Float32 && Backend::current()? == Backend::Cpu)
}
