//! Rotary position embedding of text (Su et al. 2021), in the rotate-half pairing:
//! dimension `j` turns with `j + D/2`.

use mlx_rs::fast::rope;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, ones_dtype, zeros_dtype};
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::Backend;

use super::rotate_half;
use crate::Result;

/// The rotation of one kind of layer.
#[derive(Debug)]
pub(crate) struct Rope {
    /// Dimensions of a head that turn: the first ones.
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

    /// The first `dimensions` turn with these wavelengths, `[dimensions / 2]` in f32.
    pub(crate) fn given(dimensions: i32, wavelengths: Array) -> Self {
        Self {
            dimensions,
            kind: Kind::Given(wavelengths),
        }
    }

    /// What turns `tokens` tokens, the first at position `first`, in every layer of the kind.
    pub(crate) fn at(&self, first: i32, tokens: i32, dtype: Dtype) -> Result<Rotation<'_>> {
        if Backend::current()? != Backend::Cpu {
            return Ok(Rotation::Consecutive { rope: self, first });
        }
        // There MLX has no kernel, and takes sines and cosines anew at every call. They are what
        // becomes of pairs (1, 0), and turn others to the same bits.
        let shape = [1, 1, tokens, self.dimensions / 2];
        let pairs = [ones_dtype(&shape, dtype)?, zeros_dtype(&shape, dtype)?];
        let turned = self.forward(&concatenate(&pairs, -1)?, first)?;
        let parts = turned.split_equal(2, -1)?;
        let both = |part: &Array| concatenate(&[part, part], -1);
        Ok(Rotation::Table {
            dimensions: self.dimensions,
            cos: both(&parts[0])?,
            sin: both(&parts[1])?,
        })
    }

    /// Turns `[batch, heads, tokens, D]`, whose first token is at position `offset`.
    fn forward(&self, x: &Array, offset: i32) -> Result<Array> {
        Ok(match &self.kind {
            Kind::Default { base } => rope(x, self.dimensions, false, *base, 1.0, offset, None)?,
            Kind::Given(wavelengths) => {
                rope(x, self.dimensions, false, None, 1.0, offset, wavelengths)?
            }
        })
    }
}

/// The rotation of the tokens of one forward call.
#[derive(Debug)]
pub(crate) enum Rotation<'r> {
    /// One after the other from `first`.
    Consecutive { rope: &'r Rope, first: i32 },
    /// Any positions; `[..., tokens, dimensions]` each.
    Table {
        dimensions: i32,
        cos: Array,
        sin: Array,
    },
}

impl Rotation<'_> {
    /// Turns the first dimensions of `[batch, heads, tokens, D]`, dimension `j` with
    /// `j + dimensions / 2`.
    pub(crate) fn apply(&self, x: &Array) -> Result<Array> {
        let (dimensions, cos, sin) = match self {
            Self::Consecutive { rope, first } => return rope.forward(x, *first),
            Self::Table {
                dimensions,
                cos,
                sin,
            } => (*dimensions, cos, sin),
        };
        let turning = x.try_index((.., .., .., 0..dimensions))?;
        let turned = turning
            .multiply(cos)?
            .add(rotate_half(&turning)?.multiply(sin)?)?;
        if dimensions == x.dim(3) {
            return Ok(turned);
        }
        Ok(concatenate(
            &[turned, x.try_index((.., .., .., dimensions..))?],
            -1,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all layers of a call share on the CPU gives the bits of MLX's own rotation.
    #[test]
    fn a_table_turns_as_the_operation_does() {
        let values: Vec<f32> = (0..144).map(|i| (i as f32 * 0.7).sin()).collect();
        for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
            let x = Array::from_slice(&values, &[1, 2, 3, 24]);
            let x = x.as_dtype(dtype).unwrap();
            for rope in [Rope::new(24, 1e4), Rope::new(16, 1e6), {
                Rope::proportional(24, 1e6, 0.25, 8.0)
            }] {
                let found = rope.at(77, 3, dtype).unwrap().apply(&x).unwrap();
                let expected = rope.forward(&x, 77).unwrap();
                assert!(found.eq_values(&expected).unwrap(), "{dtype:?} {rope:?}");
            }
        }
    }

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
