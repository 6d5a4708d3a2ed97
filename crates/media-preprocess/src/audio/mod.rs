//! Audio: bytes of a file to one channel at 16 kHz, and to the features of the model families.

mod decode;
pub mod gemma4;
mod limits;
#[allow(
    dead_code,
    unused_imports,
    reason = "the parts of families that follow"
)]
mod mel;
mod resample;

pub use decode::{
    Audio, AudioStream, DecodeOptions, Format, Progress, ReadSeek, SourceInfo, decode, decode_file,
};
pub use gemma4::{Gemma4Audio, Gemma4AudioLayout, Gemma4AudioProcessor, TokenCount};
pub use limits::Limits;
pub use resample::{Resampler, resample};

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

/// The codecs of this build.
fn codecs() -> &'static symphonia::core::codecs::registry::CodecRegistry {
    symphonia::default::get_codecs()
}
