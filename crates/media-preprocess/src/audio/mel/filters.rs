//! Triangular mel filters, kept sparse: a filter touches a few neighbouring bins.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

/// How hertz become mels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// `2595 log10(1 + f / 700)`.
    Htk,
    /// Linear to 1000 Hz, logarithmic above, as in Slaney's Auditory Toolbox.
    Slaney,
}

impl Scale {
    /// `hertz_to_mel` of transformers' `audio_utils`.
    fn to_mel(self, hertz: f64) -> f64 {
        match self {
            Self::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            Self::Slaney if hertz >= 1000.0 => 15.0 + (hertz / 1000.0).ln() * (27.0 / 6.4_f64.ln()),
            Self::Slaney => 3.0 * hertz / 200.0,
        }
    }

    /// `mel_to_hertz` of transformers' `audio_utils`.
    fn to_hertz(self, mel: f64) -> f64 {
        match self {
            Self::Htk => 700.0 * (10_f64.powf(mel / 2595.0) - 1.0),
            Self::Slaney if mel >= 15.0 => 1000.0 * ((6.4_f64.ln() / 27.0) * (mel - 15.0)).exp(),
            Self::Slaney => 200.0 * mel / 3.0,
        }
    }
}

/// A bank of filters over the bins of a spectrum.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filters {
    /// Of each filter: its first bin, and the end of its weights in `weights`.
    rows: Vec<(usize, usize)>,
    weights: Vec<f64>,
}

/// What a bank is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bank {
    pub(crate) mels: usize,
    /// Bins of the spectrum, from 0 Hz to half the sampling rate.
    pub(crate) bins: usize,
    pub(crate) min_hertz: f64,
    pub(crate) max_hertz: f64,
    pub(crate) sampling_rate: f64,
    pub(crate) scale: Scale,
    /// Divide each filter by half its width in hertz (Slaney's norm).
    pub(crate) area_norm: bool,
}

impl Filters {
    /// `mel_filter_bank` of transformers' `audio_utils`: triangles that are linear in hertz.
    pub(crate) fn new(bank: Bank) -> Self {
        let mel_min = bank.scale.to_mel(bank.min_hertz);
        let mel_max = bank.scale.to_mel(bank.max_hertz);
        let points: Vec<f64> = linspace(mel_min, mel_max, bank.mels + 2)
            .map(|mel| bank.scale.to_hertz(mel))
            .collect();
        let bins: Vec<f64> = linspace(0.0, bank.sampling_rate / 2.0, bank.bins).collect();
        let mut rows = Vec::with_capacity(bank.mels);
        let mut weights = Vec::new();
        for point in points.windows(3) {
            let norm = if bank.area_norm {
                2.0 / (point[2] - point[0])
            } else {
                1.0
            };
            let weight = |&bin: &f64| {
                let up = (bin - point[0]) / (point[1] - point[0]);
                let down = (point[2] - bin) / (point[2] - point[1]);
                up.min(down).max(0.0) * norm
            };
            let row: Vec<f64> = bins.iter().map(weight).collect();
            let first = row.iter().position(|&w| w > 0.0).unwrap_or(0);
            let end = row.iter().rposition(|&w| w > 0.0).map_or(first, |i| i + 1);
            weights.extend_from_slice(&row[first..end]);
            rows.push((first, weights.len()));
        }
        Self { rows, weights }
    }

    /// Each filter's sum over the spectrum, by increasing bin, one fused step a bin.
    #[inline(always)]
    pub(super) fn apply<const L: usize>(&self, spectrum: &[[f64; L]], sums: &mut [[f64; L]]) {
        let mut start = 0;
        for (out, &(first, end)) in sums.iter_mut().zip(&self.rows) {
            let weights = &self.weights[start..end];
            start = end;
            let mut sum = [0.0; L];
            for (&weight, value) in weights.iter().zip(&spectrum[first..]) {
                for lane in 0..L {
                    sum[lane] = value[lane].mul_add(weight, sum[lane]);
                }
            }
            *out = sum;
        }
    }
}

/// `numpy.linspace`: multiples of the step, and the end itself.
fn linspace(start: f64, stop: f64, count: usize) -> impl Iterator<Item = f64> {
    let last = count.saturating_sub(1);
    let step = (stop - start) / last.max(1) as f64;
    (0..count).map(move |i| {
        if i == last && i > 0 {
            stop
        } else {
            i as f64 * step + start
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemma4() -> Filters {
        Filters::new(Bank {
            mels: 128,
            bins: 257,
            min_hertz: 0.0,
            max_hertz: 8000.0,
            sampling_rate: 16000.0,
            scale: Scale::Htk,
            area_norm: false,
        })
    }

    #[test]
    fn gemma4_has_506_weights_and_an_empty_first_filter() {
        let filters = gemma4();
        assert_eq!(filters.weights.len(), 506);
        assert_eq!(filters.rows[0].1, 0);
        let mut sums = [[1.0]; 128];
        filters.apply(&[[1.0]; 257], &mut sums);
        let out = sums.map(|[sum]| sum);
        assert!(out[0].abs() < f64::EPSILON);
        assert!(out[1..].iter().all(|&sum| sum > 0.0));
    }

    #[test]
    fn neighbours_share_each_bin_between_them() {
        let filters = gemma4();
        let mut sums = [0.0; 257];
        let mut start = 0;
        for &(first, end) in &filters.rows {
            for (i, weight) in filters.weights[start..end].iter().enumerate() {
                sums[first + i] += weight;
            }
            start = end;
        }
        // Every bin between the second and the second last point has a whole weight in all.
        assert!(sums[2..250].iter().all(|sum| (sum - 1.0).abs() < 1e-12));
    }
}
