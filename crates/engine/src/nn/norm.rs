//! Root mean square normalisation.

use mlx_rs::fast::rms_norm;
use mlx_rs::{Array, Dtype};

use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last axis, computed in f32 (Zhang and
/// Sennrich 2019; Gemma 4 uses the weight as it is, without Gemma 3's `1 +`).
#[derive(Debug)]
pub(crate) struct RmsNorm {
    /// Of the type of the input, or f32.
    weight: Option<Array>,
    eps: f32,
}

impl RmsNorm {
    /// Takes `{path}.weight` of shape `[size]`.
    pub(crate) fn load(weights: &mut Weights, path: &str, size: i32, eps: f32) -> Result<Self> {
        let weight = Some(weights.take(&format!("{path}.weight"), &[size])?);
        Ok(Self { weight, eps })
    }

    /// Takes `{path}.weight` of shape `[size]`, and multiplies by one plus it. The sum is
    /// f32, as transformers has it: rounded to bf16 it would lose half of the weight's digits.
    pub(crate) fn load_offset(
        weights: &mut Weights,
        path: &str,
        size: i32,
        eps: f32,
    ) -> Result<Self> {
        let stored = weights.take(&format!("{path}.weight"), &[size])?;
        let weight = stored.as_dtype(Dtype::Float32)?.add(Array::from_f32(1.0))?;
        Ok(Self {
            weight: Some(weight),
            eps,
        })
    }

    /// A norm that only normalises.
    pub(crate) fn without_weight(eps: f32) -> Self {
        Self { weight: None, eps }
    }

    /// The same shape and type as `x`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        let normal = rms_norm(x, self.weight.as_ref(), self.eps)?;
        Ok(if normal.dtype() == x.dtype() {
            normal
        } else {
            normal.as_dtype(x.dtype())?
        })
    }
}
