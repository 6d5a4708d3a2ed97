//! Audio: bytes of a file to one channel at 16 kHz, and to the features of the model families.

mod chunks;
mod decode;
mod features;
pub mod gemma3n;
pub mod gemma4;
mod limits;
mod mel;
mod resample;
mod usm;
pub mod whisper;

pub use chunks::Chunks;
pub use decode::{
    Audio, AudioStream, DecodeOptions, Format, Progress, ReadSeek, SourceInfo, decode, decode_file,
};
pub use features::AudioFeatures;
pub use gemma3n::Gemma3nAudioProcessor;
pub use gemma4::{Gemma4Audio, Gemma4AudioLayout, Gemma4AudioProcessor, TokenCount};
pub use limits::Limits;
pub use resample::{Resampler, resample};
pub use whisper::{WhisperAudio, WhisperAudioProcessor, WhisperPadding};

/// Samples a second of everything that a model gets.
pub const SAMPLE_RATE: u32 = 16_000;

/// What was cut from a clip because a model takes only so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Truncation {
    /// Samples at 16 kHz that the features are of.
    pub kept: u64,
    /// Samples that the clip has.
    pub total: u64,
}

impl Truncation {
    /// What was cut of `total` samples, if anything; it is logged too.
    fn of(kept: usize, total: u64) -> Option<Self> {
        let kept = kept as u64;
        if kept >= total {
            return None;
        }
        tracing::warn!(kept, total, "the clip is longer than the model takes");
        Some(Self { kept, total })
    }
}
