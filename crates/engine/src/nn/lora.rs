//! What an adapter adds to a linear layer.

use mlx_rs::Array;

use super::scalar_like;
use crate::Result;
use crate::checkpoint::weights::Weights;

/// `scale (x A) B`, of low rank (Hu et al. 2021).
#[derive(Debug)]
pub(crate) struct Lora {
    /// `[in, rank]`.
    a: Array,
    /// `[rank, out]`.
    b: Array,
    scale: f32,
}

impl Lora {
    /// What the adapter has for the layer at `path`, if there is an adapter and it has.
    pub(crate) fn load(
        weights: &mut Weights,
        path: &str,
        input: i32,
        out: i32,
    ) -> Result<Option<Self>> {
        let found = weights.take_adapter(path, input, out)?;
        Ok(found.map(|found| Self {
            a: found.a,
            b: found.b,
            scale: found.scale,
        }))
    }

    /// `y`, the layer's own output for `x`, and the adapter's.
    pub(crate) fn add_to(&self, y: &Array, x: &Array) -> Result<Array> {
        let change = x.matmul(&self.a)?.matmul(&self.b)?;
        let scaled = change.multiply(scalar_like(self.scale, &change)?)?;
        Ok(y.add(scaled.as_dtype(y.dtype())?)?)
    }
}
