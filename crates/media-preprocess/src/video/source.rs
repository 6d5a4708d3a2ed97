//! Frames by index.

use crate::error::{Error, Result};
use crate::image::RgbImage;

/// A video as a sequence of frames that can be asked for by index.
pub trait FrameSource {
    /// How many frames there are.
    fn num_frames(&self) -> usize;

    /// Frames a second, if the source knows.
    fn fps(&self) -> Option<f64>;

    /// The frame at `index`, from 0.
    ///
    /// # Errors
    /// [`Error::FrameIndex`] beyond the last; otherwise what decoding fails with.
    fn frame(&mut self, index: usize) -> Result<RgbImage>;

    /// Hands the frames at `indices`, which ascend and may repeat, to `visit`.
    ///
    /// Sources that decode forwards do it in one go.
    ///
    /// # Errors
    /// Those of [`frame`](Self::frame), and the first of `visit`, which ends it.
    fn visit(
        &mut self,
        indices: &[usize],
        visit: &mut dyn FnMut(RgbImage) -> Result<()>,
    ) -> Result<()> {
        indices
            .iter()
            .try_for_each(|&index| visit(self.frame(index)?))
    }
}

/// Images in memory as a video.
///
/// ```
/// use prefill_media_preprocess::image::RgbImage;
/// use prefill_media_preprocess::video::{FrameList, FrameSource};
///
/// let frames = vec![RgbImage::new(1, 1, vec![1, 2, 3])?, RgbImage::new(1, 1, vec![4, 5, 6])?];
/// let mut video = FrameList::new(frames, Some(2.0));
/// assert_eq!(video.num_frames(), 2);
/// assert_eq!(video.frame(1)?.data(), [4, 5, 6]);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameList {
    frames: Vec<RgbImage>,
    fps: Option<f64>,
}

impl FrameList {
    /// A video of these frames, `fps` of them a second.
    #[must_use]
    pub fn new(frames: Vec<RgbImage>, fps: Option<f64>) -> Self {
        Self { frames, fps }
    }
}

impl FrameSource for FrameList {
    fn num_frames(&self) -> usize {
        self.frames.len()
    }

    fn fps(&self) -> Option<f64> {
        self.fps
    }

    fn frame(&mut self, index: usize) -> Result<RgbImage> {
        let frames = self.frames.len();
        self.frames
            .get(index)
            .cloned()
            .ok_or(Error::FrameIndex { index, frames })
    }
}
