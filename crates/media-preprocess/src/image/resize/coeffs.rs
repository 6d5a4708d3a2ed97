//! Pillow's resampling weights in fixed point.

use super::Filter;

/// Fractional bits of a weight: 32 bits of accumulator less 8 of pixel less 2 of headroom
/// for weights whose absolute values sum to more than 1 (`PRECISION_BITS` in Pillow's
/// `Resample.c`).
pub(super) const PRECISION_BITS: u32 = 32 - 8 - 2;

/// The weights of one axis: output `i` is the weighted sum of `weights(i).1.len()` source
/// samples from index `weights(i).0` on.
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
    pub(super) fn new(filter: Filter, input: u32, output: u32) -> Self {
        let scale = f64::from(input) / f64::from(output);
        let filter_scale = scale.max(1.0);
        let support = filter.support() * filter_scale;
        let inverse = 1.0 / filter_scale;
        let stride = support.ceil() as usize * 2 + 1;

        let mut bounds = Vec::with_capacity(output as usize);
        let mut weights = vec![0_i32; stride * output as usize];
        let mut raw = Vec::with_capacity(stride);
        for (i, row) in weights.chunks_exact_mut(stride).enumerate() {
            let center = (i as f64 + 0.5) * scale;
            // `as` truncates towards zero and clamps below at 0, as the C code does in two steps.
            let low = (center - support + 0.5) as u32;
            let high = ((center + support + 0.5) as u32).min(input);
            raw.clear();
            raw.extend((low..high).map(|x| filter.weight((f64::from(x) - center + 0.5) * inverse)));
            let mut sum = 0.0;
            for weight in &raw {
                sum += weight;
            }
            for (fixed, weight) in row.iter_mut().zip(&raw) {
                let weight = if sum == 0.0 { *weight } else { weight / sum };
                let scaled = weight * f64::from(1_u32 << PRECISION_BITS);
                *fixed = (scaled + if weight < 0.0 { -0.5 } else { 0.5 }) as i32;
            }
            bounds.push((low, high - low));
        }
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
