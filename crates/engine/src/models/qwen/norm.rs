//! The text decoder's norm.

use mlx_rs::fast::rms_norm;
use mlx_rs::{Array, Dtype};

use super::names::NormStorage;
use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x / sqrt(mean(x^2) + eps) * factor` over the last axis, whatever is stored of the factor.
#[derive(Debug)]
pub(super) struct Norm {
    factor: Array,
    eps: f32,
}

impl Norm {
    /// Takes `{path}.weight` of shape `[size]`.
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        size: i32,
        eps: f32,
        storage: NormStorage,
    ) -> Result<Self> {
        let name = format!("{path}.weight");
        let factor = match storage {
            NormStorage::Factor => weights.take(&name, &[size])?,
            // In f32: added in bf16, the one would cost most of the weight's digits.
            NormStorage::LessOne => weights
                .take_f32(&name, &[size])?
                .add(Array::from_f32(1.0))?,
        };
        Ok(Self { factor, eps })
    }

    /// The same shape and type as `x`.
    pub(super) fn forward(&self, x: &Array) -> Result<Array> {
        let normed = rms_norm(x, Some(&self.factor), self.eps)?;
        if normed.dtype() == x.dtype() || x.dtype() == Dtype::Float32 {
            return Ok(normed);
        }
        Ok(normed.as_dtype(x.dtype())?)
    }
}
