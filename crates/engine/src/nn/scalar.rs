//! Scalars that do not change an array's type.

use mlx_rs::{Array, Dtype};

use crate::Result;

/// `value` in the type of `array`. MLX would widen bf16 times an f32 scalar to f32; a
/// scalar rounded to bf16 is what Python's weak scalars and transformers use.
pub(crate) fn scalar_like(value: f32, array: &Array) -> Result<Array> {
    let scalar = Array::from_f32(value);
    Ok(if array.dtype() == Dtype::Float32 {
        scalar
    } else {
        scalar.as_dtype(array.dtype())?
    })
}
