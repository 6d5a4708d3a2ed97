//! Analysis windows.

use std::f64::consts::{PI, TAU};

/// The periodic Hann window of transformers' `window_function`, as f32: `numpy.hanning(n + 1)`
/// without its last value, which numpy computes as `0.5 + 0.5 * cos(pi * m / n)` for odd `m`
/// from `-n`.
pub(crate) fn hann_numpy(length: usize) -> Vec<f32> {
    let n = length as f64;
    (0..length)
        .map(|i| {
            let m = 2.0 * i as f64 - n;
            (0.5 + 0.5 * (PI * m / n).cos()) as f32
        })
        .collect()
}

/// The Hann window of transformers' Gemma 3n extractor, whose angles are f32.
pub(crate) fn hann_f32(length: usize) -> Vec<f32> {
    (0..length)
        .map(|i| {
            let angle = TAU as f32 * i as f32 / length as f32;
            0.5 * (1.0 - f64::from(angle).cos() as f32)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hann_starts_at_zero_and_is_symmetric_about_its_middle() {
        for window in [hann_numpy(320), hann_f32(512)] {
            let n = window.len();
            assert!(window[0].abs() < f32::EPSILON);
            assert!((window[n / 2] - 1.0).abs() < f32::EPSILON);
            for i in 1..n / 2 {
                assert!((window[i] - window[n - i]).abs() < 1e-6, "{i} of {n}");
            }
        }
    }
}
