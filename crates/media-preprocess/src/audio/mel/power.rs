//! Whisper's log-mel spectrogram.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

use std::fmt;
use std::sync::Arc;

use pulp::{Arch, Simd, WithSimd};
use realfft::{RealFftPlanner, RealToComplex};

use super::filters::Filters;

/// The dynamic range that is kept below a clip's loudest value, in powers of ten.
const RANGE: f32 = 8.0;

/// Powers are taken to be at least this.
const FLOOR: f64 = 1e-10;

/// Centred frames, power spectra, mel filters, base-10 logarithm, scaled by the clip's maximum:
/// `WhisperFeatureExtractor` of transformers, in its numpy form.
#[derive(Clone)]
pub(crate) struct LogPowerMel {
    hop: usize,
    window: Vec<f64>,
    filters: Filters,
    pub(crate) mels: usize,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl fmt::Debug for LogPowerMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogPowerMel")
            .field("frame_length", &self.window.len())
            .field("hop", &self.hop)
            .field("mels", &self.mels)
            .finish_non_exhaustive()
    }
}

impl LogPowerMel {
    pub(crate) fn new(window: Vec<f64>, hop: usize, mels: usize, filters: Filters) -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(window.len());
        Self {
            hop,
            window,
            filters,
            mels,
            fft,
        }
    }

    /// Frames of a clip, the last left out.
    pub(crate) fn num_frames(&self, samples: usize) -> usize {
        samples / self.hop
    }

    /// `[mels, num_frames]` of `samples` followed by zeros up to `length`.
    pub(crate) fn columns(&self, samples: &[f32], length: usize) -> Vec<f32> {
        let frames = self.num_frames(length);
        let bins = self.fft.len() / 2 + 1;
        let mut out = vec![0.0; frames * self.mels];
        let mut time = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut power = vec![[0.0]; bins];
        let mut mel = vec![[0.0]; self.mels];
        let half = self.window.len() / 2;
        let padded: Vec<f32> = (0..length + 2 * half)
            .map(|position| {
                let inside = position.checked_sub(half).filter(|&at| at < length);
                let at = inside.unwrap_or_else(|| mirrored(position, half, length));
                samples.get(at).copied().unwrap_or(0.0)
            })
            .collect();
        for frame in 0..frames {
            let from = &padded[frame * self.hop..];
            for ((to, sample), window) in time.iter_mut().zip(from).zip(&self.window) {
                *to = f64::from(*sample) * window;
            }
            // The lengths are those of the plan, the only thing that can be wrong.
            let done = self
                .fft
                .process_with_scratch(&mut time, &mut spectrum, &mut scratch);
            debug_assert!(done.is_ok());
            for (power, value) in power.iter_mut().zip(&spectrum) {
                // Kept as complex64, squared in f64.
                let (re, im) = (f64::from(value.re as f32), f64::from(value.im as f32));
                *power = [re * re + im * im];
            }
            Arch::new().dispatch(Bands {
                filters: &self.filters,
                power: &power,
                mel: &mut mel,
            });
            for (band, value) in mel.iter().enumerate() {
                out[band * frames + frame] = value[0].max(FLOOR).log10() as f32;
            }
        }
        let loudest = out
            .iter()
            .fold(f32::NEG_INFINITY, |most, &value| most.max(value));
        for value in &mut out {
            *value = (value.max(loudest - RANGE) + 4.0) / 4.0;
        }
        out
    }
}

/// The filters, compiled for every kind of processor: their sums are fused.
struct Bands<'a> {
    filters: &'a Filters,
    power: &'a [[f64; 1]],
    mel: &'a mut [[f64; 1]],
}

impl WithSimd for Bands<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.filters.apply(self.power, self.mel);
    }
}

/// The sample at `position`, which counts from `half` before the clip, of a clip of `length` that
/// is mirrored at both ends without repeating them: `numpy.pad` with `reflect`.
fn mirrored(position: usize, half: usize, length: usize) -> usize {
    let period = 2 * length.saturating_sub(1).max(1);
    let at = (position as i64 - half as i64).rem_euclid(period as i64) as usize;
    if at < length { at } else { period - at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_repeats_no_edge() {
        let got: Vec<usize> = (0..9).map(|i| mirrored(i, 3, 3)).collect();
        // numpy.pad([0, 1, 2], 3, "reflect")
        assert_eq!(got, [1, 2, 1, 0, 1, 2, 1, 0, 1]);
        assert_eq!(mirrored(7, 3, 1), 0);
    }
}
