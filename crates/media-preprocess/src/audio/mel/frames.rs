//! From samples to rows of log-mel values.

use std::ops::Range;

use pulp::Arch;

use super::fft::RealFft;
use super::filters::Filters;
use super::lanes::{Complex, Lanes, ln};

/// Pre-emphasis inside each frame, which has one sample more than the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Preemphasis {
    pub(crate) coefficient: f64,
    /// HTK's flavour: the first sample is scaled, and the last of the frame dropped.
    pub(crate) htk: bool,
}

/// How the logarithm is kept finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Floor {
    /// `ln(mel + floor)`.
    Add(f64),
    /// `ln(max(mel, floor))`.
    Max(f64),
}

/// A log-mel front end: windowed frames, magnitudes, mel filters, natural logarithm.
#[derive(Debug, Clone)]
pub(crate) struct LogMel {
    pub(crate) hop: usize,
    pub(crate) window: Vec<f32>,
    pub(crate) filters: Filters,
    pub(crate) mels: usize,
    pub(crate) preemphasis: Option<Preemphasis>,
    pub(crate) floor: Floor,
    pub(crate) mean: Option<Vec<f64>>,
    pub(crate) stddev: Option<Vec<f64>>,
    fft: RealFft,
}

impl LogMel {
    /// The transform's length is a power of two.
    pub(crate) fn new(
        window: Vec<f32>,
        hop: usize,
        fft_length: usize,
        mels: usize,
        filters: Filters,
        floor: Floor,
    ) -> Self {
        Self {
            hop,
            window,
            filters,
            mels,
            preemphasis: None,
            floor,
            mean: None,
            stddev: None,
            fft: RealFft::new(fft_length),
        }
    }

    pub(crate) fn frame_length(&self) -> usize {
        self.window.len()
    }

    /// How many frames `length` samples hold: each takes one sample more than the window.
    pub(crate) fn num_frames(&self, length: usize) -> usize {
        length
            .checked_sub(self.frame_length() + 1)
            .map_or(0, |rest| rest / self.hop + 1)
    }

    /// The rows of `samples`, `[num_frames, mels]`.
    ///
    /// As numpy computes them: windowed in f32; a transform in f64 whose result is rounded to
    /// complex f32, which is what `numpy.fft.rfft` gives for f32 input; magnitudes in f32;
    /// filters and logarithm in f64; rounded to f32.
    pub(crate) fn rows(&self, samples: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.num_frames(samples.len()) * self.mels];
        let arch = Arch::new();
        #[cfg(target_arch = "x86_64")]
        if matches!(arch, Arch::V4(_)) {
            arch.dispatch(
                #[inline(always)]
                || self.batches::<8>(samples, &mut out),
            );
            return out;
        }
        arch.dispatch(
            #[inline(always)]
            || self.batches::<4>(samples, &mut out),
        );
        out
    }

    /// `L` frames at a time. The last batch may hold some that don't exist: they repeat the last.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn batches<const L: usize>(&self, samples: &[f32], out: &mut [f32]) {
        let count = self.num_frames(samples.len());
        let half = self.fft.len() / 2;
        let mut signal = vec![Complex::<L>::ZERO; half];
        let mut other = signal.clone();
        let mut magnitudes = vec![Lanes::<L>::ZERO; self.fft.bins()];
        for first in (0..count).step_by(L) {
            let frames: [&[f32]; L] = std::array::from_fn(|lane| {
                let frame = (first + lane).min(count - 1);
                &samples[frame * self.hop..][..=self.frame_length()]
            });
            self.load(&frames, &mut signal);
            self.fft.run(&mut signal, &mut other, |bin, value| {
                magnitudes[bin] = magnitude(value);
            });
            let lanes = first..(first + L).min(count);
            self.logarithms(&magnitudes, lanes, out);
        }
    }

    /// The windowed frames, padded with zeros to the transform's length.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn load<const L: usize>(&self, frames: &[&[f32]; L], signal: &mut [Complex<L>]) {
        let length = self.frame_length();
        match self.preemphasis {
            None => self.fill(length, signal, |at, lane| frames[lane][at]),
            Some(Preemphasis { coefficient, htk }) => {
                let c = coefficient as f32;
                let first = (1.0 - coefficient) as f32;
                // Pre-emphasis begins at the second sample; HTK's flavour keeps the first, which
                // has none before it, and drops the last.
                let skip = usize::from(!htk);
                self.fill(length, signal, |at, lane| {
                    let frame = frames[lane];
                    match (at + skip).checked_sub(1) {
                        Some(before) => frame[at + skip] - c * frame[before],
                        None => frame[0] * first,
                    }
                });
            }
        }
    }

    /// Each sample of each frame, times the window.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn fill<const L: usize>(
        &self,
        length: usize,
        signal: &mut [Complex<L>],
        sample: impl Fn(usize, usize) -> f32,
    ) {
        let windowed = |at: usize| {
            Lanes(std::array::from_fn(|lane| {
                f64::from(sample(at, lane) * self.window[at])
            }))
        };
        for (n, value) in signal.iter_mut().enumerate() {
            let at = 2 * n;
            *value = Complex {
                re: if at < length {
                    windowed(at)
                } else {
                    Lanes::ZERO
                },
                im: if at + 1 < length {
                    windowed(at + 1)
                } else {
                    Lanes::ZERO
                },
            };
        }
    }

    /// The rows of frames `lanes` from their magnitudes.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn logarithms<const L: usize>(
        &self,
        magnitudes: &[Lanes<L>],
        lanes: Range<usize>,
        out: &mut [f32],
    ) {
        self.filters.apply(magnitudes, |band, mel: Lanes<L>| {
            let mut logs = match self.floor {
                Floor::Add(floor) => mel.0.map(|mel| ln(mel + floor)),
                Floor::Max(floor) => mel.0.map(|mel| ln(mel.max(floor))),
            };
            if let Some(mean) = &self.mean {
                logs = logs.map(|value| value - mean[band]);
            }
            if let Some(stddev) = &self.stddev {
                logs = logs.map(|value| value / stddev[band]);
            }
            for (value, frame) in logs.iter().zip(lanes.clone()) {
                out[frame * self.mels + band] = *value as f32;
            }
        });
    }
}

/// `numpy.abs` of complex64, in the form that numpy's kernels for processors with fused
/// multiply-add take: the larger part times `sqrt(1 + q * q)`, with one rounding in the sum.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]
fn magnitude<const L: usize>(value: Complex<L>) -> Lanes<L> {
    Lanes(std::array::from_fn(|lane| {
        let re = (value.re.0[lane] as f32).abs();
        let im = (value.im.0[lane] as f32).abs();
        let (large, small) = if re > im { (re, im) } else { (im, re) };
        // Equal parts take 1, so that two zeros don't divide.
        let q = if small < large { small / large } else { 1.0 };
        f64::from(large * q.mul_add(q, 1.0).sqrt())
    }))
}
