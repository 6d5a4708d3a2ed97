//! Bytes of images to exact model input. No MLX: the outputs are plain buffers with
//! documented shapes.
//!
//! - [`image::decode`]: the bytes of a file to RGB, as Pillow decodes, orients and converts.
//! - [`image::resize`]: Pillow's 8-bit resampling, byte for byte.
//! - [`image::Gemma4ImageProcessor`]: patches, positions and soft-token count for the
//!   vision tower of Gemma 4.
//! - [`MediaDigest`]: what names a prepared medium in a cache.
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

mod digest;
mod error;
#[cfg(feature = "image")]
pub mod image;

pub use digest::MediaDigest;
pub use error::{Error, Result};
