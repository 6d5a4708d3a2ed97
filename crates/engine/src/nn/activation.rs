//! Activation functions.

use mlx_rs::Array;
use mlx_rs::ops::{erf, sigmoid, tanh};

use super::scalar_like;
use crate::Result;

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`: the tanh form of GELU
/// (`gelu_pytorch_tanh`; Hendrycks and Gimpel 2016, section 2), written as
/// `x sigmoid(x (a + b x^2))`, the same function in fewer operations.
///
/// mlx-rs's own widens bf16 to f32, and is compiled, for which MLX's CPU build would need a
/// C++ compiler at run time.
pub(crate) fn gelu_tanh(x: &Array) -> Result<Array> {
    // 1 + tanh(z) is 2 sigmoid(2 z).
    let a = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let b = 0.044_715 * a;
    let curve = x.square()?.multiply(scalar_like(b as f32, x)?)?;
    let inner = curve.add(scalar_like(a as f32, x)?)?.multiply(x)?;
    Ok(sigmoid(&inner)?.multiply(x)?)
}

/// The same function, operation by operation as its definition is written, and as mlx-vlm
/// computes it for Qwen's towers.
pub(crate) fn gelu_tanh_as_defined(x: &Array) -> Result<Array> {
    let scalar = |value: f32| scalar_like(value, x);
    let cube = x.power(scalar(3.0)?)?.multiply(scalar(0.044_715)?)?;
    let root = (2.0 / std::f64::consts::PI).sqrt() as f32;
    let curve = tanh(x.add(cube)?.multiply(scalar(root)?)?)?;
    Ok(x.multiply(scalar(0.5)?)?
        .multiply(curve.add(scalar(1.0)?)?)?)
}

/// `x Phi(x)`: the exact form of GELU (Hendrycks and Gimpel 2016, section 2), by the error
/// function.
pub(crate) fn gelu(x: &Array) -> Result<Array> {
    let root = scalar_like(std::f32::consts::SQRT_2, x)?;
    let curve = erf(x.divide(root)?)?.add(scalar_like(1.0, x)?)?;
    Ok(x.multiply(curve)?.divide(scalar_like(2.0, x)?)?)
}

/// `x sigmoid(x)` (Elfwing, Uchibe and Doya 2017).
pub(crate) fn silu(x: &Array) -> Result<Array> {
    Ok(x.multiply(sigmoid(x)?)?)
}

/// `a sigmoid(b)` of the halves of the last axis: the gated linear unit (Dauphin et al. 2016).
pub(crate) fn glu(x: &Array) -> Result<Array> {
    let halves = x.split_equal(2, -1)?;
    Ok(halves[0].multiply(sigmoid(&halves[1])?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_form_equals_pytorchs_values() {
        // torch.nn.functional.gelu(x), torch 2.15.0.
        let x = Array::from_slice(&[-3.0f32, -1.0, -0.1, 0.0, 0.5, 2.0], &[6]);
        let expected = [
            -0.004_050_225,
            -0.158_655_26,
            -0.046_017_22,
            0.0,
            0.345_731_23,
            1.954_499_7,
        ];
        let found = gelu(&x).unwrap();
        for (found, expected) in found.as_slice::<f32>().iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-6,
                "{found} against {expected}"
            );
        }
    }

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
        for form in [gelu_tanh, gelu_tanh_as_defined] {
            let found = form(&x).unwrap();
            for (found, expected) in found.as_slice::<f32>().iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 2e-6,
                    "{found} against {expected}"
                );
            }
        }
    }
}
