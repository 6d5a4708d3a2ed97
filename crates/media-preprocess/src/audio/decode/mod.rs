//! From the bytes of a file to one channel of samples at 16 kHz.

mod average;
mod caf;
mod codecs;
mod faults;
mod format;
mod mkv;
mod mp4;
mod ogg;
mod source;
mod stream;
mod track;
mod trim;
mod wav;

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

pub use format::Format;
pub use source::ReadSeek;
pub use stream::{AudioStream, SourceInfo};

use super::{Limits, Resampler, SAMPLE_RATE};
use crate::error::{Error, Result};

/// How to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Samples a second to give: 16,000, which every family here takes, by default.
    pub sample_rate: u32,
    /// How other rates become that one.
    pub resampler: Resampler,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            sample_rate: SAMPLE_RATE,
            resampler: Resampler::default(),
            limits: Limits::default(),
        }
    }
}

impl DecodeOptions {
    /// These options with another rate.
    #[must_use]
    pub fn with_sample_rate(self, sample_rate: u32) -> Self {
        Self {
            sample_rate,
            ..self
        }
    }

    /// These options with another resampler.
    #[must_use]
    pub fn with_resampler(self, resampler: Resampler) -> Self {
        Self { resampler, ..self }
    }

    /// These options with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

/// How far decoding has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Sample frames of the source decoded so far.
    pub frames: u64,
    /// How many there are, where the file says so.
    pub total: Option<u64>,
}

/// A decoded clip.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Audio {
    /// One channel, full scale ±1 (float files may exceed it).
    pub samples: Vec<f32>,
    /// Samples a second.
    pub sample_rate: u32,
    /// How many samples the clip has; more than `samples` holds if only the beginning was
    /// asked for.
    pub total_samples: u64,
    /// What the file is.
    pub source: SourceInfo,
    /// Whether the file ends before it should: the samples are those it has.
    pub truncated: bool,
    /// Packets that could not be decoded and were left out.
    pub damaged_packets: u64,
}

impl Audio {
    /// The clip's length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.total_samples as f64 / f64::from(self.sample_rate)
    }
}

/// Decodes a file: the mean of its channels, at 16 kHz or the rate of the options.
///
/// ```
/// use prefill_media_preprocess::audio::{DecodeOptions, decode};
///
/// # let bytes = include_bytes!("../../../tests/goldens/audio/tiny_641.wav");
/// let audio = decode(bytes, &DecodeOptions::default())?;
/// assert_eq!(audio.samples.len(), 641);
/// assert_eq!((audio.source.sample_rate, audio.source.channels), (16_000, 1));
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
///
/// # Errors
/// [`Error::UnknownAudioFormat`], [`Error::MalformedAudio`], [`Error::UnsupportedAudio`],
/// [`Error::NoAudioTrack`], [`Error::SampleRate`], [`Error::Channels`],
/// [`Error::NonFiniteSample`]; [`Error::Limit`] and [`Error::TimeLimit`] by the options. A file
/// that only ends early is not an error: [`Audio::truncated`] tells.
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Audio> {
    let stream = AudioStream::from_bytes(bytes, options)?;
    collect(stream, None, &mut |_| ControlFlow::Continue(()))
}

/// Decodes a file on disk, reading it in pieces.
///
/// # Errors
/// Those of [`decode`], and [`Error::Io`].
pub fn decode_file(path: impl AsRef<Path>, options: &DecodeOptions) -> Result<Audio> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let stream = AudioStream::new(file, options)?;
    collect(stream, None, &mut |_| ControlFlow::Continue(()))
}

/// Drains a stream at 16 kHz, keeping at most the first `keep` samples.
pub(crate) fn collect_16k(
    stream: AudioStream<'_>,
    keep: Option<usize>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Audio> {
    let rate = stream.options().sample_rate;
    if rate != SAMPLE_RATE {
        return Err(Error::SampleRate {
            found: rate,
            limit: SAMPLE_RATE,
        });
    }
    collect(stream, keep.map(|keep| keep as u64), progress)
}

/// Drains a stream, keeping the first `keep` samples, or all within the limits.
fn collect(
    mut stream: AudioStream<'_>,
    keep: Option<u64>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Audio> {
    let DecodeOptions {
        sample_rate,
        limits,
        ..
    } = *stream.options();
    let mut samples = Vec::new();
    let mut total_samples = 0;
    let mut block = Vec::new();
    while stream.next_block(&mut block)? {
        total_samples += block.len() as u64;
        let room = keep.map_or(u64::MAX, |keep| keep.saturating_sub(samples.len() as u64));
        let taken = (block.len() as u64).min(room) as usize;
        let held = samples.len() as u64 + taken as u64;
        if held > limits.max_samples {
            return Err(Error::Limit {
                what: "samples held",
                found: held,
                limit: limits.max_samples,
            });
        }
        samples.extend_from_slice(&block[..taken]);
        if progress(stream.progress()).is_break() {
            return Err(Error::Cancelled);
        }
    }
    Ok(Audio {
        samples,
        sample_rate,
        total_samples,
        truncated: stream.truncated(),
        damaged_packets: stream.damaged_packets(),
        source: stream.into_info(),
    })
}
