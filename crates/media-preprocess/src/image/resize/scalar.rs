//! The two passes in plain Rust: the reference that every other path must equal.

use super::coeffs::{Coefficients, PRECISION_BITS};

/// One half, so that the shift rounds.
const HALF: i32 = 1 << (PRECISION_BITS - 1);

fn clip(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

/// Resamples each row of `source` into a row of `out`.
pub(super) fn horizontal(
    source: &[u8],
    row_len: usize,
    channels: usize,
    coefficients: &Coefficients,
    out: &mut [u8],
) {
    let run = match channels {
        1 => horizontal_channels::<1>,
        3 => horizontal_channels::<3>,
        _ => horizontal_channels::<4>,
    };
    run(source, row_len, coefficients, out);
}

fn horizontal_channels<const C: usize>(
    source: &[u8],
    row_len: usize,
    coefficients: &Coefficients,
    out: &mut [u8],
) {
    let out_len = coefficients.len() * C;
    for (row, out) in source
        .chunks_exact(row_len)
        .zip(out.chunks_exact_mut(out_len))
    {
        for (i, pixel) in out.chunks_exact_mut(C).enumerate() {
            let (start, weights) = coefficients.taps(i);
            let mut sums = [HALF; C];
            for (source, &weight) in row[start * C..].chunks_exact(C).zip(weights) {
                for (sum, &value) in sums.iter_mut().zip(source) {
                    *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
                }
            }
            for (byte, sum) in pixel.iter_mut().zip(sums) {
                *byte = clip(sum);
            }
        }
    }
}

/// Resamples the columns of `source` into the rows of `out`, the first of which is output
/// row `first`.
pub(super) fn vertical(
    source: &[u8],
    row_len: usize,
    first: usize,
    coefficients: &Coefficients,
    out: &mut [u8],
) {
    let mut sums = vec![HALF; row_len];
    for (i, out) in out.chunks_exact_mut(row_len).enumerate() {
        let (start, weights) = coefficients.taps(first + i);
        sums.fill(HALF);
        for (row, &weight) in source[start * row_len..].chunks_exact(row_len).zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
            }
        }
        for (byte, &sum) in out.iter_mut().zip(&sums) {
            *byte = clip(sum);
        }
    }
}
