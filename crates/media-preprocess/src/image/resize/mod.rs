//! Pillow's 8-bit resampling, byte for byte.
//!
//! Two passes, one an axis: i32 weights with 22 fractional bits, an i32 accumulator that
//! starts at one half, a result shifted, clipped and **stored as u8** between the passes.
//! Because of that rounding the order of the passes changes bytes, and Pillow's order
//! changed twice: see [`PassOrder`].

mod coeffs;
mod filter;
mod nearest;
mod scalar;

use std::num::NonZeroUsize;

use coeffs::Coefficients;
pub use filter::Filter;

use crate::error::{Error, Result};

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

/// An 8-bit image of 1, 3 or 4 interleaved channels, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct ImageView<'a> {
    width: u32,
    height: u32,
    channels: usize,
    data: &'a [u8],
}

impl<'a> ImageView<'a> {
    /// A view of `data`, rows from the top, `width * height * channels` bytes.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] if a side is 0, [`Error::BufferLength`] if the length is not
    /// that product, or if `channels` is not 1 (L), 3 (RGB) or 4 (RGBA).
    pub fn new(width: u32, height: u32, channels: usize, data: &'a [u8]) -> Result<Self> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let expected = u64::from(width) * u64::from(height) * channels as u64;
        if !matches!(channels, 1 | 3 | 4) || expected != data.len() as u64 {
            let found = data.len();
            return Err(Error::BufferLength {
                width,
                height,
                channels,
                expected,
                found,
            });
        }
        Ok(Self {
            width,
            height,
            channels,
            data,
        })
    }

    fn row_len(&self) -> usize {
        self.width as usize * self.channels
    }
}

/// A resize operation: filter, pass order and the number of threads.
///
/// Bytes depend on the filter and on the pass order only, never on threads or on the
/// instructions used.
///
/// ```
/// use prefill_media_preprocess::image::resize::{ImageView, Resizer};
///
/// let pixels = [10, 20, 30, 250, 240, 230]; // two RGB pixels
/// let source = ImageView::new(2, 1, 3, &pixels)?;
/// let doubled = Resizer::default().resize(source, 4, 2)?;
/// assert_eq!(doubled.len(), 4 * 2 * 3);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resizer {
    /// The resampling filter. Bicubic by default.
    pub filter: Filter,
    /// Whose pass order. The newest Pillow's by default.
    pub pass_order: PassOrder,
    /// How many threads share the work. One by default.
    pub threads: NonZeroUsize,
}

impl Default for Resizer {
    fn default() -> Self {
        Self {
            filter: Filter::Bicubic,
            pass_order: PassOrder::default(),
            threads: NonZeroUsize::MIN,
        }
    }
}

impl Resizer {
    /// Resizes to `width` by `height`; the answer has the channels of the source.
    ///
    /// A pass whose axis keeps its size is skipped, so equal sizes copy.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] if a target side is 0.
    pub fn resize(&self, source: ImageView<'_>, width: u32, height: u32) -> Result<Vec<u8>> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let size = (source.width, source.height);
        if size == (width, height) {
            return Ok(source.data.to_vec());
        }
        if self.filter == Filter::Nearest {
            return Ok(nearest::resize(source, width, height));
        }
        let horizontal =
            (source.width != width).then(|| Coefficients::new(self.filter, source.width, width));
        let vertical = (source.height != height)
            .then(|| Coefficients::new(self.filter, source.height, height));
        let (first, second) = if self.pass_order.vertical_first(size, (width, height)) {
            (
                vertical.map(Pass::Vertical),
                horizontal.map(Pass::Horizontal),
            )
        } else {
            (
                horizontal.map(Pass::Horizontal),
                vertical.map(Pass::Vertical),
            )
        };
        Ok(match (first, second) {
            (Some(first), Some(second)) => {
                let between = first.run(source);
                second.run(first.output_view(source, &between))
            }
            (Some(pass), None) | (None, Some(pass)) => pass.run(source),
            (None, None) => source.data.to_vec(),
        })
    }
}

/// One of the two passes, with its weights.
enum Pass {
    Horizontal(Coefficients),
    Vertical(Coefficients),
}

impl Pass {
    fn run(&self, source: ImageView<'_>) -> Vec<u8> {
        let row_len = source.row_len();
        match self {
            Self::Horizontal(coefficients) => {
                let out_len = coefficients.len() * source.channels;
                let mut out = vec![0; out_len * source.height as usize];
                scalar::horizontal(
                    source.data,
                    row_len,
                    source.channels,
                    coefficients,
                    &mut out,
                );
                out
            }
            Self::Vertical(coefficients) => {
                let mut out = vec![0; coefficients.len() * row_len];
                scalar::vertical(source.data, row_len, 0, coefficients, &mut out);
                out
            }
        }
    }

    /// The shape that this pass gives `source`, over its output `data`.
    fn output_view<'a>(&self, source: ImageView<'_>, data: &'a [u8]) -> ImageView<'a> {
        let ImageView {
            mut width,
            mut height,
            channels,
            ..
        } = source;
        match self {
            Self::Horizontal(coefficients) => width = coefficients.len() as u32,
            Self::Vertical(coefficients) => height = coefficients.len() as u32,
        }
        ImageView {
            width,
            height,
            channels,
            data,
        }
    }
}
