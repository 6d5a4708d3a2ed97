//! Linear layers.

use mlx_rs::Array;
use mlx_rs::ops::clip;

use super::{Lora, Matrix};
use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x W^T`, without bias.
#[derive(Debug)]
pub(crate) struct Linear {
    matrix: Matrix,
    adapter: Option<Lora>,
}

impl Linear {
    /// Takes `{path}.weight` of shape `[out, input]`, quantised or not.
    pub(crate) fn load(weights: &mut Weights, path: &str, input: i32, out: i32) -> Result<Self> {
        Ok(Self {
            matrix: Matrix::load(weights, path, &[out, input])?,
            adapter: Lora::load(weights, path, input, out)?,
        })
    }

    /// `[..., in]` to `[..., out]`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.matrix.multiply(x)?;
        match &self.adapter {
            Some(adapter) => adapter.add_to(&y, x),
            None => Ok(y),
        }
    }
}

/// A linear layer whose input and output are clamped: Gemma 4's towers, whose bounds were
/// recorded in training. Without bounds in the checkpoint, a plain one.
#[derive(Debug)]
pub(crate) struct ClippedLinear {
    linear: Linear,
    bounds: Option<Bounds>,
}

#[derive(Debug)]
struct Bounds {
    input: (Array, Array),
    output: (Array, Array),
}

impl ClippedLinear {
    /// Takes `{path}.linear.weight` of shape `[out, input]` and, if the configuration says
    /// that there are bounds, the scalars `{path}.input_min` and its like.
    pub(crate) fn load(
        weights: &mut Weights,
        path: &str,
        (input, out): (i32, i32),
        clipped: bool,
    ) -> Result<Self> {
        let linear = Linear::load(weights, &format!("{path}.linear"), input, out)?;
        // A bound of another type would widen what it clamps.
        let dtype = weights.working_dtype();
        let mut bound = |name: &str| -> Result<Array> {
            Ok(weights
                .take(&format!("{path}.{name}"), &[])?
                .as_dtype(dtype)?)
        };
        let bounds = if clipped {
            Some(Bounds {
                input: (bound("input_min")?, bound("input_max")?),
                output: (bound("output_min")?, bound("output_max")?),
            })
        } else {
            None
        };
        Ok(Self { linear, bounds })
    }

    /// `[..., in]` to `[..., out]`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        let Some(Bounds { input, output }) = &self.bounds else {
            return self.linear.forward(x);
        };
        let y = self.linear.forward(&clip(x, (&input.0, &input.1))?)?;
        Ok(clip(&y, (&output.0, &output.1))?)
    }
}
