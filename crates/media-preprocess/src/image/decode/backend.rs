//! Which JPEG decoder a build has.

use std::fmt;

/// The JPEG decoder of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JpegBackend {
    /// mozjpeg, a descendant of libjpeg-turbo: Pillow's pixels exactly.
    MozJpeg {
        /// Whether its SIMD code was compiled in. On x86 that needs `nasm` when the crate
        /// `mozjpeg-sys` is built; without, the same pixels take about twice as long.
        simd: bool,
    },
    /// zune-jpeg, pure Rust: up to 5 levels off Pillow.
    ZuneJpeg,
}

impl fmt::Display for JpegBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MozJpeg { simd: true } => "mozjpeg with SIMD",
            Self::MozJpeg { simd: false } => "mozjpeg without SIMD",
            Self::ZuneJpeg => "zune-jpeg",
        })
    }
}

/// Which JPEG decoder this build has, if any, and whether it is the fast one.
#[must_use]
pub fn jpeg_backend() -> Option<JpegBackend> {
    if cfg!(all(feature = "jpeg", panic = "unwind")) {
        Some(JpegBackend::MozJpeg {
            simd: cfg!(mozjpeg_simd),
        })
    } else if cfg!(feature = "jpeg-pure") {
        Some(JpegBackend::ZuneJpeg)
    } else {
        None
    }
}
