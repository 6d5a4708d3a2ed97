//! Gemma 3n: log-mel features with pre-emphasis, and always as many soft tokens.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::decode::collect_16k;
use super::mel::LogMel;
use super::usm::{MAX_SAMPLES, Parameters, Variant, check_finite, rows};
use super::{AudioFeatures, AudioStream, DecodeOptions, Progress, SAMPLE_RATE, Truncation};
use crate::config::{Block, read_folder};
use crate::digest::DigestWriter;
use crate::error::Result;

/// Audio tokens of every clip, whatever its length (`audio_seq_length` of the processor); in the
/// prompt two newlines stand before and after them.
pub const SOFT_TOKENS: usize = 188;

/// Prepares audio for Gemma 3n.
///
/// ```
/// use prefill_media_preprocess::audio::Gemma3nAudioProcessor;
///
/// let prepared = Gemma3nAudioProcessor::default().prepare(&vec![0.0; 16_000])?;
/// assert_eq!((prepared.rows, prepared.dim, prepared.soft_tokens), (97, 128, 188));
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gemma3nAudioProcessor {
    mel: LogMel,
    input_scale: f32,
    max_samples: Option<usize>,
}

impl Default for Gemma3nAudioProcessor {
    /// The class defaults of transformers 5.24.
    fn default() -> Self {
        Self::from_parts(&Parameters::new(Variant::Gemma3n))
    }
}

impl Gemma3nAudioProcessor {
    fn from_parts(parameters: &Parameters) -> Self {
        Self {
            mel: parameters.log_mel(),
            input_scale: parameters.input_scale as f32,
            max_samples: Some(MAX_SAMPLES),
        }
    }

    /// Reads a checkpoint's configuration: the `feature_extractor` block of its
    /// `processor_config.json`, that block alone, or a flat `preprocessor_config.json`.
    ///
    /// # Errors
    /// [`Error::ConfigUnknown`](crate::Error::ConfigUnknown) for a key that isn't known not to
    /// matter, and [`Error::ConfigValue`](crate::Error::ConfigValue) for a value that can't be
    /// followed, as dither, which is random.
    pub fn from_json(config: &Value) -> Result<Self> {
        let mut block = Block::new(config, "feature_extractor")?;
        block.class("feature_extractor_type", &["Gemma3nAudioFeatureExtractor"])?;
        block.common_audio()?;
        let parameters = Parameters::read(&mut block, Variant::Gemma3n)?;
        block.finish()?;
        Ok(Self::from_parts(&parameters))
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

    /// This processor with another longest clip, in samples at 16 kHz; none is no bound.
    #[must_use]
    pub fn with_max_samples(mut self, max_samples: Option<usize>) -> Self {
        self.max_samples = max_samples;
        self
    }

    /// Prepares one channel of samples at 16 kHz. What is longer than 30 seconds is cut, as
    /// transformers cuts it, and reported.
    ///
    /// # Errors
    /// [`Error::NonFiniteSample`](crate::Error::NonFiniteSample),
    /// [`Error::NonFiniteFeature`](crate::Error::NonFiniteFeature).
    pub fn prepare(&self, samples: &[f32]) -> Result<AudioFeatures> {
        self.prepare_part(samples, samples.len() as u64)
    }

    /// Decodes the bytes of a file, and prepares it.
    ///
    /// # Errors
    /// Those of [`decode`](super::decode) and of [`prepare`](Self::prepare).
    pub fn prepare_bytes(&self, bytes: &[u8], options: &DecodeOptions) -> Result<AudioFeatures> {
        let stream = AudioStream::from_bytes(bytes, &options.with_sample_rate(SAMPLE_RATE))?;
        self.prepare_stream(stream, &mut |_| ControlFlow::Continue(()))
    }

    /// Prepares what a stream still has, telling `progress` after every packet; it may stop the
    /// work.
    ///
    /// # Errors
    /// Those of [`prepare_bytes`](Self::prepare_bytes);
    /// [`Error::Cancelled`](crate::Error::Cancelled) if `progress` says so;
    /// [`Error::SampleRate`](crate::Error::SampleRate) if the stream's rate isn't 16 kHz.
    pub fn prepare_stream(
        &self,
        stream: AudioStream<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<AudioFeatures> {
        let audio = collect_16k(stream, self.max_samples, progress)?;
        self.prepare_part(&audio.samples, audio.total_samples)
    }

    fn prepare_part(&self, samples: &[f32], total: u64) -> Result<AudioFeatures> {
        let kept = samples.len().min(self.max_samples.unwrap_or(usize::MAX));
        let samples = &samples[..kept];
        check_finite(samples)?;
        let input_features = rows(&self.mel, samples, self.input_scale, 0)?;
        let dim = self.mel.mels;
        let rows = input_features.len() / dim;
        // Every 160th value of the samples' mask.
        let input_features_mask: Vec<bool> =
            (0..rows).map(|row| row * self.mel.hop < kept).collect();
        let mut digest = DigestWriter::new("gemma3n.audio");
        digest.f32s("input_features", &[rows, dim], &input_features);
        let mask: Vec<u8> = input_features_mask
            .iter()
            .map(|&valid| valid.into())
            .collect();
        digest.u8s("input_features_mask", &[rows], &mask);
        Ok(AudioFeatures {
            soft_tokens: SOFT_TOKENS,
            seconds: total as f64 / f64::from(SAMPLE_RATE),
            truncation: Truncation::of(kept, total),
            digest: digest.finish(),
            input_features,
            input_features_mask,
            rows,
            dim,
        })
    }
}
