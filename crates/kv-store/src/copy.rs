//! Copies between strided and packed memory.

use std::ops::Range;

use crate::{Layout, Runs};

/// Elements on each side of a tile: with two bytes each, a tile's row is a cache line.
const TILE: usize = 32;

/// Copies the bytes `range` of the row-major order from `data` to `out`.
pub(crate) fn gather(
    data: &[u8],
    layout: &Layout,
    item: usize,
    range: Range<usize>,
    out: &mut [u8],
) {
    let Some(tiles) = tiled(layout, item, &range) else {
        let mut rest = out;
        for run in Runs::of_range(layout, item, range) {
            let (head, tail) = rest.split_at_mut(run.len());
            head.copy_from_slice(&data[run]);
            rest = tail;
        }
        return;
    };
    match item {
        1 => tiles.each(|from, to| copy::<1>(data, from, out, to)),
        2 => tiles.each(|from, to| copy::<2>(data, from, out, to)),
        4 => tiles.each(|from, to| copy::<4>(data, from, out, to)),
        _ => tiles.each(|from, to| copy::<8>(data, from, out, to)),
    }
}

/// Copies all elements from row-major order to where `layout` puts them.
pub(crate) fn scatter(packed: &[u8], data: &mut [u8], layout: &Layout, item: usize) {
    let Some(tiles) = tiled(layout, item, &(0..packed.len())) else {
        let mut rest = packed;
        for run in Runs::new(layout, item) {
            let (head, tail) = rest.split_at(run.len());
            data[run].copy_from_slice(head);
            rest = tail;
        }
        return;
    };
    match item {
        1 => tiles.each(|to, from| copy::<1>(packed, from, data, to)),
        2 => tiles.each(|to, from| copy::<2>(packed, from, data, to)),
        4 => tiles.each(|to, from| copy::<4>(packed, from, data, to)),
        _ => tiles.each(|to, from| copy::<8>(packed, from, data, to)),
    }
}

#[inline]
fn copy<const N: usize>(from: &[u8], i: usize, to: &mut [u8], j: usize) {
    to[j..j + N].copy_from_slice(&from[i..i + N]);
}

/// The two innermost dimensions of a layout whose rows step element by element through memory,
/// while neighbouring rows lie close together: a transposed matrix, or a stack of them.
struct Tiles {
    layout: Layout,
    rows: usize,
    columns: usize,
    row_step: isize,
    column_step: isize,
    item: usize,
    elements: Range<usize>,
}

/// The tiles of a layout for which copying row by row would touch a cache line for each element.
fn tiled(layout: &Layout, item: usize, range: &Range<usize>) -> Option<Tiles> {
    let dims = layout.collapse();
    let [.., (rows, row_step), (columns, column_step)] = dims[..] else {
        return None;
    };
    let aligned = range.start.is_multiple_of(item) && range.end.is_multiple_of(item);
    (aligned && column_step.unsigned_abs() > row_step.unsigned_abs().max(1)).then(|| Tiles {
        layout: layout.clone(),
        rows,
        columns,
        row_step,
        column_step,
        item,
        elements: range.start / item..(range.end / item).min(layout.elements()),
    })
}

impl Tiles {
    /// Calls `f(strided byte, packed byte)` for every element of the range, tile by tile.
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        let first = self.elements.start;
        let mut at = first;
        while at < self.elements.end {
            let (row, column) = (at / self.columns, at % self.columns);
            let left = self.elements.end - at;
            // A partial row by itself; then whole rows up to the end of their matrix.
            let (height, width) = if column > 0 || left < self.columns {
                (1, (self.columns - column).min(left))
            } else {
                (
                    (self.rows - row % self.rows).min(left / self.columns),
                    self.columns,
                )
            };
            let Some(origin) = Runs::of_range(
                &self.layout,
                self.item,
                at * self.item..(at + 1) * self.item,
            )
            .next() else {
                return;
            };
            self.matrix(
                origin.start,
                (at - first) * self.item,
                height,
                width,
                &mut f,
            );
            at += height * width;
        }
    }

    #[inline]
    fn matrix(
        &self,
        strided: usize,
        packed: usize,
        height: usize,
        width: usize,
        f: &mut impl FnMut(usize, usize),
    ) {
        let item = self.item;
        let (row_step, column_step) = (
            self.row_step * item as isize,
            self.column_step * item as isize,
        );
        for top in (0..height).step_by(TILE) {
            for left in (0..width).step_by(TILE) {
                for row in top..(top + TILE).min(height) {
                    let mut from =
                        strided as isize + row as isize * row_step + left as isize * column_step;
                    let mut to = packed + (row * self.columns + left) * item;
                    for _ in left..(left + TILE).min(width) {
                        f(from as usize, to);
                        from += column_step;
                        to += item;
                    }
                }
            }
        }
    }
}
