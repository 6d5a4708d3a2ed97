//! Linear layers with a bias.

use mlx_rs::Array;
use mlx_rs::ops::addmm;

use super::{Lora, Matrix};
use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x W^T + b`.
#[derive(Debug)]
pub(crate) struct BiasedLinear {
    matrix: Matrix,
    bias: Array,
    adapter: Option<Lora>,
}

impl BiasedLinear {
    /// Takes `{path}.weight` of shape `[out, input]`, quantised or not, and `{path}.bias`.
    pub(crate) fn load(weights: &mut Weights, path: &str, input: i32, out: i32) -> Result<Self> {
        Ok(Self {
            matrix: Matrix::load(weights, path, &[out, input])?,
            bias: weights.take(&format!("{path}.bias"), &[out])?,
            adapter: Lora::load(weights, path, input, out)?,
        })
    }

    /// `[..., in]` to `[..., out]`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        let y = match &self.matrix {
            Matrix::Plain { transposed } => addmm(&self.bias, x, transposed, None, None)?,
            Matrix::Quantized { .. } => self.matrix.multiply(x)?.add(&self.bias)?,
        };
        match &self.adapter {
            Some(adapter) => adapter.add_to(&y, x),
            None => Ok(y),
        }
    }
}
