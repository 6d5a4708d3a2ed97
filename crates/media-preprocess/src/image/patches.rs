//! Cutting images into patches of f32.

use super::RgbImage;
use super::rescale::Table;

/// The order of patches, and of the values in one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatchOrder {
    /// Patches by rows; pixels by rows, channels last (Gemma). One frame.
    Rows,
    /// Patches by blocks of `merge * merge`, blocks by rows; channels first, then frames, then
    /// pixels by rows (Qwen).
    Merged {
        /// Patches along a block's side.
        merge: usize,
    },
}

/// Appends the patches of `frames`, all of one size, which is a multiple of `patch` (and of
/// `patch * merge`).
pub(crate) fn patchify(
    frames: &[&RgbImage],
    patch: usize,
    order: PatchOrder,
    table: &Table,
    out: &mut Vec<f32>,
) {
    let Some(first) = frames.first() else { return };
    let (columns, rows) = (
        first.width() as usize / patch,
        first.height() as usize / patch,
    );
    match order {
        PatchOrder::Rows => {
            for row in 0..rows {
                for column in 0..columns {
                    interleaved(first, patch, row, column, table, out);
                }
            }
        }
        PatchOrder::Merged { merge } => {
            for block in 0..(rows / merge) * (columns / merge) {
                let (top, left) = (block / (columns / merge), block % (columns / merge));
                for inner in 0..merge * merge {
                    let (row, column) = (top * merge + inner / merge, left * merge + inner % merge);
                    planar(frames, patch, row, column, table, out);
                }
            }
        }
    }
}

/// The pixels of one row of one patch.
fn patch_row(image: &RgbImage, patch: usize, y: usize, column: usize) -> &[[u8; 3]] {
    let at = (y * image.width() as usize + column * patch) * 3;
    image.data()[at..at + patch * 3].as_chunks().0
}

fn interleaved(
    image: &RgbImage,
    patch: usize,
    row: usize,
    column: usize,
    table: &Table,
    out: &mut Vec<f32>,
) {
    for y in row * patch..(row + 1) * patch {
        out.extend(
            patch_row(image, patch, y, column)
                .iter()
                .flat_map(|&[r, g, b]| {
                    [
                        table[0][usize::from(r)],
                        table[1][usize::from(g)],
                        table[2][usize::from(b)],
                    ]
                }),
        );
    }
}

fn planar(
    frames: &[&RgbImage],
    patch: usize,
    row: usize,
    column: usize,
    table: &Table,
    out: &mut Vec<f32>,
) {
    for (channel, table) in table.iter().enumerate() {
        for frame in frames {
            for y in row * patch..(row + 1) * patch {
                let pixels = patch_row(frame, patch, y, column);
                out.extend(
                    pixels
                        .iter()
                        .map(|pixel| table[usize::from(pixel[channel])]),
                );
            }
        }
    }
}
