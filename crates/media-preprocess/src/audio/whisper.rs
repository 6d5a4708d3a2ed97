//! Whisper, and the Qwen models that hear through its features.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::decode::collect_16k;
use super::mel::{Bank, Filters, LogPowerMel, Scale, hann_f64};
use super::usm::check_finite;
use super::{AudioStream, DecodeOptions, Progress, SAMPLE_RATE, Truncation};
use crate::config::{Block, read_folder};
use crate::digest::{DigestWriter, MediaDigest};
use crate::error::{Error, Result};

/// To which length a clip is filled up with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WhisperPadding {
    /// To `chunk_length` seconds, and cut there: Whisper and Qwen2.5-Omni.
    #[default]
    Chunk,
    /// Not at all, and never cut: Qwen3-Omni.
    None,
}

/// A clip as Whisper takes it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WhisperAudio {
    /// `[mels, frames]`, row major: logarithms of mel powers, from the clip's loudest value down to
    /// 2 below it.
    pub input_features: Vec<f32>,
    /// `[frames]`: which frames begin with a real sample.
    pub attention_mask: Vec<bool>,
    /// Mel bands: 80 or 128.
    pub mels: usize,
    /// Frames, every 10 ms.
    pub frames: usize,
    /// The clip's length in seconds, before any truncation.
    pub seconds: f64,
    /// What was cut, if the clip was longer than a chunk.
    pub truncation: Option<Truncation>,
    /// What names this prepared clip in caches.
    pub digest: MediaDigest,
}

impl WhisperAudio {
    /// Frames that the mask keeps.
    #[must_use]
    pub fn valid_frames(&self) -> usize {
        self.attention_mask.iter().filter(|&&valid| valid).count()
    }

    /// Audio tokens of Qwen2.5-Omni: two strides of 2.
    #[must_use]
    pub fn qwen2_5_omni_tokens(&self) -> usize {
        // `_get_feat_extract_output_lengths` of its processor.
        let halved = self.valid_frames().div_ceil(2);
        halved / 2
    }

    /// Audio tokens of Qwen3-Omni: 13 for every 100 frames, the rest by three strides of 2.
    #[must_use]
    pub fn qwen3_omni_tokens(&self) -> usize {
        // `_get_feat_extract_output_lengths` of its processor, with `n_window` 50.
        let valid = self.valid_frames();
        let rest = (valid % 100).div_ceil(2).div_ceil(2).div_ceil(2);
        rest + valid / 100 * 13
    }
}

/// Prepares audio for Whisper and the Qwen-Omni models.
///
/// The reference is the numpy form of transformers' extractor; its torch form, which computes in
/// f32, differs from it by about 1e-5.
///
/// ```
/// use prefill_media_preprocess::audio::{WhisperAudioProcessor, WhisperPadding};
///
/// let samples = vec![0.0; 24_000];
/// let prepared = WhisperAudioProcessor::default().prepare(&samples)?;
/// assert_eq!((prepared.mels, prepared.frames, prepared.valid_frames()), (80, 3000, 150));
///
/// let config = serde_json::json!({"feature_size": 128});
/// let processor = WhisperAudioProcessor::from_json(&config)?.with_padding(WhisperPadding::None);
/// let prepared = processor.prepare(&samples)?;
/// assert_eq!((prepared.mels, prepared.frames, prepared.qwen3_omni_tokens()), (128, 150, 20));
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WhisperAudioProcessor {
    mel: LogPowerMel,
    hop: usize,
    chunk: usize,
    padding: WhisperPadding,
}

impl Default for WhisperAudioProcessor {
    /// The class defaults of transformers 5.24: 80 bands, 30 seconds.
    fn default() -> Self {
        Self::new(80, 160, 400, 30)
    }
}

impl WhisperAudioProcessor {
    fn new(mels: usize, hop: usize, fft_length: usize, seconds: usize) -> Self {
        let filters = Filters::new(Bank {
            mels,
            bins: fft_length / 2 + 1,
            min_hertz: 0.0,
            max_hertz: 8000.0,
            sampling_rate: f64::from(SAMPLE_RATE),
            scale: Scale::Slaney,
            area_norm: true,
        });
        Self {
            mel: LogPowerMel::new(hann_f64(fft_length), hop, mels, filters),
            hop,
            chunk: seconds * SAMPLE_RATE as usize,
            padding: WhisperPadding::Chunk,
        }
    }

    /// Reads a checkpoint's configuration: the `feature_extractor` block of its
    /// `processor_config.json`, that block alone, or a flat `preprocessor_config.json`.
    ///
    /// # Errors
    /// [`Error::ConfigUnknown`] for a key that isn't known not to matter, and
    /// [`Error::ConfigValue`] for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        let mut block = Block::new(config, "feature_extractor")?;
        block.class("feature_extractor_type", &["WhisperFeatureExtractor"])?;
        block.common_audio()?;
        let mels = block.size("feature_size", 1024)?.unwrap_or(80);
        let hop = block.size("hop_length", 4096)?.unwrap_or(160);
        let fft_length = block.size("n_fft", 4096)?.unwrap_or(400);
        let seconds = block.size("chunk_length", 3600)?.unwrap_or(30);
        let samples = seconds * SAMPLE_RATE as usize;
        block.exactly("n_samples", samples)?;
        block.exactly("nb_max_frames", samples / hop)?;
        // Old checkpoints carry the filters, which the class computes anew.
        let _ = block.get("mel_filters");
        block.finish()?;
        Ok(Self::new(mels, hop, fft_length, seconds))
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or
    /// `preprocessor_config.json` if that has no `feature_extractor`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`] if there is neither file,
    /// [`Error::Json`] if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        Self::from_json(&read_folder(
            folder.as_ref(),
            "feature_extractor",
            "preprocessor_config.json",
        )?)
    }

    /// This processor with another padding.
    #[must_use]
    pub fn with_padding(mut self, padding: WhisperPadding) -> Self {
        self.padding = padding;
        self
    }

    /// The longest clip that is taken whole, in samples at 16 kHz.
    #[must_use]
    pub fn max_samples(&self) -> Option<usize> {
        (self.padding == WhisperPadding::Chunk).then_some(self.chunk)
    }

    /// Prepares one channel of samples at 16 kHz.
    ///
    /// # Errors
    /// [`Error::NonFiniteSample`].
    pub fn prepare(&self, samples: &[f32]) -> Result<WhisperAudio> {
        self.prepare_part(samples, samples.len() as u64)
    }

    /// Decodes the bytes of a file, and prepares it.
    ///
    /// # Errors
    /// Those of [`decode`](super::decode) and of [`prepare`](Self::prepare).
    pub fn prepare_bytes(&self, bytes: &[u8], options: &DecodeOptions) -> Result<WhisperAudio> {
        let stream = AudioStream::from_bytes(bytes, &options.with_sample_rate(SAMPLE_RATE))?;
        self.prepare_stream(stream, &mut |_| ControlFlow::Continue(()))
    }

    /// Prepares what a stream still has, telling `progress` after every packet; it may stop the
    /// work.
    ///
    /// # Errors
    /// Those of [`prepare_bytes`](Self::prepare_bytes); [`Error::Cancelled`] if `progress` says
    /// so; [`Error::SampleRate`] if the stream's rate isn't 16 kHz.
    pub fn prepare_stream(
        &self,
        stream: AudioStream<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<WhisperAudio> {
        let audio = collect_16k(stream, self.max_samples(), progress)?;
        self.prepare_part(&audio.samples, audio.total_samples)
    }

    fn prepare_part(&self, samples: &[f32], total: u64) -> Result<WhisperAudio> {
        let kept = samples.len().min(self.max_samples().unwrap_or(usize::MAX));
        let samples = &samples[..kept];
        check_finite(samples)?;
        let length = self.max_samples().unwrap_or(kept);
        let input_features = self.mel.columns(samples, length);
        let (mels, frames) = (self.mel.mels, self.mel.num_frames(length));
        if let Some(at) = input_features.iter().position(|value| !value.is_finite()) {
            return Err(Error::NonFiniteFeature {
                row: at / frames,
                column: at % frames,
                value: input_features[at],
            });
        }
        let attention_mask: Vec<bool> = (0..frames).map(|frame| frame * self.hop < kept).collect();
        let mut digest = DigestWriter::new("whisper.audio");
        digest.f32s("input_features", &[mels, frames], &input_features);
        let mask: Vec<u8> = attention_mask.iter().map(|&valid| valid.into()).collect();
        digest.u8s("attention_mask", &[frames], &mask);
        Ok(WhisperAudio {
            input_features,
            attention_mask,
            mels,
            frames,
            seconds: total as f64 / f64::from(SAMPLE_RATE),
            truncation: Truncation::of(kept, total),
            digest: digest.finish(),
        })
    }
}
