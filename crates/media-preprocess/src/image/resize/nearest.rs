//! Pillow's nearest-neighbour resize.

use super::ImageView;

/// The source index of each output: the floor of a position that starts at half a step and
/// grows by repeated addition, whose rounding is part of the result (`ImagingScaleAffine`).
fn indices(input: u32, output: u32) -> Vec<usize> {
    let step = f64::from(input) / f64::from(output);
    let mut position = step * 0.5;
    let mut next = || {
        // Additions may carry the last position to the very end; Pillow leaves such an
        // output black, which whole images of valid size do not reach.
        let index = (position as usize).min(input as usize - 1);
        position += step;
        index
    };
    (0..output).map(|_| next()).collect()
}

pub(super) fn resize(source: ImageView<'_>, width: u32, height: u32) -> Vec<u8> {
    let channels = source.channels;
    let columns = indices(source.width, width);
    let mut out = Vec::with_capacity(width as usize * height as usize * channels);
    for y in indices(source.height, height) {
        let row = &source.data[y * source.row_len()..][..source.row_len()];
        for &x in &columns {
            out.extend_from_slice(&row[x * channels..][..channels]);
        }
    }
    out
}
