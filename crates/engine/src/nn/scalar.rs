//! Scalars that do not change an array's type.

use half::{bf16, f16};
use mlx_rs::{Array, Dtype};

use crate::Result;

/// `value` in the type of `array`. MLX would widen bf16 times an f32 scalar to f32; a
/// scalar rounded to bf16 is what Python's weak scalars and transformers use.
///
/// It is rounded here rather than by MLX, for which every conversion is a kernel of its own.
pub(crate) fn scalar_like(value: f32, array: &Array) -> Result<Array> {
    Ok(match array.dtype() {
        Dtype::Float32 => Array::from_f32(value),
        Dtype::Bfloat16 => Array::from_slice(&[bf16::from_f32(value)], &[]),
        Dtype::Float16 => Array::from_slice(&[f16::from_f32(value)], &[]),
        other => Array::from_f32(value).as_dtype(other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_rounded_to_the_type_and_have_no_axes() {
        for (dtype, rounded) in [
            (Dtype::Float32, 39.191_837),
            (Dtype::Bfloat16, 39.25),
            (Dtype::Float16, 39.1875),
        ] {
            let like = mlx_rs::ops::zeros_dtype(&[2, 3], dtype).unwrap();
            let scalar = scalar_like(1536f32.sqrt(), &like).unwrap();
            assert_eq!((scalar.dtype(), scalar.ndim()), (dtype, 0));
            let value: f32 = scalar.as_dtype(Dtype::Float32).unwrap().item_exact();
            assert!((value - rounded).abs() < 1e-6, "{dtype:?}: {value}");
        }
    }
}
