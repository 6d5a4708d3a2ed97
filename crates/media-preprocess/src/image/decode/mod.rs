//! From the bytes of a file to the pixels that Pillow would give.

mod backend;
#[cfg(feature = "bmp")]
mod bmp;
#[cfg(any(feature = "jpeg", feature = "tiff"))]
mod cmyk;
mod format;
#[cfg(feature = "gif")]
mod gif;
#[cfg(feature = "jpeg")]
mod jpeg;
#[cfg(any(feature = "jpeg", feature = "jpeg-pure"))]
mod jpeg_header;
mod png;
mod reader;
#[cfg(feature = "tiff")]
mod tiff;
#[cfg(feature = "webp")]
mod webp;
#[cfg(feature = "jpeg-pure")]
mod zune;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

pub use backend::{JpegBackend, jpeg_backend};
pub use format::Format;

use super::{Limits, Orientation, RgbImage};
use crate::error::{Error, Result};

/// What becomes of transparency. The references disagree, so it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AlphaPolicy {
    /// Forget it: the colour is kept even where it is invisible. What `convert('RGB')`,
    /// mlx-vlm and `transformers.image_utils.load_image` do.
    #[default]
    Drop,
    /// Composite on white: what the image processors of transformers 5.24 do when they are
    /// given a picture that still has its alpha, and vLLM.
    White,
}

/// How to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// What becomes of transparency.
    pub alpha: AlphaPolicy,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
}

impl DecodeOptions {
    /// These options with another alpha policy.
    #[must_use]
    pub fn with_alpha(self, alpha: AlphaPolicy) -> Self {
        Self { alpha, ..self }
    }

    /// These options with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

/// What a decoder gives: pixels as stored, before orientation and alpha.
struct Decoded {
    width: u32,
    height: u32,
    pixels: Pixels,
    orientation: Orientation,
}

/// Interleaved 8-bit pixels.
enum Pixels {
    Rgb(Vec<u8>),
    Rgba(Vec<u8>),
}

/// What every decoder is told: the bytes, the limits and when to stop.
#[derive(Clone, Copy)]
struct Input<'a> {
    bytes: &'a [u8],
    limits: &'a Limits,
    deadline: Option<Instant>,
}

impl Input<'_> {
    fn check_size(&self, width: u64, height: u64, bytes_per_pixel: u64) -> Result<()> {
        self.limits.check_size(width, height, bytes_per_pixel)
    }

    /// The most bytes that a decoder may hold.
    fn max_decoded(&self) -> usize {
        usize::try_from(self.limits.max_decoded_bytes).unwrap_or(usize::MAX)
    }

    /// The error of a decoder that met [`max_decoded`](Self::max_decoded) by itself.
    fn decoder_limit(&self) -> Error {
        let limit = self.limits.max_decoded_bytes;
        Error::Limit {
            what: "bytes held by the decoder",
            found: limit.saturating_add(1),
            limit,
        }
    }

    fn truncated(&self, format: Format) -> Error {
        Error::Truncated {
            format,
            bytes: self.bytes.len() as u64,
        }
    }

    fn check_time(&self) -> Result<()> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::TimeLimit {
                limit: self.limits.max_time,
            }),
            _ => Ok(()),
        }
    }
}

/// Decodes the bytes of an image file to upright RGB.
///
/// Equals `PIL.ImageOps.exif_transpose(image).convert('RGB')` of Pillow, format by format
/// as the README's conformance table says. Animations give their first frame.
///
/// # Errors
/// [`Error::UnknownFormat`], [`Error::FormatDisabled`], [`Error::Malformed`],
/// [`Error::Truncated`], [`Error::Unsupported`], [`Error::EmptyImage`], or, before anything
/// is allocated for it, [`Error::Limit`]; [`Error::TimeLimit`] while decoding.
pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<RgbImage> {
    let Some(format) = Format::detect(bytes) else {
        return Err(Error::UnknownFormat {
            head: bytes[..bytes.len().min(12)].to_vec(),
        });
    };
    let limits = &options.limits;
    let input = Input {
        bytes,
        limits,
        deadline: Instant::now().checked_add(limits.max_time),
    };
    // The decoders are other people's; should one panic, that is a broken file.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_format(input, format)));
    let Decoded {
        width,
        height,
        pixels,
        orientation,
    } = decoded.unwrap_or_else(|_| {
        let message = "the decoder panicked".to_owned();
        Err(Error::Malformed { format, message })
    })?;
    tracing::debug!(%format, width, height, ?orientation, "decoded");
    let rgb = match pixels {
        Pixels::Rgb(data) => data,
        Pixels::Rgba(data) => flatten(&data, options.alpha),
    };
    let (width, height, data) = orientation.apply(width, height, rgb);
    RgbImage::new(width, height, data)
}

fn decode_format(input: Input<'_>, format: Format) -> Result<Decoded> {
    match format {
        Format::Png => png::decode(input),
        #[cfg(feature = "jpeg")]
        Format::Jpeg if cfg!(panic = "unwind") => jpeg::decode(input),
        #[cfg(feature = "jpeg-pure")]
        Format::Jpeg => zune::decode(input),
        #[cfg(all(feature = "jpeg", not(feature = "jpeg-pure")))]
        Format::Jpeg => {
            // libjpeg leaves a broken file by unwinding, which would end such a program.
            let what = "panic = \"abort\" and without the feature `jpeg-pure`".to_owned();
            Err(Error::Unsupported { format, what })
        }
        #[cfg(feature = "webp")]
        Format::WebP => webp::decode(input),
        #[cfg(feature = "gif")]
        Format::Gif => gif::decode(input),
        #[cfg(feature = "bmp")]
        Format::Bmp => bmp::decode(input),
        #[cfg(feature = "tiff")]
        Format::Tiff => tiff::decode(input),
        Format::Heic | Format::Avif => Err(Error::Unsupported {
            format,
            what: "any content".to_owned(),
        }),
        #[allow(unreachable_patterns, reason = "reached when a feature is off")]
        _ => Err(Error::FormatDisabled {
            format,
            feature: format.feature(),
        }),
    }
}

/// RGBA to RGB.
fn flatten(rgba: &[u8], alpha: AlphaPolicy) -> Vec<u8> {
    let mut out = Vec::with_capacity(rgba.len() / 4 * 3);
    for pixel in rgba.as_chunks::<4>().0 {
        let &[r, g, b, a] = pixel;
        let [r, g, b] = match alpha {
            AlphaPolicy::Drop => [r, g, b],
            AlphaPolicy::White => [r, g, b].map(|value| over_white(value, a)),
        };
        out.extend_from_slice(&[r, g, b]);
    }
    out
}

/// `round(value * alpha / 255 + 255 - alpha)`; Pillow's `alpha_composite` over white gives
/// this for all 65,536 pairs.
fn over_white(value: u8, alpha: u8) -> u8 {
    let sum = u32::from(value) * u32::from(alpha) + 255 * (255 - u32::from(alpha));
    ((sum * 2 + 255) / 510) as u8
}

/// One byte a pixel to three.
fn gray_to_rgb(gray: &[u8]) -> Vec<u8> {
    gray.iter().flat_map(|&v| [v; 3]).collect()
}
