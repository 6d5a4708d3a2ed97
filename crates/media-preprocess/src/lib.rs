//! Bytes of images, videos and audio to the exact input of multimodal models. No MLX: the outputs
//! are plain buffers with documented shapes.
//!
//! - [`image::decode`]: the bytes of a file to RGB, as Pillow decodes, orients and converts;
//!   [`image::Limits`] bound what a file may ask for.
//! - [`image::resize`]: Pillow's 8-bit resampling, byte for byte, for a named pass order, and
//!   torchvision's.
//! - [`image::Gemma4ImageProcessor`], [`image::QwenImageProcessor`]: patches, positions or grid
//!   and soft-token count, configured by the checkpoint.
//! - [`video::FrameSource`] and what implements it, [`video::Gemma4VideoProcessor`],
//!   [`video::QwenVideoProcessor`], [`video::Qwen2VideoProcessor`].
//! - [`audio::decode`] and [`audio::AudioStream`]: the bytes of a file to one channel at 16 kHz, by a
//!   named [`audio::Resampler`]; [`audio::Limits`] bound what is held.
//! - [`audio::Gemma4AudioProcessor`], [`audio::Gemma3nAudioProcessor`],
//!   [`audio::WhisperAudioProcessor`]: mel features or raw frames, mask and soft tokens, configured
//!   by the checkpoint; [`audio::Chunks`] cuts what is longer than they take.
//! - [`MediaDigest`]: what names a prepared medium in a cache.
//!
//! "Exact" names its reference, since the references differ: the pass order of a Pillow
//! version ([`image::resize::PassOrder`]), the resize ([`image::resize::Backend`]), the
//! arithmetic from byte to f32 ([`image::Rescale`]), what becomes of transparency
//! ([`image::AlphaPolicy`]), the rules for video ([`video::VideoRules`]), the resampler
//! ([`audio::Resampler`]), the count of audio tokens ([`audio::TokenCount`]). The README's table
//! says for each format and mode how exact it is, and by which evidence.
//!
//! ```
//! use prefill_media_preprocess::image::{DecodeOptions, Gemma4ImageProcessor, decode};
//!
//! # fn main() -> Result<(), prefill_media_preprocess::Error> {
//! # let bytes = include_bytes!("../tests/goldens/inputs/photo_161x123.png");
//! let image = decode(bytes, &DecodeOptions::default())?;
//! let prepared = Gemma4ImageProcessor::default().prepare(&image)?;
//! assert_eq!(prepared.pixel_values.len(), prepared.num_patches() * 768);
//! println!("{} soft tokens, digest {}", prepared.soft_tokens, prepared.digest);
//! # Ok(())
//! # }
//! ```
//!
//! ```
//! use prefill_media_preprocess::audio::{DecodeOptions, Gemma4AudioProcessor};
//!
//! # fn main() -> Result<(), prefill_media_preprocess::Error> {
//! # let bytes = include_bytes!("../tests/goldens/audio/speech44k1.mp3");
//! let processor = Gemma4AudioProcessor::default();
//! let prepared = processor.prepare_bytes(bytes, &DecodeOptions::default())?;
//! assert_eq!(prepared.input_features.len(), prepared.rows * 128);
//! println!("{} s are {} soft tokens", prepared.seconds, prepared.soft_tokens);
//! # Ok(())
//! # }
//! ```
//!
//! What it does not do: write files, apply colour profiles, decode HEIC, AVIF or palette
//! TIFF, choose a configuration for you (Qwen's bounds on pixels have no default), build prompts,
//! or run models.

#[cfg(feature = "audio")]
pub mod audio;
#[cfg(any(feature = "audio", feature = "image"))]
#[cfg_attr(
    not(feature = "image"),
    allow(dead_code, reason = "what pictures alone read")
)]
mod config;
#[cfg_attr(
    not(all(feature = "audio", feature = "image")),
    allow(dead_code, reason = "what is hashed is optional")
)]
mod digest;
mod error;
#[cfg(feature = "image")]
pub mod image;
#[cfg(feature = "video")]
pub mod video;

pub use digest::MediaDigest;
pub use error::{Error, Result};
