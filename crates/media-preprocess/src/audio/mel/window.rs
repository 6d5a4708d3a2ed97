//! Analysis windows.

use std::f64::consts::{PI, TAU};

/// The periodic Hann window of transformers' `window_function`: `numpy.hanning(n + 1)` without
/// its last value, which numpy computes as `0.5 + 0.5 * cos(pi * m / n)` for every second `m` from
/// `-n`.
pub(crate) fn hann_f64(length: usize) -> Vec<f64> {
    let n = length as f64;
    (0..length)
        .map(|i| 0.5 + 0.5 * (PI * (2.0 * i as f64 - n) / n).cos())
        .collect()
}

/// The same, stored as f32.
pub(crate) fn hann_numpy(length: usize) -> Vec<f32> {
    hann_f64(length).into_iter().map(|w| w as f32).collect()
}

/// The Hann window of transformers' Gemma 3n extractor, whose angles are f32.
pub(crate) fn hann_f32(length: usize) -> Vec<f32> {
    (0..length)
        .map(|i| {
            let angle = TAU as f32 * i as f32 / length as f32;
            0.5 * (1.0 - cosine(angle))
        })
        .collect()
}

/// `numpy.cos` of f32 for angles from 0 to a few turns, which is not rounded correctly everywhere:
/// a three-part reduction by quarter turns (Cody and Waite), then minimax polynomials for cosine
/// and sine, in fused steps. The constants are those of numpy's `loops_trigonometric`.
fn cosine(angle: f32) -> f32 {
    const QUARTERS: f32 = std::f32::consts::FRAC_2_PI;
    const REDUCTION: [f32; 3] = [
        -f32::from_bits(0x3fc9_0fd8),
        -f32::from_bits(0x34a8_885a),
        -f32::from_bits(0x27c2_34c4),
    ];
    // By falling powers of the angle's square; the constant terms are in the formulas.
    const COSINE: [f32; 3] = [
        f32::from_bits(0x37cc_730b),
        -f32::from_bits(0x3ab6_036e),
        f32::from_bits(0x3d2a_aa9e),
    ];
    const SINE: [f32; 4] = [
        f32::from_bits(0x363e_9dde),
        -f32::from_bits(0x3950_35dd),
        f32::from_bits(0x3c08_88cd),
        -f32::from_bits(0x3e2a_aaab),
    ];
    // The product is fused with its rounding, so that it isn't rounded before.
    let quarter = (f64::from(angle) * f64::from(QUARTERS)).round_ties_even() as f32;
    let x = REDUCTION
        .iter()
        .fold(angle, |x, &part| quarter.mul_add(part, x));
    let square = x * x;
    let series = |terms: &[f32]| {
        let (first, rest) = (terms[0], &terms[1..]);
        rest.iter()
            .fold(first, |sum, &term| sum.mul_add(square, term))
    };
    let quarter = quarter as i32;
    let value = if quarter % 2 == 0 {
        series(&COSINE).mul_add(square, -0.5).mul_add(square, 1.0)
    } else {
        (series(&SINE) * square).mul_add(x, x)
    };
    // The cosine is negated in the third and fourth quarter after the first half of one.
    if (quarter + 1) & 2 == 0 {
        value
    } else {
        -value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_is_the_cosine() {
        for i in 0..5000_u16 {
            let angle = f32::from(i) * 0.00126;
            let exact = f64::from(angle).cos();
            assert!((f64::from(cosine(angle)) - exact).abs() < 1.2e-7, "{angle}");
        }
    }

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
