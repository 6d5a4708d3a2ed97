//! Gemma 4: log-mel features for the audio tower, raw frames for the unified model.

mod config;
mod prepare;

use std::path::Path;

use serde_json::Value;

use super::AudioFeatures;
use super::mel::LogMel;
use super::usm::{MAX_SAMPLES, Parameters, Variant};
use crate::config::read_folder;
use crate::error::Result;

/// A clip as Gemma 4 takes it.
pub type Gemma4Audio = AudioFeatures;

/// What a row of `input_features` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Gemma4AudioLayout {
    /// A frame of the audio tower (E2B, E4B): the logarithms of 128 mel bands, every 10 ms.
    #[default]
    Tower,
    /// A soft token of the unified model (12B): 640 samples, 40 ms.
    Unified,
}

/// How soft tokens are counted for the tower. The references differ by one for a quarter of
/// all lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TokenCount {
    /// As transformers: the valid frames, halved twice, as many as the tower gives.
    #[default]
    Transformers,
    /// As mlx-vlm: `ceil(samples / 640)`, at most 750. One more than the tower gives where the
    /// length modulo 640 is 1 to 160. (In integers: mlx-vlm's own floats add another at 257,920
    /// and 260,480 samples.)
    MlxVlm,
}

impl TokenCount {
    /// The soft tokens of a clip of `samples`, for the tower.
    ///
    /// ```
    /// use prefill_media_preprocess::audio::TokenCount;
    ///
    /// assert_eq!(TokenCount::Transformers.soft_tokens(32_050), 50);
    /// assert_eq!(TokenCount::MlxVlm.soft_tokens(32_050), 51);
    /// ```
    #[must_use]
    pub fn soft_tokens(self, samples: usize) -> usize {
        match self {
            // `Gemma4Processor._compute_audio_num_tokens` of transformers: the frames, then two
            // convolutions of stride 2 and padding 1.
            Self::Transformers => {
                let frames = (samples + 160)
                    .checked_sub(321)
                    .map_or(0, |rest| rest / 160 + 1);
                frames.div_ceil(2).div_ceil(2).min(750)
            }
            Self::MlxVlm => samples.div_ceil(640).min(750),
        }
    }

    /// The same for a front end with other frames, of which `rows` are valid.
    fn of(self, samples: usize, rows: usize) -> usize {
        match self {
            Self::Transformers => rows.div_ceil(2).div_ceil(2),
            Self::MlxVlm => self.soft_tokens(samples),
        }
    }
}

/// Prepares audio for Gemma 4.
///
/// ```
/// use prefill_media_preprocess::audio::{DecodeOptions, Gemma4AudioProcessor};
///
/// let config = serde_json::json!({"feature_extractor": {
///     "feature_extractor_type": "Gemma4AudioFeatureExtractor", "feature_size": 128
/// }});
/// let processor = Gemma4AudioProcessor::from_json(&config)?;
/// let prepared = processor.prepare(&vec![0.0; 16_000])?;
/// assert_eq!((prepared.rows, prepared.dim, prepared.soft_tokens), (99, 128, 25));
///
/// # let bytes = include_bytes!("../../tests/goldens/audio/stereo44k1.wav");
/// let prepared = processor.prepare_bytes(bytes, &DecodeOptions::default())?;
/// assert_eq!(prepared.soft_tokens, 25);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gemma4AudioProcessor {
    layout: Gemma4AudioLayout,
    mel: LogMel,
    /// A factor that samples are multiplied by first.
    input_scale: f32,
    samples_per_token: usize,
    max_samples: Option<usize>,
    token_count: TokenCount,
}

impl Default for Gemma4AudioProcessor {
    /// The class defaults of transformers 5.24: the tower's features, 30 seconds.
    fn default() -> Self {
        Self::from_parts(&Parameters::new(Variant::Gemma4))
    }
}

impl Gemma4AudioProcessor {
    fn from_parts(parameters: &Parameters) -> Self {
        Self {
            layout: Gemma4AudioLayout::Tower,
            input_scale: parameters.input_scale as f32,
            mel: parameters.log_mel(),
            samples_per_token: 640,
            max_samples: Some(MAX_SAMPLES),
            token_count: TokenCount::default(),
        }
    }

    /// Reads a checkpoint's configuration: the `feature_extractor` block of its
    /// `processor_config.json`, that block alone, or a flat `preprocessor_config.json`.
    ///
    /// The class named there chooses the layout. Absent keys have transformers' class
    /// defaults.
    ///
    /// # Errors
    /// [`Error::ConfigUnknown`](crate::Error::ConfigUnknown) for a key that isn't known not to
    /// matter, and [`Error::ConfigValue`](crate::Error::ConfigValue) for a value that can't be
    /// followed, as dither, which is random.
    pub fn from_json(config: &Value) -> Result<Self> {
        config::read(config)
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or
    /// `preprocessor_config.json` if that has no `feature_extractor`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`](crate::Error::Io) if there is
    /// neither file, [`Error::Json`](crate::Error::Json) if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&read_folder(
            folder.as_ref(),
            "feature_extractor",
            "preprocessor_config.json",
        )?)
    }

    /// This processor with another layout; the unified one takes clips of any length.
    #[must_use]
    pub fn with_layout(mut self, layout: Gemma4AudioLayout) -> Self {
        self.layout = layout;
        self.max_samples = match layout {
            Gemma4AudioLayout::Tower => Some(MAX_SAMPLES),
            Gemma4AudioLayout::Unified => None,
        };
        self
    }

    /// This processor with another longest clip, in samples at 16 kHz; none is no bound.
    #[must_use]
    pub fn with_max_samples(mut self, max_samples: Option<usize>) -> Self {
        self.max_samples = max_samples;
        self
    }

    /// This processor with another reference's count of soft tokens.
    #[must_use]
    pub fn with_token_count(mut self, token_count: TokenCount) -> Self {
        self.token_count = token_count;
        self
    }

    /// What a row of `input_features` is.
    #[must_use]
    pub fn layout(&self) -> Gemma4AudioLayout {
        self.layout
    }

    /// The longest clip that is taken whole, in samples at 16 kHz.
    #[must_use]
    pub fn max_samples(&self) -> Option<usize> {
        self.max_samples
    }
}
