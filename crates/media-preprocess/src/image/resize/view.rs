//! The image that a resize reads.

use crate::error::{Error, Result};

/// An 8-bit image of 1, 3 or 4 interleaved channels, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct ImageView<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) channels: usize,
    pub(super) data: &'a [u8],
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

    pub(super) fn row_len(&self) -> usize {
        self.width as usize * self.channels
    }
}
