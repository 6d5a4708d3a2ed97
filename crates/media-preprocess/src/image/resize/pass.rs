//! One of the two passes over a whole image, in bands of output rows.

use super::coeffs::Coefficients;
use super::simd::{ColumnPass, RowPass};
use super::{ImageView, Resizer};

/// Below this much output a thread costs more than it saves.
const BYTES_PER_THREAD: usize = 64 * 1024;

/// A pass, with its weights.
pub(super) enum Pass {
    Horizontal(Coefficients),
    Vertical(Coefficients),
}

impl Pass {
    /// Resamples one axis of `source`.
    pub(super) fn run(&self, resizer: &Resizer, source: ImageView<'_>) -> Vec<u8> {
        let (row_len, channels) = (source.row_len(), source.channels);
        let threads = resizer.threads.get();
        match self {
            Self::Horizontal(coefficients) => {
                let pass = RowPass::new(coefficients, source.width, channels, resizer.instructions);
                let out_len = coefficients.len() * channels;
                in_bands(threads, out_len, source.height as usize, |first, out| {
                    pass.run(source.data, row_len, channels, first, out);
                })
            }
            Self::Vertical(coefficients) => {
                let pass = ColumnPass::new(coefficients, source.height, resizer.instructions);
                in_bands(threads, row_len, coefficients.len(), |first, out| {
                    pass.run(source.data, row_len, first, out);
                })
            }
        }
    }

    /// The shape that this pass gives `source`, over its output `data`.
    pub(super) fn output_view<'a>(&self, source: ImageView<'_>, data: &'a [u8]) -> ImageView<'a> {
        let ImageView {
            mut width,
            mut height,
            channels,
            ..
        } = source;
        match self {
            Self::Horizontal(coefficients) => width = coefficients.len() as u32,
            Self::Vertical(coefficients) => height = coefficients.len() as u32,
        }
        ImageView {
            width,
            height,
            channels,
            data,
        }
    }
}

/// Makes `rows` rows of `row_len` bytes by calling `fill` with the number of a first row and
/// the rows from there on, on as many threads as pay.
fn in_bands(
    threads: usize,
    row_len: usize,
    rows: usize,
    fill: impl Fn(usize, &mut [u8]) + Sync,
) -> Vec<u8> {
    let mut out = vec![0; row_len * rows];
    let threads = threads.min(out.len() / BYTES_PER_THREAD).clamp(1, rows);
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
