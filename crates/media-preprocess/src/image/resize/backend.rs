//! Whose resize is reproduced.

/// Whose arithmetic, and in which order of the two passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Pillow's: weights of 22 fractional bits. Exact for every filter.
    Pillow(PassOrder),
    /// torchvision's antialiased kernel for u8, which transformers' default image processors
    /// use: weights of 16 bits, horizontal first. Bilinear and bicubic only; the README says
    /// how exact.
    Torchvision,
}

impl Default for Backend {
    fn default() -> Self {
        Self::Pillow(PassOrder::default())
    }
}

/// Which pass comes first, by the version of Pillow that does it so.
///
/// The versions agree wherever an axis keeps its size, or where both orders round alike;
/// elsewhere bytes differ by a few levels. (Measured; the rule of 13.0.0 is that of
/// `Resample.c`, that of 12.2 is in `Image.resize`.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PassOrder {
    /// Pillow up to 12.1: horizontal first, always.
    V11,
    /// Pillow 12.2 and 12.3: vertical first if the source is more than 100 times as high
    /// as wide and gets lower.
    V12,
    /// Pillow 13.0: vertical first if the height loses more than twice the rows that the
    /// width loses columns.
    #[default]
    V13,
}

impl PassOrder {
    /// Whether the vertical pass runs first for this source and target, `(width, height)`.
    #[must_use]
    pub fn vertical_first(self, source: (u32, u32), target: (u32, u32)) -> bool {
        let (width, height) = (i64::from(source.0), i64::from(source.1));
        let (out_width, out_height) = (i64::from(target.0), i64::from(target.1));
        let lost_rows = height - out_height;
        match self {
            Self::V11 => false,
            Self::V12 => height > width * 100 && lost_rows > 0,
            Self::V13 => lost_rows > 0 && lost_rows > 2 * (width - out_width),
        }
    }
}
