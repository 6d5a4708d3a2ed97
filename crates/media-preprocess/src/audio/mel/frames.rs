//! From samples to rows of log-mel values.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

use pulp::{Arch, Simd, WithSimd};

use super::fft::RealFft;
use super::filters::Filters;
use super::lanes::{Complex, ln};

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

/// Samples between zeros, which are not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal<'a> {
    pub(crate) samples: &'a [f32],
    /// A factor of every sample.
    pub(crate) scale: f32,
    /// Zeros before the samples.
    pub(crate) before: usize,
    /// The length with all zeros.
    pub(crate) length: usize,
}

impl<'a> Signal<'a> {
    /// `length` samples from `start` on: those themselves, or a copy in `edge` where some of them
    /// are zeros.
    fn frame<'e>(&self, start: usize, length: usize, edge: &'e mut Vec<f32>) -> &'e [f32]
    where
        'a: 'e,
    {
        let inside = start.checked_sub(self.before);
        if let Some(frame) = inside.and_then(|at| self.samples.get(at..at + length)) {
            return frame;
        }
        edge.clear();
        edge.extend((start..start + length).map(|position| {
            let inside = position.checked_sub(self.before);
            inside
                .and_then(|at| self.samples.get(at))
                .copied()
                .unwrap_or(0.0)
        }));
        edge
    }
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

    /// The rows of a signal, `[num_frames, mels]`.
    ///
    /// As numpy computes them: windowed in f32; a transform in f64 whose result is rounded to
    /// complex f32, which is what `numpy.fft.rfft` gives for f32 input; magnitudes in f32;
    /// filters and logarithm in f64; rounded to f32.
    pub(crate) fn rows(&self, signal: &Signal<'_>) -> Vec<f32> {
        let mut out = vec![0.0; self.num_frames(signal.length) * self.mels];
        Arch::new().dispatch(Rows {
            mel: self,
            signal,
            out: &mut out,
        });
        out
    }

    /// `L` frames at a time. The last batch may hold some that don't exist: they repeat the last.
    #[inline(always)]
    fn batches<const L: usize>(&self, source: &Signal<'_>, out: &mut [f32]) {
        let count = self.num_frames(source.length);
        let half = self.fft.len() / 2;
        let mut signal = vec![Complex::<L>::ZERO; half];
        let mut other = signal.clone();
        let mut re = vec![[0.0; L]; self.fft.bins()];
        let mut im = re.clone();
        let mut magnitudes = re.clone();
        let mut bands = vec![[0.0; L]; self.mels];
        let mut edges = vec![Vec::new(); L];
        for first in (0..count).step_by(L) {
            let mut frames: [&[f32]; L] = [&[]; L];
            for ((lane, frame), edge) in frames.iter_mut().enumerate().zip(&mut edges) {
                let index = (first + lane).min(count - 1);
                *frame = source.frame(index * self.hop, self.frame_length() + 1, edge);
            }
            self.load(&frames, source.scale, &mut signal);
            self.fft.run(&mut signal, &mut other, &mut re, &mut im);
            magnitudes_of(
                re.as_flattened(),
                im.as_flattened(),
                magnitudes.as_flattened_mut(),
            );
            self.filters.apply(&magnitudes, &mut bands);
            self.logarithms(&mut bands);
            for frame in first..(first + L).min(count) {
                let row = &mut out[frame * self.mels..][..self.mels];
                for (to, band) in row.iter_mut().zip(&bands) {
                    *to = band[frame - first] as f32;
                }
            }
        }
    }

    /// The windowed frames, padded with zeros to the transform's length.
    #[inline(always)]
    fn load<const L: usize>(&self, frames: &[&[f32]; L], scale: f32, signal: &mut [Complex<L>]) {
        let length = self.frame_length();
        match self.preemphasis {
            None => self.fill(length, signal, |at, lane| frames[lane][at] * scale),
            Some(Preemphasis { coefficient, htk }) => {
                let c = coefficient as f32;
                let first = (1.0 - coefficient) as f32;
                // Pre-emphasis begins at the second sample; HTK's flavour keeps the first, which
                // has none before it, and drops the last.
                let skip = usize::from(!htk);
                self.fill(length, signal, |at, lane| {
                    let frame = frames[lane];
                    match (at + skip).checked_sub(1) {
                        Some(before) => frame[at + skip] * scale - c * (frame[before] * scale),
                        None => frame[0] * scale * first,
                    }
                });
            }
        }
    }

    /// Each sample of each frame, times the window.
    #[inline(always)]
    fn fill<const L: usize>(
        &self,
        length: usize,
        signal: &mut [Complex<L>],
        sample: impl Fn(usize, usize) -> f32,
    ) {
        for (n, value) in signal.iter_mut().enumerate() {
            *value = Complex::ZERO;
            let at = 2 * n;
            if at < length {
                for lane in 0..L {
                    value.re.0[lane] = f64::from(sample(at, lane) * self.window[at]);
                }
            }
            if at + 1 < length {
                for lane in 0..L {
                    value.im.0[lane] = f64::from(sample(at + 1, lane) * self.window[at + 1]);
                }
            }
        }
    }

    /// The logarithms of the bands, normalised.
    #[inline(always)]
    fn logarithms<const L: usize>(&self, bands: &mut [[f64; L]]) {
        let (add, least) = match self.floor {
            Floor::Add(floor) => (floor, 0.0),
            Floor::Max(floor) => (0.0, floor),
        };
        for value in bands.as_flattened_mut() {
            let mel = *value + add;
            *value = ln(if mel > least { mel } else { least });
        }
        if let Some(mean) = &self.mean {
            for (band, mean) in bands.iter_mut().zip(mean) {
                for value in band {
                    *value -= mean;
                }
            }
        }
        if let Some(stddev) = &self.stddev {
            for (band, stddev) in bands.iter_mut().zip(stddev) {
                for value in band {
                    *value /= stddev;
                }
            }
        }
    }
}

/// The work of [`LogMel::rows`], compiled for every kind of processor.
struct Rows<'a> {
    mel: &'a LogMel,
    signal: &'a Signal<'a>,
    out: &'a mut [f32],
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // As many frames as a vector of f64 has lanes, within reason.
        match S::F64_LANES {
            8.. => self.mel.batches::<8>(self.signal, self.out),
            _ => self.mel.batches::<4>(self.signal, self.out),
        }
    }
}

/// `numpy.abs` of complex64, in the form that numpy's kernels for processors with fused
/// multiply-add take: the larger part times `sqrt(1 + q * q)`, with one rounding in the sum.
#[inline(always)]
fn magnitudes_of(re: &[f64], im: &[f64], out: &mut [f64]) {
    for ((out, &re), &im) in out.iter_mut().zip(re).zip(im) {
        let (re, im) = ((re as f32).abs(), (im as f32).abs());
        let (large, small) = if re > im { (re, im) } else { (im, re) };
        // Equal parts take 1, so that two zeros don't divide.
        let q = if small < large { small / large } else { 1.0 };
        *out = f64::from(large * q.mul_add(q, 1.0).sqrt());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bank, Scale, hann_numpy};
    use super::*;

    #[test]
    fn lanes_and_instructions_change_nothing() {
        let filters = Filters::new(Bank {
            mels: 40,
            bins: 65,
            min_hertz: 0.0,
            max_hertz: 8000.0,
            sampling_rate: 16_000.0,
            scale: Scale::Htk,
            area_norm: false,
        });
        let mel = LogMel::new(hann_numpy(100), 33, 128, 40, filters, Floor::Add(1e-3));
        let samples: Vec<f32> = (0..1500_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5)
            .collect();
        let signal = Signal {
            samples: &samples,
            scale: 1.0,
            before: 50,
            length: 1664,
        };
        let expected = mel.rows(&signal);
        assert_eq!(expected.len(), mel.num_frames(1664) * 40);
        let mut got = vec![0.0; expected.len()];
        mel.batches::<1>(&signal, &mut got);
        assert_eq!(got, expected);
        got.fill(0.0);
        mel.batches::<5>(&signal, &mut got);
        assert_eq!(got, expected);
    }
}
