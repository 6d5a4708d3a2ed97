//! The crate's one error type.

use std::path::PathBuf;
use std::time::Duration;

use crate::image::Format;

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
    #[error("{format} is not in this build: turn on the feature `{feature}`")]
    FormatDisabled {
        /// The format found.
        format: Format,
        /// The cargo feature that adds its decoder.
        feature: &'static str,
    },

    /// The file breaks the rules of its format.
    #[error("malformed {format}: {message}")]
    Malformed {
        /// The format found.
        format: Format,
        /// The decoder's words.
        message: String,
    },

    /// The file ends before its last pixel.
    #[error("truncated {format}: the {bytes} bytes end before the picture does")]
    Truncated {
        /// The format found.
        format: Format,
        /// The length of what was given.
        bytes: u64,
    },

    /// The file is valid, but uses something that has no decoder here.
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
