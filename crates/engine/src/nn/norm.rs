//! Root mean square normalisation.

use mlx_rs::Array;
use mlx_rs::fast::rms_norm;

use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last axis, computed in f32 (Zhang and
/// Sennrich 2019; Gemma 4 uses the weight as it is, without Gemma 3's `1 +`).
#[derive(Debug)]
pub(crate) struct RmsNorm {
    weight: Option<Array>,
    eps: f32,
}

impl RmsNorm {
    /// Takes `{path}.weight` of shape `[size]`.
    pub(crate) fn load(weights: &mut Weights, path: &str, size: i32, eps: f32) -> Result<Self> {
        let weight = Some(weights.take(&format!("{path}.weight"), &[size])?);
        Ok(Self { weight, eps })
    }

    /// A norm that only normalises.
    pub(crate) fn without_weight(eps: f32) -> Self {
        Self { weight: None, eps }
    }

    /// The same shape as `x`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        Ok(rms_norm(x, self.weight.as_ref(), self.eps)?)
    }
}
