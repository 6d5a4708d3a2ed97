//! Pillow's 8-bit resampling, byte for byte, and torchvision's.
//!
//! Two passes, one an axis: integer weights, an i32 accumulator that starts at one half, a
//! result shifted, clipped and **stored as u8** between the passes. Because of that rounding
//! the order of the passes changes bytes, and Pillow's order changed twice: see
//! [`PassOrder`].

mod alpha;
mod backend;
mod coeffs;
mod filter;
mod nearest;
mod pass;
mod scalar;
mod simd;
mod view;

use std::num::NonZeroUsize;

#[cfg(feature = "tiff")]
pub(crate) use alpha::divide as divide_alpha;
pub use backend::{Backend, PassOrder};
use coeffs::Coefficients;
pub use filter::Filter;
pub use simd::Instructions;
pub use view::ImageView;

use crate::error::{Error, Result};

/// A resize operation: filter, backend, the number of threads and the instructions.
///
/// Bytes depend on the filter and on the backend only, never on threads or instructions.
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
    /// Whose arithmetic and pass order. The newest Pillow's by default.
    pub backend: Backend,
    /// How many threads share the work. One by default.
    pub threads: NonZeroUsize,
    /// Which instructions. The best by default.
    pub instructions: Instructions,
}

impl Default for Resizer {
    fn default() -> Self {
        Self {
            filter: Filter::Bicubic,
            backend: Backend::default(),
            threads: NonZeroUsize::MIN,
            instructions: Instructions::Best,
        }
    }
}

impl Resizer {
    /// Resizes to `width` by `height`; the answer has the channels of the source.
    ///
    /// An axis that keeps its size is not resampled, so equal sizes copy. With Pillow's
    /// backend four channels are RGBA: colours are multiplied by alpha before and divided
    /// after, as Pillow does for that mode (except by [`Filter::Nearest`]).
    ///
    /// Memory: the answer, the weights, for each thread about 256 KiB between the passes, and for
    /// RGBA a copy of the source.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] if a target side is 0; [`Error::FilterUnsupported`] if the
    /// backend lacks the filter.
    pub fn resize(&self, source: ImageView<'_>, width: u32, height: u32) -> Result<Vec<u8>> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let (filter, backend) = (self.filter, self.backend);
        if backend == Backend::Torchvision && !matches!(filter, Filter::Bilinear | Filter::Bicubic)
        {
            return Err(Error::FilterUnsupported { filter, backend });
        }
        if (source.width, source.height) == (width, height) {
            return Ok(source.data.to_vec());
        }
        if filter == Filter::Nearest {
            return Ok(nearest::resize(source, width, height));
        }
        if source.channels == 4 && matches!(backend, Backend::Pillow(_)) {
            let premultiplied = alpha::multiply(source.data);
            let mut out = self.resample(
                ImageView {
                    data: &premultiplied,
                    ..source
                },
                width,
                height,
            );
            alpha::divide(&mut out);
            return Ok(out);
        }
        Ok(self.resample(source, width, height))
    }

    /// The two passes, channels independent, at least one side changing.
    fn resample(&self, source: ImageView<'_>, width: u32, height: u32) -> Vec<u8> {
        let weights = |input, output| Coefficients::new(self.filter, self.backend, input, output);
        let horizontal = (source.width != width).then(|| weights(source.width, width));
        let vertical = (source.height != height).then(|| weights(source.height, height));
        let vertical_first = match self.backend {
            Backend::Pillow(order) => {
                order.vertical_first((source.width, source.height), (width, height))
            }
            Backend::Torchvision => false,
        };
        match (&horizontal, &vertical) {
            (Some(h), Some(v)) if vertical_first => pass::vertical_first(self, source, h, v),
            (Some(h), Some(v)) => pass::horizontal_first(self, source, h, v),
            (Some(h), None) => pass::horizontal(self, source, h),
            (None, Some(v)) => pass::vertical(self, source, v),
            (None, None) => source.data.to_vec(),
        }
    }
}
