//! What Gemma 4 takes.

use crate::digest::MediaDigest;

/// An image as Gemma 4 takes it, without padding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Gemma4Image {
    /// `[num_patches, patch_dim]`, row major, in \[0, 1\] with the usual configuration. Patches
    /// go by rows from the top; a patch is its pixels by rows, channels last. `patch_dim` is
    /// 768 for the tower, 6912 for the unified model.
    pub pixel_values: Vec<f32>,
    /// `[num_patches, 2]`: column (x) and row (y) of each patch in the grid.
    pub positions: Vec<[i32; 2]>,
    /// Rows of the patch grid.
    pub rows: usize,
    /// Columns of the patch grid.
    pub columns: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// How many image tokens the prompt gets.
    pub soft_tokens: usize,
    /// The number of rows to which transformers pads.
    pub max_patches: usize,
    /// What names this prepared image in caches.
    pub digest: MediaDigest,
}

impl Gemma4Image {
    /// The number of patches, `rows * columns`.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        self.positions.len()
    }

    /// Values a patch: `patch_size * patch_size * 3`.
    #[must_use]
    pub fn patch_dim(&self) -> usize {
        self.patch_size * self.patch_size * 3
    }

    /// Width in pixels after resizing.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns * self.patch_size
    }

    /// Height in pixels after resizing.
    #[must_use]
    pub fn height(&self) -> usize {
        self.rows * self.patch_size
    }

    /// The tensors as transformers gives them: padded to `max_patches` rows, pixels with 0
    /// and positions with -1.
    #[must_use]
    pub fn padded(&self) -> (Vec<f32>, Vec<[i32; 2]>) {
        let mut pixels = Vec::with_capacity(self.max_patches * self.patch_dim());
        pixels.extend_from_slice(&self.pixel_values);
        pixels.resize(self.max_patches * self.patch_dim(), 0.0);
        let mut positions = self.positions.clone();
        positions.resize(self.max_patches, [-1, -1]);
        (pixels, positions)
    }
}

/// Positions as the digest takes them.
pub(crate) fn flat(positions: &[[i32; 2]]) -> impl Iterator<Item = i64> {
    positions.as_flattened().iter().map(|&v| v.into())
}
