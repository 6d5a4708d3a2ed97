//! What kind of file it is.

use std::fmt;

/// A file format, told by the first bytes and never by a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG and APNG.
    Png,
    /// WebP.
    WebP,
    /// GIF.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF, not `BigTIFF`.
    Tiff,
    /// HEIF with HEVC inside: recognised, not decoded.
    Heic,
    /// HEIF with AV1 inside: recognised, not decoded.
    Avif,
}

impl Format {
    /// The format of `bytes`, if it is one known here.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Some(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'B', b'M', ..] => Some(Self::Bmp),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some(Self::Tiff),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => match brand.first_chunk()? {
                b"avif" | b"avis" => Some(Self::Avif),
                b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1" => {
                    Some(Self::Heic)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The cargo feature that brings its decoder.
    pub(super) fn feature(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::WebP => "webp",
            Self::Gif => "gif",
            Self::Bmp => "bmp",
            Self::Tiff => "tiff",
            Self::Png | Self::Heic | Self::Avif => "image",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::Heic => "HEIC",
            Self::Avif => "AVIF",
        })
    }
}
