//! Linear layers with a bias.

use mlx_rs::Array;
use mlx_rs::ops::addmm;

use super::Matrix;
use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x W^T + b`.
#[derive(Debug)]
pub(crate) struct BiasedLinear {
    matrix: Matrix,
    bias: Array,
}

impl BiasedLinear {
    /// Takes `{path}.weight` of shape `[out, input]`, quantised or not, and `{path}.bias`.
    pub(crate) fn load(weights: &mut Weights, path: &str, input: i32, out: i32) -> Result<Self> {
        Ok(Self {
            matrix: Matrix::load(weights, path, &[out, input])?,
            bias: weights.take(&format!("{path}.bias"), &[out])?,
        })
    }

    /// `[..., in]` to `[..., out]`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        match &self.matrix {
            Matrix::Plain { transposed } => Ok(addmm(&self.bias, x, transposed, None, None)?),
            Matrix::Quantized { .. } => Ok(self.matrix.multiply(x)?.add(&self.bias)?),
        }
    }
}
