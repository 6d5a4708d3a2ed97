//! Layer normalisation.

use mlx_rs::Array;
use mlx_rs::fast::layer_norm;

use crate::Result;
use crate::checkpoint::weights::Weights;

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last axis (Ba, Kiros and
/// Hinton 2016).
#[derive(Debug)]
pub(crate) struct LayerNorm {
    weight: Array,
    bias: Array,
    eps: f32,
}

impl LayerNorm {
    /// Takes `{path}.weight` and `{path}.bias` of shape `[size]`.
    pub(crate) fn load(weights: &mut Weights, path: &str, size: i32, eps: f32) -> Result<Self> {
        Ok(Self {
            weight: weights.take(&format!("{path}.weight"), &[size])?,
            bias: weights.take(&format!("{path}.bias"), &[size])?,
            eps,
        })
    }

    /// The same shape as `x`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        Ok(layer_norm(x, &self.weight, &self.bias, self.eps)?)
    }
}
