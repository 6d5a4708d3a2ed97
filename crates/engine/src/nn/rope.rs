//! Rotary position embedding of text (Su et al. 2021), in the rotate-half pairing:
//! dimension `j` turns with `j + D/2`.

use mlx_rs::Array;
use mlx_rs::fast::rope;

use crate::Result;

/// The rotation of one kind of layer.
#[derive(Debug)]
pub(crate) struct Rope {
    dimensions: i32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Frequencies `base^(-2j/D)`.
    Default { base: f32 },
    /// Wavelengths given one by one.
    Given(Array),
}

impl Rope {
    /// All of `dimensions` turn.
    pub(crate) fn new(dimensions: i32, base: f32) -> Self {
        Self {
            dimensions,
            kind: Kind::Default { base },
        }
    }

    /// Only the first `fraction` of the pairs turn, at the frequencies that they have when
    /// all do, `base^(-2j/D)` with the whole head's `D`, divided by `factor` (transformers
    /// 5.24, `modeling_rope_utils.py`, "proportional").
    pub(crate) fn proportional(dimensions: i32, base: f32, fraction: f32, factor: f32) -> Self {
        let pairs = dimensions / 2;
        // int(fraction * D // 2), as Python computes it.
        let turning = (fraction * dimensions as f32 / 2.0).floor() as i32;
        let wavelengths: Vec<f32> = (0..pairs)
            .map(|pair| {
                if pair < turning {
                    let exponent = f64::from(2 * pair) / f64::from(dimensions);
                    (f64::from(base).powf(exponent) * f64::from(factor)) as f32
                } else {
                    f32::INFINITY
                }
            })
            .collect();
        Self {
            dimensions,
            kind: Kind::Given(Array::from_slice(&wavelengths, &[pairs])),
        }
    }

    /// Turns `[batch, heads, tokens, D]`, whose first token is at position `offset`.
    pub(crate) fn forward(&self, x: &Array, offset: i32) -> Result<Array> {
        Ok(match &self.kind {
            Kind::Default { base } => rope(x, self.dimensions, false, *base, 1.0, offset, None)?,
            Kind::Given(wavelengths) => {
                rope(x, self.dimensions, false, None, 1.0, offset, wavelengths)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x` turned by the definition, in f64.
    fn turned(x: &[f32], position: i32, frequencies: &[f64]) -> Vec<f64> {
        let half = x.len() / 2;
        let mut out = vec![0.0; x.len()];
        for (j, frequency) in frequencies.iter().enumerate() {
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (a, b) = (f64::from(x[j]), f64::from(x[j + half]));
            out[j] = a * cos - b * sin;
            out[j + half] = b * cos + a * sin;
        }
        out
    }

    fn check(rope: &Rope, frequencies: &[f64]) {
        let x: Vec<f32> = (0..16).map(|i| (i as f32 * 0.7).sin()).collect();
        for position in [0, 1, 77] {
            let array = Array::from_slice(&x, &[1, 1, 1, 16]);
            let found = rope.forward(&array, position).unwrap();
            let expected = turned(&x, position, frequencies);
            for (found, expected) in found.as_slice::<f32>().iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn default_turns_every_pair() {
        let frequencies: Vec<f64> = (0..8)
            .map(|j| 1e4f64.powf(-2.0 * f64::from(j) / 16.0))
            .collect();
        check(&Rope::new(16, 1e4), &frequencies);
    }

    #[test]
    fn proportional_turns_the_first_pairs_only() {
        let mut frequencies: Vec<f64> = (0..8)
            .map(|j| 1e6f64.powf(-2.0 * f64::from(j) / 16.0))
            .collect();
        frequencies[2..].fill(0.0);
        check(&Rope::proportional(16, 1e6, 0.25, 1.0), &frequencies);
        let slower: Vec<f64> = frequencies
            .iter()
            .map(|frequency| frequency / 8.0)
            .collect();
        check(&Rope::proportional(16, 1e6, 0.25, 8.0), &slower);
    }
}
