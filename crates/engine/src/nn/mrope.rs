//! Rotary position embedding in three dimensions (Qwen2-VL's M-RoPE, in Qwen3-VL's
//! interleaved form): each frequency turns with a token's time, row or column.

use mlx_rs::ops::concatenate;
use mlx_rs::{Array, Dtype};

use super::{Rope, Rotation};
use crate::Result;
use crate::models::Positions;

/// The rotation of a decoder's layers, which all have the same.
#[derive(Debug)]
pub(crate) struct Mrope {
    /// Dimensions of a head that turn: the first ones.
    dimensions: i32,
    /// `[dimensions / 2]`, f32: `base^(2j/dimensions)`.
    wavelengths: Array,
    /// Positions that are the same on every axis.
    plain: Rope,
    /// Of each frequency, the axis whose position it turns with.
    axes: Array,
}

impl Mrope {
    /// `sections` are the frequencies of time, row and column. Frequency `j` turns with the
    /// row if `j % 3 == 1` and `j < 3 sections[1]`, with the column if `j % 3 == 2` and
    /// `j < 3 sections[2]`, with time otherwise (transformers 5.24, `modeling_qwen3_vl.py`,
    /// `recomposition_frequencies`).
    pub(crate) fn new(dimensions: i32, base: f32, sections: [i32; 3]) -> Result<Self> {
        let pairs = dimensions / 2;
        let axes: Vec<i32> = (0..pairs)
            .map(|j| match j % 3 {
                axis @ (1 | 2) if j < 3 * sections[axis as usize] => axis,
                _ => 0,
            })
            .collect();
        // By MLX, so that its rounding is that of other programs on it.
        let exponents: Vec<f32> = (0..pairs).map(|j| (2 * j) as f32).collect();
        let exponents =
            Array::from_slice(&exponents, &[pairs]).divide(Array::from_f32(dimensions as f32))?;
        let wavelengths = Array::from_f32(base).power(&exponents)?;
        wavelengths.eval()?;
        Ok(Self {
            dimensions,
            plain: Rope::given(dimensions, wavelengths.clone()),
            wavelengths,
            axes: Array::from_slice(&axes, &[pairs]),
        })
    }

    /// What turns the heads of `tokens` tokens at `positions`, in every layer.
    pub(crate) fn at(
        &self,
        positions: &Positions,
        tokens: i32,
        dtype: Dtype,
    ) -> Result<Rotation<'_>> {
        let positions = match positions {
            Positions::From(first) => return self.plain.at(*first, tokens, dtype),
            Positions::Each(positions) => positions,
        };
        // [tokens, pairs]: the position that counts for each frequency.
        let chosen = positions
            .as_dtype(Dtype::Float32)?
            .take_axis(&self.axes, 0)?
            .swap_axes(0, 1)?;
        let angles = chosen.multiply(self.wavelengths.reciprocal()?)?;
        let both = concatenate(&[&angles, &angles], -1)?;
        Ok(Rotation::Table {
            dimensions: self.dimensions,
            cos: both.cos()?.as_dtype(dtype)?,
            sin: both.sin()?.as_dtype(dtype)?,
        })
    }
}

/// `[a, b]` to `[-b, a]`, halves of the last axis.
pub(crate) fn rotate_half(x: &Array) -> Result<Array> {
    let halves = x.split_equal(2, -1)?;
    Ok(concatenate(&[&halves[1].negative()?, &halves[0]], -1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(tokens: i32, size: i32) -> Array {
        let values: Vec<f32> = (0..2 * tokens * size)
            .map(|i| (i as f32 * 0.7).sin())
            .collect();
        Array::from_slice(&values, &[1, 2, tokens, size])
    }

    #[test]
    fn frequencies_are_dealt_in_turn() {
        let mrope = Mrope::new(128, 5e6, [24, 20, 20]).unwrap();
        let axes = mrope.axes.as_slice::<i32>();
        for (j, &axis) in axes.iter().enumerate() {
            assert_eq!(axis as usize, if j < 60 { j % 3 } else { 0 }, "{j}");
        }
        let mrope = Mrope::new(64, 1e7, [11, 11, 10]).unwrap();
        assert_eq!(mrope.axes.as_slice::<i32>()[29..], [2, 0, 1]);
    }

    /// Equal positions on every axis turn like plain ones, bit for bit on the CPU, where
    /// MLX has no kernel of its own for either.
    #[test]
    fn a_table_of_consecutive_positions_is_the_plain_rotation() {
        let mrope = Mrope::new(16, 250.0, [3, 3, 2]).unwrap();
        let x = heads(5, 24);
        let plain = mrope.at(&Positions::From(7), 5, Dtype::Float32).unwrap();
        let ids: Vec<i32> = (7..12).cycle().take(15).collect();
        let each = Positions::Each(Array::from_slice(&ids, &[3, 5]));
        let table = mrope.at(&each, 5, Dtype::Float32).unwrap();
        let (plain, table) = (plain.apply(&x).unwrap(), table.apply(&x).unwrap());
        for (a, b) in plain
            .as_slice::<f32>()
            .iter()
            .zip(table.contiguous().unwrap().as_slice::<f32>())
        {
            assert!((a - b).abs() < 1e-6, "{a} and {b}");
        }
    }

    #[test]
    fn each_axis_turns_its_own_frequencies() {
        let mrope = Mrope::new(16, 250.0, [3, 3, 2]).unwrap();
        let x = heads(1, 16);
        let ids = Positions::Each(Array::from_slice(&[3, 11, 29], &[3, 1]));
        let turned = mrope
            .at(&ids, 1, Dtype::Float32)
            .unwrap()
            .apply(&x)
            .unwrap();
        let (x, turned) = (x.as_slice::<f32>(), turned.as_slice::<f32>());
        for j in 0..8usize {
            let position = match j {
                1 | 4 | 7 => 11.0,
                2 | 5 => 29.0,
                _ => 3.0,
            };
            let angle: f64 = position * 250f64.powf(-(j as f64) / 8.0);
            let (a, b) = (f64::from(x[j]), f64::from(x[j + 8]));
            let expected = a * angle.cos() - b * angle.sin();
            assert!((f64::from(turned[j]) - expected).abs() < 1e-5, "{j}");
        }
    }
}
