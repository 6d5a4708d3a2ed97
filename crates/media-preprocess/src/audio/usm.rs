//! The front end of Google's Universal Speech Model as transformers computes it: Gemma 4's
//! tower, and Gemma 3n.

use super::SAMPLE_RATE;
use super::mel::{Bank, Filters, Floor, LogMel, Preemphasis, Scale, Signal, hann_f32, hann_numpy};
use crate::config::{Block, bad_value};
use crate::error::{Error, Result};

/// transformers pads clips with zeros to a multiple of this before it takes frames.
pub(super) const PAD_MULTIPLE: usize = 128;

/// The longest clip that transformers takes, in samples: 30 seconds.
pub(super) const MAX_SAMPLES: usize = 480_000;

/// Whose class, where they differ in more than a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Gemma4,
    Gemma3n,
}

/// The parameters of `Gemma4AudioFeatureExtractor` and `Gemma3nAudioFeatureExtractor`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameters {
    variant: Variant,
    mels: usize,
    frame_length: usize,
    hop: usize,
    overdrive: bool,
    min_hertz: f64,
    max_hertz: f64,
    preemphasis: f64,
    htk: bool,
    pub(super) input_scale: f64,
    floor: f64,
    mean: Option<Vec<f64>>,
    stddev: Option<Vec<f64>>,
}

impl Parameters {
    /// The class defaults of transformers 5.24.
    pub(super) fn new(variant: Variant) -> Self {
        let gemma4 = Self {
            variant,
            mels: 128,
            frame_length: 320,
            hop: 160,
            overdrive: false,
            min_hertz: 0.0,
            max_hertz: 8000.0,
            preemphasis: 0.0,
            htk: true,
            input_scale: 1.0,
            floor: 1e-3,
            mean: None,
            stddev: None,
        };
        match variant {
            Variant::Gemma4 => gemma4,
            Variant::Gemma3n => Self {
                frame_length: 512,
                overdrive: true,
                min_hertz: 125.0,
                max_hertz: 7600.0,
                preemphasis: 0.97,
                floor: 1e-5,
                ..gemma4
            },
        }
    }

    fn fft_length(&self) -> usize {
        self.frame_length.next_power_of_two() << usize::from(self.overdrive)
    }

    pub(super) fn log_mel(&self) -> LogMel {
        let fft_length = self.fft_length();
        let filters = Filters::new(Bank {
            mels: self.mels,
            bins: fft_length / 2 + 1,
            min_hertz: self.min_hertz,
            max_hertz: self.max_hertz,
            sampling_rate: f64::from(SAMPLE_RATE),
            scale: Scale::Htk,
            area_norm: false,
        });
        let (window, floor) = match self.variant {
            Variant::Gemma4 => (hann_numpy(self.frame_length), Floor::Add(self.floor)),
            Variant::Gemma3n => (hann_f32(self.frame_length), Floor::Max(self.floor)),
        };
        let mut mel = LogMel::new(window, self.hop, fft_length, self.mels, filters, floor);
        mel.preemphasis = (self.preemphasis > 0.0).then_some(Preemphasis {
            coefficient: self.preemphasis,
            htk: self.htk,
        });
        mel.mean.clone_from(&self.mean);
        mel.stddev.clone_from(&self.stddev);
        mel
    }

    pub(super) fn read(block: &mut Block<'_>, variant: Variant) -> Result<Self> {
        let defaults = Self::new(variant);
        let mut read = Self {
            variant,
            mels: block.size("feature_size", 1024)?.unwrap_or(defaults.mels),
            frame_length: block
                .milliseconds("frame_length_ms", 3..=4096)?
                .unwrap_or(defaults.frame_length),
            hop: block
                .milliseconds("hop_length_ms", 1..=4096)?
                .unwrap_or(defaults.hop),
            overdrive: block
                .boolean("fft_overdrive")?
                .unwrap_or(defaults.overdrive),
            min_hertz: block.number("min_frequency")?.unwrap_or(defaults.min_hertz),
            max_hertz: block.number("max_frequency")?.unwrap_or(defaults.max_hertz),
            preemphasis: block.number("preemphasis")?.unwrap_or(defaults.preemphasis),
            htk: block
                .boolean("preemphasis_htk_flavor")?
                .unwrap_or(defaults.htk),
            input_scale: block
                .number("input_scale_factor")?
                .unwrap_or(defaults.input_scale),
            floor: block.number("mel_floor")?.unwrap_or(defaults.floor),
            mean: None,
            stddev: None,
        };
        read.mean = block.numbers("per_bin_mean", read.mels)?;
        read.stddev = block.numbers("per_bin_stddev", read.mels)?;
        // Attributes that transformers writes beside what it computes them from, and reads back
        // to no effect.
        block.exactly("frame_length", read.frame_length)?;
        block.exactly("hop_length", read.hop)?;
        block.exactly("fft_length", read.fft_length())?;
        if !(0.0 <= read.min_hertz && read.min_hertz < read.max_hertz) {
            let found = [read.min_hertz, read.max_hertz];
            let expected = "from 0 on, in increasing order";
            return Err(bad_value(
                "min_frequency, max_frequency",
                &found[..].into(),
                expected,
            ));
        }
        if read.floor < f64::MIN_POSITIVE {
            return Err(bad_value("mel_floor", &read.floor.into(), "more than 0"));
        }
        Ok(read)
    }
}

/// The log-mel rows of a clip between `before` zeros and zeros up to a round length, scaled.
pub(super) fn rows(mel: &LogMel, samples: &[f32], scale: f32, before: usize) -> Result<Vec<f32>> {
    let features = mel.rows(&Signal {
        samples,
        scale,
        before,
        length: before + samples.len().next_multiple_of(PAD_MULTIPLE),
    });
    if let Some(at) = first_non_finite(&features) {
        return Err(Error::NonFiniteFeature {
            row: at / mel.mels,
            column: at % mel.mels,
            value: features[at],
        });
    }
    Ok(features)
}

/// Refuses samples that are not finite.
pub(super) fn check_finite(samples: &[f32]) -> Result<()> {
    match first_non_finite(samples) {
        Some(frame) => Err(Error::NonFiniteSample {
            frame: frame as u64,
            value: samples[frame],
        }),
        None => Ok(()),
    }
}

/// Looked for in pieces, since a search that may stop anywhere is no vector code.
pub(super) fn first_non_finite(values: &[f32]) -> Option<usize> {
    const PIECE: usize = 1024;
    let broken = |piece: &[f32]| piece.iter().fold(false, |any, v| any | !v.is_finite());
    let piece = values.chunks(PIECE).position(broken)? * PIECE;
    let within = values[piece..]
        .iter()
        .position(|value| !value.is_finite())?;
    Some(piece + within)
}
