//! Activation functions.

use mlx_rs::Array;
use mlx_rs::ops::tanh;

use super::scalar_like;
use crate::Result;

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`: the tanh form of GELU
/// (`gelu_pytorch_tanh`; Hendrycks and Gimpel 2016, equation in section 2).
///
/// Written out, since mlx-rs compiles its own, for which MLX's CPU build would need a C++
/// compiler at run time.
pub(crate) fn gelu_tanh(x: &Array) -> Result<Array> {
    let scalar = |value| scalar_like(value, x);
    let cube = x.multiply(x)?.multiply(x)?;
    let inner = x
        .add(cube.multiply(scalar(0.044_715)?)?)?
        .multiply(scalar((2.0 / std::f32::consts::PI).sqrt())?)?;
    Ok(x.multiply(scalar(0.5)?)?
        .multiply(tanh(&inner)?.add(scalar(1.0)?)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_pytorchs_values() {
        // torch.nn.functional.gelu(x, approximate="tanh"), torch 2.15.0.
        let x = Array::from_slice(&[-3.0f32, -1.0, -0.1, 0.0, 0.5, 2.0], &[6]);
        let expected = [
            -0.003_637_39,
            -0.158_808,
            -0.046_017_1,
            0.0,
            0.345_714,
            1.954_597_7,
        ];
        let found = gelu_tanh(&x).unwrap();
        for (found, expected) in found.as_slice::<f32>().iter().zip(expected) {
            assert!(
                (found - expected).abs() < 2e-6,
                "{found} against {expected}"
            );
        }
    }
}
