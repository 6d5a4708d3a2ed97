//! From the bytes of a file to the pixels that Pillow would give.

#[cfg(feature = "jpeg")]
mod jpeg;
mod jpeg_header;
mod png;
mod reader;

use std::fmt;
use std::time::Instant;

use super::{Limits, Orientation, RgbImage};
use crate::error::{Error, Result};

/// A file format, told by the first bytes and never by a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG and APNG.
    Png,
}

impl Format {
    /// The format of `bytes`, if it is one known here.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
        const JPEG: &[u8] = b"\xff\xd8\xff";
        if bytes.starts_with(PNG) {
            Some(Self::Png)
        } else if bytes.starts_with(JPEG) {
            Some(Self::Jpeg)
        } else {
            None
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
        })
    }
}

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
    /// Refuses a picture before anything is allocated for it. `planes` counts the bytes a
    /// pixel that the decoder itself keeps.
    fn check_size(&self, width: u64, height: u64, bytes_per_pixel: u64) -> Result<()> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage { width, height });
        }
        let check = |what, found: u64, limit| {
            if found > limit {
                Err(Error::Limit { what, found, limit })
            } else {
                Ok(())
            }
        };
        let pixels = width.saturating_mul(height);
        check("pixels", pixels, self.limits.max_pixels)?;
        let bytes = pixels.saturating_mul(bytes_per_pixel);
        check("decoded bytes", bytes, self.limits.max_decoded_bytes)
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
    let Decoded {
        width,
        height,
        pixels,
        orientation,
    } = match format {
        Format::Png => png::decode(input)?,
        #[cfg(feature = "jpeg")]
        Format::Jpeg => jpeg::decode(input)?,
        #[cfg(not(feature = "jpeg"))]
        Format::Jpeg => {
            return Err(Error::FormatDisabled {
                format,
                feature: "jpeg",
            });
        }
    };
    tracing::debug!(%format, width, height, ?orientation, "decoded");
    let rgb = match pixels {
        Pixels::Rgb(data) => data,
        Pixels::Rgba(data) => flatten(&data, options.alpha),
    };
    let (width, height, data) = orientation.apply(width, height, 3, rgb);
    RgbImage::new(width, height, data)
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

/// The JPEG decoder of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JpegBackend {
    /// mozjpeg, a descendant of libjpeg-turbo: Pillow's pixels exactly.
    MozJpeg {
        /// Whether its SIMD code was compiled in. On x86 that needs `nasm` when the crate
        /// `mozjpeg-sys` is built; without, the same pixels take several times longer.
        simd: bool,
    },
}

/// Which JPEG decoder this build has, if any, and whether it is the fast one.
#[must_use]
pub fn jpeg_backend() -> Option<JpegBackend> {
    cfg!(feature = "jpeg").then_some(JpegBackend::MozJpeg {
        simd: cfg!(mozjpeg_simd),
    })
}
