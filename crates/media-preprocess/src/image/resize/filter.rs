//! The kernels of Pillow's `Resample.c`.

use std::f64::consts::PI;

/// A resampling filter, by Pillow's name and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest source pixel (Pillow's number 0).
    Nearest,
    /// Windowed sinc over 3 lobes (1).
    Lanczos,
    /// Linear, over the source pixels that an output covers (2).
    Bilinear,
    /// Keys' cubic with a = -0.5 (3).
    #[default]
    Bicubic,
    /// The mean of the source pixels that an output covers (4).
    Box,
    /// Hamming-windowed sinc of one lobe (5).
    Hamming,
}

impl Filter {
    /// The filter with Pillow's number, as a processor configuration's `resample` gives it.
    #[must_use]
    pub fn from_pillow(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            4 => Self::Box,
            5 => Self::Hamming,
            _ => return None,
        })
    }

    /// Half the kernel's width, in source pixels at scale 1.
    pub(super) fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The kernel at `x`, in the operation order of the C source.
    pub(super) fn weight(self, x: f64) -> f64 {
        match self {
            Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Hamming => hamming(x.abs()),
            Self::Bicubic => bicubic(x.abs()),
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos | Self::Nearest => 0.0,
        }
    }
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn hamming(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    let x = x * PI;
    x.sin() / x * (0.54 + 0.46 * x.cos())
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}
