//! Where the patches of a medium lie.

use mlx_rs::ops::concatenate;
use mlx_rs::{Array, Dtype};

use crate::Result;
use crate::nn::{Matrix, rotate_half};

/// Frames of rows and columns of patches. Patches go by windows of `merge` by `merge`, windows
/// by rows, and within a window by rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub frames: i32,
    pub rows: i32,
    pub columns: i32,
    pub merge: i32,
}

impl Grid {
    pub(super) fn patches(&self) -> i32 {
        self.frames * self.rows * self.columns
    }

    /// Row and column of each patch of one frame.
    fn places(&self) -> impl Iterator<Item = (i32, i32)> {
        let merge = self.merge;
        let (windows, across) = (self.rows / merge, self.columns / merge);
        (0..windows).flat_map(move |top| {
            (0..across).flat_map(move |left| {
                (0..merge).flat_map(move |row| {
                    (0..merge).map(move |column| (top * merge + row, left * merge + column))
                })
            })
        })
    }

    /// The learned embedding of each patch's place, `[patches, hidden]` in f32, from a table
    /// of `side` by `side` places that is stretched over the frame, corners on corners, and
    /// read between four of them.
    pub(super) fn interpolate(&self, table: &Matrix, side: i32) -> Result<Array> {
        let rows = taps(self.rows, side);
        let columns = taps(self.columns, side);
        let frame: Vec<_> = self.places().collect();
        let count = frame.len() as i32;
        let mut sum: Option<Array> = None;
        for corner in 0..4 {
            let tap = |(row, column): &(i32, i32)| {
                let (row, column) = (&rows[*row as usize], &columns[*column as usize]);
                let ((y, down), (x, right)) = (row[corner / 2], column[corner % 2]);
                (y * side + x, down * right)
            };
            let (places, shares): (Vec<i32>, Vec<f32>) = frame.iter().map(tap).unzip();
            let values = table
                .rows(&Array::from_slice(&places, &[count]))?
                .as_dtype(Dtype::Float32)?
                .multiply(Array::from_slice(&shares, &[count, 1]))?;
            sum = Some(match sum {
                Some(sum) => sum.add(values)?,
                None => values,
            });
        }
        let one = sum.unwrap_or_else(|| Array::from_f32(0.0));
        let frames = vec![one; self.frames as usize];
        Ok(concatenate(&frames, 0)?)
    }
}

/// For each of `count` places along a side: the two entries of the table that it lies between,
/// and their shares.
fn taps(count: i32, side: i32) -> Vec<[(i32, f32); 2]> {
    let steps = (count - 1).max(1) as f32;
    (0..count)
        .map(|place| {
            // Divided first, as MLX's linspace does.
            let at = place as f32 / steps * (side - 1) as f32;
            let low = (at.floor() as i32).min(side - 1);
            let share = at - low as f32;
            [(low, 1.0 - share), ((low + 1).min(side - 1), share)]
        })
        .collect()
}

/// The rotary embedding in two dimensions: frequencies of the first quarter of a head turn
/// with the row, of the second with the column, each with the one half a head further.
pub(super) struct Rotation {
    /// `[patches, 1, D]`, f32.
    cos: Array,
    sin: Array,
}

impl Rotation {
    pub(super) fn new(grid: &Grid, head_size: i32, base: f32) -> Result<Self> {
        let half = head_size / 2;
        // By MLX, so that its rounding is that of other programs on it.
        let exponents: Vec<f32> = (0..half / 2).map(|j| (2 * j) as f32).collect();
        let exponents =
            Array::from_slice(&exponents, &[half / 2]).divide(Array::from_f32(half as f32))?;
        let frequencies = Array::from_f32(base).power(&exponents)?.reciprocal()?;
        let frame: Vec<(i32, i32)> = grid.places().collect();
        let angles = |of: fn(&(i32, i32)) -> i32| -> Result<Array> {
            let places = frame.iter().map(of).map(|place| place as f32);
            let all: Vec<f32> = places.cycle().take(grid.patches() as usize).collect();
            let places = Array::from_slice(&all, &[grid.patches(), 1, 1]);
            Ok(places.multiply(&frequencies)?)
        };
        let (rows, columns) = (angles(|place| place.0)?, angles(|place| place.1)?);
        let both = concatenate(&[&rows, &columns, &rows, &columns], -1)?;
        Ok(Self {
            cos: both.cos()?,
            sin: both.sin()?,
        })
    }

    /// `x` is `[patches, heads, D]`; computed in f32, given in its type.
    pub(super) fn apply(&self, x: &Array) -> Result<Array> {
        let wide = x.as_dtype(Dtype::Float32)?;
        let turned = wide
            .multiply(&self.cos)?
            .add(rotate_half(&wide)?.multiply(&self.sin)?)?;
        Ok(turned.as_dtype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_go_by_windows() {
        let grid = Grid {
            frames: 1,
            rows: 4,
            columns: 6,
            merge: 2,
        };
        let places: Vec<_> = grid.places().collect();
        assert_eq!(places[..5], [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]);
        assert_eq!(places[12], (2, 0));
        assert_eq!(places.len(), 24);
    }

    #[test]
    fn corners_lie_on_corners() {
        let taps = taps(5, 9);
        assert_eq!(taps[0][0], (0, 1.0));
        assert_eq!(taps[1], [(2, 1.0), (3, 0.0)]);
        assert_eq!(taps[4], [(8, 1.0), (8, 0.0)]);
        let between = super::taps(4, 3);
        assert!((between[1][1].1 - 2.0 / 3.0).abs() < 1e-6);
        assert_eq!(super::taps(1, 3), [[(0, 1.0), (1, 0.0)]]);
    }
}
