//! What rotary embeddings are given: an index, or three.

use super::Span;

/// The positions of a prompt's tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Positions {
    /// Each token's own index. On three axes: the index on each.
    #[default]
    Plain,
    /// Three a token.
    Mrope(Mrope),
}

impl Positions {
    /// The positions on the axes time, height, width of the token at `index`, which may lie
    /// beyond the prompt: what is generated continues from its end.
    #[must_use]
    pub fn at(&self, index: usize) -> [i64; 3] {
        match self {
            Self::Plain => [index as i64; 3],
            Self::Mrope(mrope) => mrope.ids.each_ref().map(|axis| {
                let stated = axis.get(index).map(|&position| i64::from(position));
                stated.unwrap_or(index as i64 + mrope.delta)
            }),
        }
    }

    /// What is added to an index beyond the prompt to get its position.
    #[must_use]
    pub fn delta(&self) -> i64 {
        match self {
            Self::Plain => 0,
            Self::Mrope(mrope) => mrope.delta,
        }
    }
}

/// Multimodal rotary positions, as transformers' `get_rope_index` makes them (5.24,
/// `modeling_qwen3_vl.py`, `modeling_qwen3_5.py`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mrope {
    /// `[3, L]`: time, height, width.
    pub ids: [Vec<i32>; 3],
    /// The largest position plus one, less `L`: a later token at index `i` has the position
    /// `i + delta` on all axes.
    pub delta: i64,
}

impl Mrope {
    /// The positions of `length` tokens with `spans` among them.
    ///
    /// A text token is one further than the one before it, on all axes. The token of frame
    /// `t`, row `h` and column `w` of a span's grid lies at `(t, h, w)` from the span's
    /// beginning; the text after it goes on beyond the grid's larger side.
    pub(crate) fn new(length: usize, spans: &[Span]) -> Self {
        let mut ids = [(); 3].map(|()| Vec::with_capacity(length));
        let text = |ids: &mut [Vec<i32>; 3], end: usize, next: i32| {
            let count = end - ids[0].len();
            for axis in ids {
                axis.extend((next..).take(count));
            }
            next + count as i32
        };
        let mut next = 0;
        for span in spans {
            next = text(&mut ids, span.start, next);
            let [frames, rows, columns] = span.grid.unwrap_or([1, 1, span.length]);
            for frame in 0..frames as i32 {
                for row in 0..rows as i32 {
                    ids[0].extend(std::iter::repeat_n(next + frame, columns));
                    ids[1].extend(std::iter::repeat_n(next + row, columns));
                    ids[2].extend((next..).take(columns));
                }
            }
            next += rows.max(columns) as i32;
        }
        text(&mut ids, length, next);
        let largest = ids.iter().flatten().max().copied().unwrap_or(-1);
        Self {
            delta: i64::from(largest) + 1 - length as i64,
            ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MediaKind;

    fn span(start: usize, grid: [usize; 3]) -> Span {
        Span {
            kind: MediaKind::Image,
            start,
            length: grid.iter().product(),
            medium: 0,
            offset: 0,
            digest: [0; 32],
            grid: Some(grid),
        }
    }

    #[test]
    fn text_goes_on_beyond_the_larger_side() {
        let mrope = Mrope::new(10, &[span(2, [1, 2, 3])]);
        assert_eq!(mrope.ids[0], [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]);
        assert_eq!(mrope.ids[1], [0, 1, 2, 2, 2, 3, 3, 3, 5, 6]);
        assert_eq!(mrope.ids[2], [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]);
        assert_eq!(mrope.delta, -3);
        let positions = Positions::Mrope(mrope);
        assert_eq!(positions.at(5), [2, 3, 2]);
        assert_eq!(positions.at(10), [7; 3]);
        assert_eq!(positions.delta(), -3);
    }

    #[test]
    fn plain_positions_are_indices() {
        assert_eq!(Positions::Plain.at(4), [4; 3]);
        assert_eq!(Mrope::new(0, &[]).delta, 0);
    }
}
