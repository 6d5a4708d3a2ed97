//! What the embedders of pictures take: patches of equally large frames.

use prefill_media_preprocess::image::Gemma4Image;
use prefill_media_preprocess::video::Gemma4Video;

/// Borrowed from a prepared picture, or from a prepared video of several frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches<'a> {
    /// `[frames, rows * columns, side * side * 3]`.
    pub pixels: &'a [f32],
    /// Column and row of each patch, the same in every frame.
    pub positions: &'a [[i32; 2]],
    pub frames: usize,
    pub rows: usize,
    pub columns: usize,
    /// Side of a patch in pixels.
    pub side: usize,
    /// Of one frame.
    pub soft_tokens: usize,
}

impl<'a> From<&'a Gemma4Image> for Patches<'a> {
    fn from(image: &'a Gemma4Image) -> Self {
        Self {
            pixels: &image.pixel_values,
            positions: &image.positions,
            frames: 1,
            rows: image.rows,
            columns: image.columns,
            side: image.patch_size,
            soft_tokens: image.soft_tokens,
        }
    }
}

impl<'a> From<&'a Gemma4Video> for Patches<'a> {
    fn from(video: &'a Gemma4Video) -> Self {
        Self {
            pixels: &video.pixel_values,
            positions: &video.positions,
            frames: video.num_frames,
            rows: video.rows,
            columns: video.columns,
            side: video.patch_size,
            soft_tokens: video.soft_tokens_per_frame,
        }
    }
}

impl Patches<'_> {
    /// Patches of one frame.
    pub(super) fn count(&self) -> usize {
        self.rows * self.columns
    }

    /// Values of one patch.
    pub(super) fn values(&self) -> usize {
        self.side * self.side * 3
    }

    /// The shape of the pixels as an array.
    pub(super) fn shape(&self) -> [i32; 3] {
        [self.frames, self.count(), self.values()].map(|extent| extent as i32)
    }

    /// Whether the parts agree with each other: MLX checks no index and no length.
    pub(super) fn is_consistent(&self) -> bool {
        let inside = |&[x, y]: &[i32; 2]| {
            (0..self.columns as i32).contains(&x) && (0..self.rows as i32).contains(&y)
        };
        self.frames > 0
            && self.positions.len() == self.count()
            && self.pixels.len() == self.frames * self.count() * self.values()
            && self.positions.iter().all(inside)
    }
}
