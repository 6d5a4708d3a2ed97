//! From samples to rows.

use std::ops::ControlFlow;

use super::{Gemma4AudioLayout, Gemma4AudioProcessor};
use crate::audio::decode::collect_16k;
use crate::audio::usm::{PAD_MULTIPLE, check_finite, rows};
use crate::audio::{AudioFeatures, AudioStream, DecodeOptions, Progress, SAMPLE_RATE, Truncation};
use crate::digest::DigestWriter;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl Gemma4AudioProcessor {
    /// Prepares one channel of samples at 16 kHz.
    ///
    /// What is longer than [`max_samples`](Self::max_samples) is cut, as transformers cuts it,
    /// and reported.
    ///
    /// # Errors
    /// [`Error::NonFiniteSample`]; [`Error::NonFiniteFeature`] for samples so large that f32
    /// can't hold their spectrum.
    pub fn prepare(&self, samples: &[f32]) -> Result<AudioFeatures> {
        let _span = tracing::debug_span!("gemma4_audio_prepare", layout = ?self.layout).entered();
        self.prepare_part(samples, samples.len() as u64)
    }

    /// Decodes the bytes of a file, and prepares it. Only as much is kept in memory as the
    /// model takes.
    ///
    /// # Errors
    /// Those of [`decode`](crate::audio::decode) and of [`prepare`](Self::prepare).
    pub fn prepare_bytes(&self, bytes: &[u8], options: &DecodeOptions) -> Result<AudioFeatures> {
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
    ) -> Result<AudioFeatures> {
        let audio = collect_16k(stream, self.max_samples, progress)?;
        self.prepare_part(&audio.samples, audio.total_samples)
    }

    /// Prepares a clip of `total` samples, of which at least those that are kept are given.
    fn prepare_part(&self, samples: &[f32], total: u64) -> Result<AudioFeatures> {
        let kept = samples.len().min(self.max_samples.unwrap_or(usize::MAX));
        let samples = &samples[..kept];
        check_finite(samples)?;
        let (input_features, input_features_mask, dim) = match self.layout {
            Gemma4AudioLayout::Tower => self.mel_rows(samples)?,
            Gemma4AudioLayout::Unified => self.raw_rows(samples),
        };
        let rows = input_features_mask.len();
        let mut digest = DigestWriter::new("gemma4.audio");
        digest.f32s("input_features", &[rows, dim], &input_features);
        let mask: Vec<u8> = input_features_mask
            .iter()
            .map(|&valid| valid.into())
            .collect();
        digest.u8s("input_features_mask", &[rows], &mask);
        Ok(AudioFeatures {
            soft_tokens: self.soft_tokens(kept),
            seconds: total as f64 / f64::from(SAMPLE_RATE),
            truncation: Truncation::of(kept, total),
            digest: digest.finish(),
            input_features,
            input_features_mask,
            rows,
            dim,
        })
    }

    /// The audio tokens of a clip of `samples` at 16 kHz.
    #[must_use]
    pub fn soft_tokens(&self, samples: usize) -> usize {
        let kept = samples.min(self.max_samples.unwrap_or(usize::MAX));
        match self.layout {
            Gemma4AudioLayout::Tower => self.token_count.of(kept, self.valid_rows(kept)),
            Gemma4AudioLayout::Unified => kept.div_ceil(self.samples_per_token),
        }
    }

    /// Rows whose window holds no padding: the last sample of row `i`, which has one more than
    /// the window, lies before the end.
    fn valid_rows(&self, samples: usize) -> usize {
        let (frame, hop) = (self.mel.frame_length(), self.mel.hop);
        let padded = frame / 2 + samples.next_multiple_of(PAD_MULTIPLE);
        (frame / 2 + samples)
            .checked_sub(frame + 1)
            .map_or(0, |rest| rest / hop + 1)
            .min(self.mel.num_frames(padded))
    }

    /// `Gemma4AudioFeatureExtractor` of transformers.
    fn mel_rows(&self, samples: &[f32]) -> Result<(Vec<f32>, Vec<bool>, usize)> {
        // Half a window of zeros before, zeros after to a round length.
        let before = self.mel.frame_length() / 2;
        let mut features = rows(&self.mel, samples, self.input_scale, before)?;
        let dim = self.mel.mels;
        let valid = self.valid_rows(samples.len());
        let count = features.len() / dim;
        for value in &mut features[valid * dim..] {
            // The reference multiplies by false: a negative value becomes a negative zero.
            *value *= 0.0;
        }
        let mask = (0..count).map(|row| row < valid).collect();
        Ok((features, mask, dim))
    }

    /// `Gemma4UnifiedAudioFeatureExtractor` of transformers.
    fn raw_rows(&self, samples: &[f32]) -> (Vec<f32>, Vec<bool>, usize) {
        let dim = self.samples_per_token;
        let rows = samples.len().div_ceil(dim);
        let mut features = samples.to_vec();
        features.resize(rows * dim, 0.0);
        (features, vec![true; rows], dim)
    }
}
