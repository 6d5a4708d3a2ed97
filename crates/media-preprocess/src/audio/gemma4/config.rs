//! The `feature_extractor` block of a checkpoint.

use serde_json::Value;

use super::{Gemma4AudioLayout, Gemma4AudioProcessor};
use crate::audio::mel::{Bank, Filters, Floor, LogMel, Preemphasis, Scale, hann_numpy};
use crate::config::{Block, bad_value};
use crate::error::Result;

const TOWER: &str = "Gemma4AudioFeatureExtractor";
const UNIFIED: &str = "Gemma4UnifiedAudioFeatureExtractor";

/// The parameters of `Gemma4AudioFeatureExtractor`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tower {
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

impl Default for Tower {
    /// The class defaults of transformers 5.24.
    fn default() -> Self {
        Self {
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
        }
    }
}

impl Tower {
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
            sampling_rate: f64::from(crate::audio::SAMPLE_RATE),
            scale: Scale::Htk,
            area_norm: false,
        });
        let window = hann_numpy(self.frame_length);
        let floor = Floor::Add(self.floor);
        let mut mel = LogMel::new(window, self.hop, fft_length, self.mels, filters, floor);
        mel.preemphasis = (self.preemphasis > 0.0).then_some(Preemphasis {
            coefficient: self.preemphasis,
            htk: self.htk,
        });
        mel.mean.clone_from(&self.mean);
        mel.stddev.clone_from(&self.stddev);
        mel
    }

    fn read(block: &mut Block<'_>) -> Result<Self> {
        let defaults = Self::default();
        let mut tower = Self {
            mels: block.size("feature_size", 1024)?.unwrap_or(defaults.mels),
            frame_length: block
                .milliseconds("frame_length_ms", 2..=4096)?
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
        tower.mean = block.numbers("per_bin_mean", tower.mels)?;
        tower.stddev = block.numbers("per_bin_stddev", tower.mels)?;
        // Attributes that transformers writes beside what it computes them from, and reads back
        // to no effect.
        block.exactly("frame_length", tower.frame_length)?;
        block.exactly("hop_length", tower.hop)?;
        block.exactly("fft_length", tower.fft_length())?;
        if !(0.0 <= tower.min_hertz && tower.min_hertz < tower.max_hertz) {
            let found = [tower.min_hertz, tower.max_hertz];
            let expected = "from 0 on, in increasing order";
            return Err(bad_value(
                "min_frequency, max_frequency",
                &found[..].into(),
                expected,
            ));
        }
        if tower.floor <= 0.0 {
            return Err(bad_value("mel_floor", &tower.floor.into(), "more than 0"));
        }
        Ok(tower)
    }
}

/// Reads either class's block.
pub(super) fn read(config: &Value) -> Result<Gemma4AudioProcessor> {
    let mut block = Block::new(config, "feature_extractor")?;
    block.class("feature_extractor_type", &[TOWER, UNIFIED])?;
    let class = block.get("feature_extractor_type").and_then(Value::as_str);
    let unified = class == Some(UNIFIED);
    block.common_audio()?;
    let processor = if unified {
        let samples = block
            .size("audio_samples_per_token", 1 << 20)?
            .unwrap_or(640);
        // Not read by the class, but written by it: the width of a row.
        block.exactly("feature_size", samples)?;
        Gemma4AudioProcessor {
            samples_per_token: samples,
            ..Gemma4AudioProcessor::default().with_layout(Gemma4AudioLayout::Unified)
        }
    } else {
        Gemma4AudioProcessor::from_parts(Tower::read(&mut block)?)
    };
    block.finish()?;
    Ok(processor)
}
