//! The crate's one error type.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "audio")]
use crate::audio::Format as AudioFormat;
#[cfg(feature = "image")]
use crate::image::Format;
#[cfg(feature = "image")]
use crate::image::resize::{Backend, Filter};

/// The result of everything fallible in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the numbers that say so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The first bytes are those of no format that this crate knows.
    #[error("not an image format known here: the bytes begin with {head:02x?}")]
    UnknownFormat {
        /// Up to the first 12 bytes.
        head: Vec<u8>,
    },

    /// The format is known, but its decoder was left out of this build.
    #[cfg(feature = "image")]
    #[error("{format} is not in this build: turn on the feature `{feature}`")]
    FormatDisabled {
        /// The format found.
        format: Format,
        /// The cargo feature that adds its decoder.
        feature: &'static str,
    },

    /// The file breaks the rules of its format.
    #[cfg(feature = "image")]
    #[error("malformed {format}: {message}")]
    Malformed {
        /// The format found.
        format: Format,
        /// The decoder's words.
        message: String,
    },

    /// The file ends before its last pixel.
    #[cfg(feature = "image")]
    #[error("truncated {format}: the {bytes} bytes end before the picture does")]
    Truncated {
        /// The format found.
        format: Format,
        /// The length of what was given.
        bytes: u64,
    },

    /// The file is valid, but uses something that has no decoder here.
    #[cfg(feature = "image")]
    #[error("{format} with {what} is not supported")]
    Unsupported {
        /// The format found.
        format: Format,
        /// What it uses.
        what: String,
    },

    /// Something exceeds a configured limit; nothing was allocated for it.
    #[error("{what}: {found} is over the limit of {limit}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The count, as the file or the caller claims it.
        found: u64,
        /// The limit in force.
        limit: u64,
    },

    /// Decoding took longer than allowed.
    #[error("decoding took longer than the allowed {limit:?}")]
    TimeLimit {
        /// The limit in force.
        limit: Duration,
    },

    /// An image with no pixels.
    #[error("an image of {width}x{height} has no pixels")]
    EmptyImage {
        /// Width in pixels.
        width: u64,
        /// Height in pixels.
        height: u64,
    },

    /// A pixel buffer whose length isn't what its shape asks for.
    #[error("a {width}x{height} image of {channels} channels has {expected} bytes, not {found}")]
    BufferLength {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Bytes a pixel.
        channels: usize,
        /// What the shape asks for.
        expected: u64,
        /// What was given.
        found: usize,
    },

    /// A filter that the resize backend doesn't have.
    #[cfg(feature = "image")]
    #[error("the {backend:?} backend has no {filter:?} filter")]
    FilterUnsupported {
        /// The filter asked for.
        filter: Filter,
        /// The backend asked for.
        backend: Backend,
    },

    /// The size rule of the model family has no answer for this image.
    #[error("{family} cannot take an image of {width}x{height}: {reason}")]
    ImageSize {
        /// The family whose rule it is.
        family: &'static str,
        /// Width in pixels.
        width: u64,
        /// Height in pixels.
        height: u64,
        /// Which rule, with its numbers.
        reason: String,
    },

    /// A video has too few frames for the rule that samples it, or for the model.
    #[error("a video of {found} frames, where {wanted} are needed")]
    TooFewFrames {
        /// How many there are.
        found: usize,
        /// How many are needed.
        wanted: usize,
    },

    /// A video has no rate, where the rule that samples it needs one.
    #[error("a video without a frame rate, which its sampling needs")]
    NoFrameRate,

    /// A frame beyond the last was asked for.
    #[error("frame {index} of a video of {frames}")]
    FrameIndex {
        /// The index, from 0.
        index: usize,
        /// How many there are.
        frames: usize,
    },

    /// A frame has another size than the first.
    #[error("a frame of {found:?} pixels in a video of {expected:?}")]
    FrameSize {
        /// Width and height of the first frame.
        expected: (u32, u32),
        /// Width and height of this one.
        found: (u32, u32),
    },

    /// The first bytes are those of no audio format that this crate knows.
    #[error("not an audio format known here: the bytes begin with {head:02x?}")]
    UnknownAudioFormat {
        /// Up to the first 12 bytes.
        head: Vec<u8>,
    },

    /// The audio file breaks the rules of its format.
    #[cfg(feature = "audio")]
    #[error("malformed {format}: {message}")]
    MalformedAudio {
        /// The format found.
        format: AudioFormat,
        /// The decoder's words.
        message: String,
    },

    /// The audio file uses something that has no decoder here.
    #[cfg(feature = "audio")]
    #[error("{format} is not supported with {what}")]
    UnsupportedAudio {
        /// The format found.
        format: AudioFormat,
        /// What it uses.
        what: String,
    },

    /// A file without an audio track.
    #[cfg(feature = "audio")]
    #[error("{format} without audio: none of its tracks, {tracks} in all, is audio")]
    NoAudioTrack {
        /// The format found.
        format: AudioFormat,
        /// How many tracks it has.
        tracks: usize,
    },

    /// A sampling rate of 0, or beyond all use.
    #[error("a sampling rate of {found} Hz, not between 1 and {limit}")]
    SampleRate {
        /// The rate.
        found: u32,
        /// The highest that is taken.
        limit: u32,
    },

    /// No channels, or beyond all use.
    #[error("{found} channels, not between 1 and {limit}")]
    Channels {
        /// How many.
        found: usize,
        /// The most that are taken.
        limit: usize,
    },

    /// A sample that is infinite or not a number.
    #[error("sample frame {frame} is {value}")]
    NonFiniteSample {
        /// Its place, from 0.
        frame: u64,
        /// Its value.
        value: f32,
    },

    /// Samples so large that their features are not finite.
    #[error("the feature at row {row}, column {column} is {value}: the samples are too large")]
    NonFiniteFeature {
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// Its value.
        value: f32,
    },

    /// The resampling library failed, or samples are too large to be resampled.
    #[error("resampling: {message}")]
    Resampler {
        /// Its words.
        message: String,
    },

    /// The progress callback asked to stop.
    #[error("cancelled by the progress callback")]
    Cancelled,

    /// A source of bytes that can't be read.
    #[error("reading: {source}")]
    Read {
        /// Its words.
        source: std::io::Error,
    },

    /// A processor configuration holds a key that is not known here: it may change
    /// the pixels, so it is refused rather than ignored.
    #[error("processor configuration: unknown key `{key}` = {value}")]
    ConfigUnknown {
        /// The key.
        key: String,
        /// Its value, as JSON.
        value: String,
    },

    /// A processor configuration lacks a key that has no safe default.
    #[error("processor configuration: `{key}` is missing")]
    ConfigMissing {
        /// The key.
        key: &'static str,
    },

    /// A processor configuration holds a value that can't be followed.
    #[error("processor configuration: `{key}` = {value}: {expected}")]
    ConfigValue {
        /// The key.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// What would be accepted.
        expected: String,
    },

    /// A program that this needs can't be started.
    #[error("the program `{program}` could not be started: {source}")]
    Program {
        /// Its name or path.
        program: String,
        /// The system's words.
        source: std::io::Error,
    },

    /// A program failed.
    #[error("`{program}` failed ({status}): {message}")]
    ProgramFailed {
        /// Its name or path.
        program: String,
        /// Its exit status.
        status: String,
        /// The end of what it wrote to its standard error.
        message: String,
    },

    /// A file that isn't JSON.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's words, with line and column.
        source: serde_json::Error,
    },

    /// A file or folder that can't be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}
