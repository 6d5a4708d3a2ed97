//! Resampling weights in fixed point.

use super::{Backend, Filter};

/// Fractional bits of a weight: 32 bits of accumulator less 8 of pixel less 2 of headroom
/// for weights whose absolute values sum to more than 1 (`PRECISION_BITS` in Pillow's
/// `Resample.c`).
pub(super) const PRECISION_BITS: u32 = 32 - 8 - 2;

/// The weights of one axis: output `i` is the weighted sum of the source samples that
/// [`taps`](Self::taps) gives.
#[derive(Debug, Clone)]
pub(super) struct Coefficients {
    /// First source index and number of taps of each output.
    bounds: Vec<(u32, u32)>,
    /// `stride` weights an output, zero beyond its taps.
    weights: Vec<i32>,
    stride: usize,
}

impl Coefficients {
    /// The weights that take `input` samples to `output` samples, both at least 1.
    ///
    /// Every operation is f64 in the order of Pillow 13.0.0's `precompute_coeffs` and
    /// `normalize_coeffs_8bpc`, so that the rounded weights are the same integers.
    /// torchvision computes the same f64 weights (`UpSampleKernel.cpp`) and rounds them to
    /// 16 bits.
    pub(super) fn new(filter: Filter, backend: Backend, input: u32, output: u32) -> Self {
        let scale = f64::from(input) / f64::from(output);
        let filter_scale = scale.max(1.0);
        let support = filter.support() * filter_scale;
        let inverse = 1.0 / filter_scale;
        let stride = support.ceil() as usize * 2 + 1;

        let mut bounds = Vec::with_capacity(output as usize);
        let mut real = vec![0.0_f64; stride * output as usize];
        for (i, row) in real.chunks_exact_mut(stride).enumerate() {
            let center = (i as f64 + 0.5) * scale;
            // `as` truncates towards zero and clamps below at 0, as the C code does in two
            // steps.
            let low = (center - support + 0.5) as u32;
            let high = ((center + support + 0.5) as u32).min(input);
            let row = &mut row[..(high - low) as usize];
            let mut sum = 0.0;
            for (x, weight) in (low..high).zip(&mut *row) {
                *weight = filter.weight((f64::from(x) - center + 0.5) * inverse);
                sum += *weight;
            }
            if sum != 0.0 {
                for weight in row {
                    *weight /= sum;
                }
            }
            bounds.push((low, high - low));
        }
        let bits = match backend {
            Backend::Pillow(_) => PRECISION_BITS,
            Backend::Torchvision => bits_for_i16(&real),
        };
        let weights = real.iter().map(|&weight| fixed(weight, bits)).collect();
        Self {
            bounds,
            weights,
            stride,
        }
    }

    /// The number of outputs.
    pub(super) fn len(&self) -> usize {
        self.bounds.len()
    }

    /// First source index and weights of output `i`.
    pub(super) fn taps(&self, i: usize) -> (usize, &[i32]) {
        let (start, len) = self.bounds[i];
        let at = i * self.stride;
        (start as usize, &self.weights[at..at + len as usize])
    }
}

/// A weight rounded to `bits` fractional bits, half away from zero, and brought to
/// [`PRECISION_BITS`]: a sum of such weights, its half and its shift come out as they would
/// with `bits`.
fn fixed(weight: f64, bits: u32) -> i32 {
    let scaled = weight * f64::from(1_u32 << bits);
    let rounded = (scaled + if weight < 0.0 { -0.5 } else { 0.5 }) as i32;
    rounded << (PRECISION_BITS - bits)
}

/// The most fractional bits, up to 22, with which the largest weight fits an i16.
fn bits_for_i16(weights: &[f64]) -> u32 {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let fits = |bits: u32| ((0.5 + largest * f64::from(1_u32 << bits)) as i32) < 1 << 15;
    (0..PRECISION_BITS)
        .find(|&bits| !fits(bits + 1))
        .unwrap_or(PRECISION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_equal_the_golden_integers() {
        let text = include_str!("../../../tests/goldens/coeffs.json");
        let goldens: serde_json::Value = serde_json::from_str(text).unwrap();
        let goldens = goldens.as_object().unwrap();
        assert_eq!(goldens.len(), 9);
        for (sizes, rows) in goldens {
            let (input, output) = sizes.split_once("->").unwrap();
            let (input, output) = (input.parse().unwrap(), output.parse().unwrap());
            let got = Coefficients::new(Filter::Bicubic, Backend::default(), input, output);
            let got: Vec<_> = (0..got.len()).map(|i| got.taps(i)).collect();
            assert_eq!(serde_json::to_value(got).unwrap(), *rows, "{sizes}");
        }
    }

    #[test]
    fn sixteen_bit_weights_fit() {
        for (input, output) in [(100, 48), (3, 700), (4032, 960), (9000, 1), (2, 3)] {
            let c = Coefficients::new(Filter::Bicubic, Backend::Torchvision, input, output);
            let used = c.weights.iter().fold(0, |all, weight| all | weight);
            let unit = used.trailing_zeros();
            assert!(
                c.weights
                    .iter()
                    .all(|weight| i16::try_from(weight >> unit).is_ok())
            );
        }
    }
}
