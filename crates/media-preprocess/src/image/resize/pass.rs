//! The passes over a whole image, in bands of output rows for threads, and in strips of a band
//! so that what lies between the passes stays in cache.

use super::coeffs::Coefficients;
use super::simd::{ColumnPass, RowPass};
use super::{ImageView, Resizer};

/// Below this much output a thread costs more than it saves.
const BYTES_PER_THREAD: usize = 64 * 1024;

/// About as much as is held between the passes by each thread.
const STRIP_BYTES: usize = 256 * 1024;

/// Room that lets vector loads run past the last row of a strip.
const SLACK: usize = 16;

/// Resamples rows only.
pub(super) fn horizontal(
    resizer: &Resizer,
    source: ImageView<'_>,
    coefficients: &Coefficients,
) -> Vec<u8> {
    let channels = source.channels;
    let pass = RowPass::new(coefficients, source.width, channels, resizer.instructions);
    let out_len = coefficients.len() * channels;
    in_bands(resizer, out_len, source.height as usize, |first, out| {
        pass.run(source.data, source.row_len(), channels, first, out);
    })
}

/// Resamples columns only.
pub(super) fn vertical(
    resizer: &Resizer,
    source: ImageView<'_>,
    coefficients: &Coefficients,
) -> Vec<u8> {
    let pass = ColumnPass::new(coefficients, source.height, resizer.instructions);
    in_bands(
        resizer,
        source.row_len(),
        coefficients.len(),
        |first, out| {
            pass.run(source.data, source.row_len(), 0, first, out);
        },
    )
}

/// Resamples columns, then the rows of what comes out.
pub(super) fn vertical_first(
    resizer: &Resizer,
    source: ImageView<'_>,
    horizontal: &Coefficients,
    vertical: &Coefficients,
) -> Vec<u8> {
    let (channels, row_len) = (source.channels, source.row_len());
    let rows = RowPass::new(horizontal, source.width, channels, resizer.instructions);
    let columns = ColumnPass::new(vertical, source.height, resizer.instructions);
    let out_len = horizontal.len() * channels;
    // Rows are resampled four at a time.
    let strip = (STRIP_BYTES / row_len).next_multiple_of(4).max(4);
    in_bands(resizer, out_len, vertical.len(), |mut first, out| {
        let mut between = vec![0; strip.min(out.len() / out_len) * row_len + SLACK];
        for out in out.chunks_mut(strip * out_len) {
            let count = out.len() / out_len;
            columns.run(
                source.data,
                row_len,
                0,
                first,
                &mut between[..count * row_len],
            );
            rows.run(&between, row_len, channels, 0, out);
            first += count;
        }
    })
}

/// Resamples rows, then the columns of what comes out.
pub(super) fn horizontal_first(
    resizer: &Resizer,
    source: ImageView<'_>,
    horizontal: &Coefficients,
    vertical: &Coefficients,
) -> Vec<u8> {
    let (channels, row_len) = (source.channels, source.row_len());
    let rows = RowPass::new(horizontal, source.width, channels, resizer.instructions);
    let columns = ColumnPass::new(vertical, source.height, resizer.instructions);
    let out_len = horizontal.len() * channels;
    // As many output rows as the held source rows give.
    let held = (STRIP_BYTES / out_len).max(8);
    let strip = (held * vertical.len() / source.height as usize).max(1);
    in_bands(resizer, out_len, vertical.len(), |mut first, out| {
        // Resampled rows, the first of which is row `base` of the source.
        let (mut between, mut base) = (Vec::new(), 0);
        for out in out.chunks_mut(strip * out_len) {
            let count = out.len() / out_len;
            // Windows start and end in ascending order.
            let start = vertical.taps(first).0;
            let (last, taps) = vertical.taps(first + count - 1);
            let end = last + taps.len();
            // What the last strip has made and this one needs stays.
            let made = base + between.len() / out_len;
            between.drain(..(start.min(made) - base) * out_len);
            base = start;
            let kept = between.len();
            between.resize((end - start) * out_len, 0);
            let next = start + kept / out_len;
            rows.run(source.data, row_len, channels, next, &mut between[kept..]);
            columns.run(&between, out_len, base, first, out);
            first += count;
        }
    })
}

/// Makes `rows` rows of `row_len` bytes by calling `fill` with the number of a first row and
/// the rows from there on, on as many threads as pay.
fn in_bands(
    resizer: &Resizer,
    row_len: usize,
    rows: usize,
    fill: impl Fn(usize, &mut [u8]) + Sync,
) -> Vec<u8> {
    let mut out = vec![0; row_len * rows];
    let threads = resizer
        .threads
        .get()
        .min(out.len() / BYTES_PER_THREAD)
        .clamp(1, rows);
    if threads == 1 {
        fill(0, &mut out);
        return out;
    }
    let band = rows.div_ceil(threads);
    std::thread::scope(|scope| {
        for (i, out) in out.chunks_mut(band * row_len).enumerate() {
            let fill = &fill;
            scope.spawn(move || fill(i * band, out));
        }
    });
    out
}
