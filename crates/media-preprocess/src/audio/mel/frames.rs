//! From samples to rows of log-mel values.

use std::fmt;
use std::sync::Arc;

use pulp::Arch;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use super::filters::Filters;

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
#[derive(Clone)]
pub(crate) struct LogMel {
    pub(crate) hop: usize,
    pub(crate) window: Vec<f32>,
    pub(crate) filters: Filters,
    pub(crate) mels: usize,
    pub(crate) preemphasis: Option<Preemphasis>,
    pub(crate) floor: Floor,
    pub(crate) mean: Option<Vec<f64>>,
    pub(crate) stddev: Option<Vec<f64>>,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl fmt::Debug for LogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogMel")
            .field("frame_length", &self.window.len())
            .field("hop", &self.hop)
            .field("fft_length", &self.fft.len())
            .field("mels", &self.mels)
            .field("preemphasis", &self.preemphasis)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

impl LogMel {
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
            fft: RealFftPlanner::new().plan_fft_forward(fft_length),
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
        let count = self.num_frames(samples.len());
        let mut out = vec![0.0; count * self.mels];
        let mut work = Work::new(self);
        let arch = Arch::new();
        for (i, row) in out.chunks_exact_mut(self.mels).enumerate() {
            let frame = &samples[i * self.hop..][..=self.frame_length()];
            arch.dispatch(
                #[inline(always)]
                || self.load(frame, &mut work),
            );
            // The lengths are those of the plan, the only thing that can be wrong.
            let done = self.fft.process_with_scratch(
                &mut work.time,
                &mut work.spectrum,
                &mut work.scratch,
            );
            debug_assert!(done.is_ok());
            arch.dispatch(
                #[inline(always)]
                || {
                    magnitudes(&work.spectrum, &mut work.magnitudes);
                    self.filters.apply(&work.magnitudes, &mut work.mel);
                },
            );
            self.logarithms(&work.mel, row);
        }
        out
    }

    /// The windowed frame, padded with zeros to the transform's length.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn load(&self, frame: &[f32], work: &mut Work) {
        let length = self.frame_length();
        let time = &mut work.time[..];
        match self.preemphasis {
            None => {
                for ((to, &x), &w) in time.iter_mut().zip(frame).zip(&self.window) {
                    *to = f64::from(x * w);
                }
            }
            Some(Preemphasis { coefficient, htk }) => {
                // The frame after pre-emphasis begins at the second sample, or with HTK's
                // flavour at the first, which has none before it.
                let c = coefficient as f32;
                let skip = usize::from(!htk);
                let before = &frame[..length];
                let here = &frame[1..];
                let emphasised = here.iter().zip(before).map(|(&x, &b)| x - c * b);
                let (to, window) = (&mut time[1 - skip..length], &self.window[1 - skip..]);
                for ((to, x), &w) in to.iter_mut().zip(emphasised).zip(window) {
                    *to = f64::from(x * w);
                }
                if htk {
                    let first = frame[0] * (1.0 - coefficient) as f32;
                    time[0] = f64::from(first * self.window[0]);
                }
            }
        }
        // The transform uses its input as scratch.
        time[length..].fill(0.0);
    }

    fn logarithms(&self, mel: &[f64], row: &mut [f32]) {
        for (i, (out, &mel)) in row.iter_mut().zip(mel).enumerate() {
            let mut value = match self.floor {
                Floor::Add(floor) => (mel + floor).ln(),
                Floor::Max(floor) => mel.max(floor).ln(),
            };
            if let Some(mean) = &self.mean {
                value -= mean[i];
            }
            if let Some(stddev) = &self.stddev {
                value /= stddev[i];
            }
            *out = value as f32;
        }
    }
}

/// `numpy.abs` of complex64, in the form that numpy's kernels for processors with fused
/// multiply-add take: the larger part times `sqrt(1 + q * q)`, with one rounding in the sum.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]
fn magnitudes(spectrum: &[Complex<f64>], out: &mut [f64]) {
    for (out, value) in out.iter_mut().zip(spectrum) {
        let (re, im) = ((value.re as f32).abs(), (value.im as f32).abs());
        let (large, small) = (re.max(im), re.min(im));
        // Equal parts take 1, so that two zeros don't divide.
        let q = if small < large { small / large } else { 1.0 };
        *out = f64::from(large * q.mul_add(q, 1.0).sqrt());
    }
}

/// Buffers of one frame.
struct Work {
    time: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    magnitudes: Vec<f64>,
    mel: Vec<f64>,
}

impl Work {
    fn new(mel: &LogMel) -> Self {
        Self {
            time: mel.fft.make_input_vec(),
            spectrum: mel.fft.make_output_vec(),
            scratch: mel.fft.make_scratch_vec(),
            magnitudes: vec![0.0; mel.fft.len() / 2 + 1],
            mel: vec![0.0; mel.mels],
        }
    }
}
