//! Linear layers.

use mlx_rs::Array;
use mlx_rs::ops::clip;

use crate::Result;
use crate::checkpoint::weights::Weights;

/// `x W^T`, without bias.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `[in, out]`: a view of the stored `[out, in]`.
    transposed: Array,
}

impl Linear {
    /// Takes `{path}.weight` of shape `[out, input]`.
    pub(crate) fn load(weights: &mut Weights, path: &str, input: i32, out: i32) -> Result<Self> {
        let weight = weights.take(&format!("{path}.weight"), &[out, input])?;
        Ok(Self {
            transposed: weight.transpose()?,
        })
    }

    /// `[..., in]` to `[..., out]`.
    pub(crate) fn forward(&self, x: &Array) -> Result<Array> {
        Ok(x.matmul(&self.transposed)?)
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
        let mut bound = |name: &str| weights.take(&format!("{path}.{name}"), &[]);
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
