//! The image that decoders give and processors take.

use super::resize::{ImageView, Resizer};
use crate::error::Result;

/// An 8-bit RGB image: rows from the top, pixels from the left, three bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    data: Vec<u8>,
}

impl RgbImage {
    /// An image over `data`, `width * height * 3` bytes.
    ///
    /// # Errors
    /// [`Error::EmptyImage`](crate::Error::EmptyImage) if a side is 0, [`Error::BufferLength`](crate::Error::BufferLength) if the length is
    /// not that product.
    pub fn new(width: u32, height: u32, data: Vec<u8>) -> Result<Self> {
        ImageView::new(width, height, 3, &data)?;
        Ok(Self {
            width,
            height,
            data,
        })
    }

    /// Width in pixels, at least 1.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, at least 1.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The pixels, `height * width * 3` bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The pixels, taken out of the image.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// This image at another size.
    ///
    /// # Errors
    /// [`Error::EmptyImage`](crate::Error::EmptyImage) if a target side is 0.
    pub fn resize(&self, width: u32, height: u32, resizer: &Resizer) -> Result<Self> {
        let source = ImageView::new(self.width, self.height, 3, &self.data)?;
        let data = resizer.resize(source, width, height)?;
        Ok(Self {
            width,
            height,
            data,
        })
    }
}
