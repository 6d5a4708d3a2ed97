//! Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: patches merged two by two, native aspect.
//!
//! One class serves all (`Qwen2VLImageProcessor` in transformers); the checkpoint's
//! configuration holds what differs. The bounds on the pixels have no default here: those of
//! the class are not those of the checkpoints.

mod grid;

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::path::Path;

use grid::check_pixel_bounds;
pub(crate) use grid::{QwenGrid, area_bounded_size, read_pixel_bounds};
#[cfg(feature = "video")]
pub(crate) use grid::{check_aspect, round_to};
use serde_json::Value;

use super::patches::CutDigest;
use super::resize::{Backend, PassOrder, Resizer};
use super::steps::Steps;
use super::{Rescale, RgbImage};
use crate::config::{self, Block};
use crate::digest::MediaDigest;
use crate::error::Result;

/// The mean of CLIP's training images, the class default of `Qwen2VLImageProcessor`
/// (`OPENAI_CLIP_MEAN` in transformers).
pub const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
/// Their standard deviation (`OPENAI_CLIP_STD`).
pub const CLIP_STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// Prepares images for the Qwen-VL families.
///
/// ```
/// use prefill_media_preprocess::image::{QwenImageProcessor, RgbImage};
///
/// let config = serde_json::json!({
///     "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
///     "size": {"shortest_edge": 65536, "longest_edge": 16777216},
///     "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]
/// });
/// let processor = QwenImageProcessor::from_json(&config)?;
/// let image = RgbImage::new(64, 32, vec![128; 64 * 32 * 3])?;
/// let prepared = processor.prepare(&image)?;
/// assert_eq!(prepared.grid_thw, [1, 12, 24]); // enlarged to 384x192
/// assert_eq!(prepared.soft_tokens, 12 * 24 / 4);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QwenImageProcessor {
    grid: QwenGrid,
    min_pixels: u64,
    max_pixels: u64,
    steps: Steps,
}

impl QwenImageProcessor {
    /// Reads a checkpoint's configuration: a flat `preprocessor_config.json`, or the
    /// `image_processor` block of a `processor_config.json`.
    ///
    /// Absent keys have transformers' class defaults, except the bounds on the pixels.
    ///
    /// # Errors
    /// [`Error::ConfigMissing`](crate::Error::ConfigMissing) without those bounds, [`Error::ConfigUnknown`](crate::Error::ConfigUnknown) for a key that
    /// isn't known not to matter, [`Error::ConfigValue`](crate::Error::ConfigValue) for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        const CLASSES: &[&str] = &[
            "Qwen2VLImageProcessor",
            "Qwen2_5_VLImageProcessor",
            "Qwen3VLImageProcessor",
        ];
        let mut block = Block::new(config, "image_processor")?;
        block.class("image_processor_type", CLASSES)?;
        let defaults = Steps {
            do_resize: true,
            resizer: Resizer::default(),
            rescale: Rescale::default(),
            factor: Some(1.0 / 255.0),
            normalize: Some((CLIP_MEAN, CLIP_STD)),
        };
        let grid = QwenGrid::read(&mut block, 14)?;
        let (min_pixels, max_pixels) = read_pixel_bounds(&mut block)?;
        let steps = Steps::read(&mut block, defaults)?;
        block.finish()?;
        Ok(Self {
            grid,
            min_pixels,
            max_pixels,
            steps,
        })
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or
    /// `preprocessor_config.json` if that has no `image_processor`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`](crate::Error::Io) if there is neither file,
    /// [`Error::Json`](crate::Error::Json) if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let flat = "preprocessor_config.json";
        Self::from_json(&config::read_folder(
            folder.as_ref(),
            "image_processor",
            flat,
        )?)
    }

    /// This processor with another Pillow's pass order.
    #[must_use]
    pub fn with_pass_order(self, order: PassOrder) -> Self {
        self.with_resize_backend(Backend::Pillow(order))
    }

    /// This processor with another resize.
    #[must_use]
    pub fn with_resize_backend(mut self, backend: Backend) -> Self {
        self.steps.resizer.backend = backend;
        self
    }

    /// This processor with another reference's rescaling.
    #[must_use]
    pub fn with_rescale(mut self, rescale: Rescale) -> Self {
        self.steps.rescale = rescale;
        self
    }

    /// This processor with more threads for resizing.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.steps.resizer.threads = threads;
        self
    }

    /// This processor with other bounds on `width * height`.
    ///
    /// # Errors
    /// [`Error::ConfigValue`](crate::Error::ConfigValue) unless `0 < min <= max <= 2^28`.
    pub fn with_pixel_bounds(mut self, min: u64, max: u64) -> Result<Self> {
        check_pixel_bounds(min, max)?;
        (self.min_pixels, self.max_pixels) = (min, max);
        Ok(self)
    }

    /// The size, `(width, height)`, to which an image of `width` by `height` is resized:
    /// sides rounded to multiples of the merged patch, and scaled if the area is out of
    /// bounds.
    ///
    /// # Errors
    /// [`Error::EmptyImage`](crate::Error::EmptyImage) for a side of 0;
    /// [`Error::ImageSize`](crate::Error::ImageSize) for an aspect over 200.
    pub fn target_size(&self, width: u32, height: u32) -> Result<(u32, u32)> {
        let bounds = (self.min_pixels, self.max_pixels);
        area_bounded_size(self.grid.factor(), bounds, width, height)
    }

    /// The image as the model will see it, before it is rescaled and cut.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub fn resize<'a>(&self, image: &'a RgbImage) -> Result<Cow<'a, RgbImage>> {
        self.steps
            .resize_or_check(image, "Qwen-VL", self.grid.factor(), || {
                self.target_size(image.width(), image.height())
            })
    }

    /// Resizes, rescales, normalises and cuts an image.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size). With `do_resize` off in the
    /// configuration, [`Error::ImageSize`](crate::Error::ImageSize) if the image is not made of
    /// whole merged patches.
    pub fn prepare(&self, image: &RgbImage) -> Result<QwenImage> {
        let _span = tracing::debug_span!("qwen_prepare").entered();
        let image = self.resize(image)?;
        let table = self.steps.table();
        let cutter = self.grid.cutter(&table, self.steps.resizer.threads);
        let grid_thw = self.grid.grid_of(1, &image);
        // A still image fills the whole temporal patch.
        let frames = vec![&*image; self.grid.temporal_patch_size as usize];
        let digest = || {
            let mut digest = CutDigest::new("qwen.image", &cutter);
            digest.frame(&image);
            self.grid.finish(digest, grid_thw)
        };
        let (pixel_values, digest) = cutter.cut_and(&frames, digest);
        Ok(QwenImage {
            pixel_values,
            grid_thw,
            patch_dim: self.grid.patch_dim(),
            soft_tokens: self.grid.tokens_per_group(grid_thw),
            digest,
        })
    }
}

/// An image as the Qwen-VL families take it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QwenImage {
    /// `[num_patches, patch_dim]`, row major. Patches go by blocks of `merge_size` squared,
    /// blocks by rows from the top; a patch is its channels, in each the temporal copies, in
    /// each the pixels by rows.
    pub pixel_values: Vec<f32>,
    /// Temporal patches (1), rows and columns of patches.
    pub grid_thw: [usize; 3],
    /// Values a patch: `3 * temporal_patch_size * patch_size * patch_size`, 1536 for
    /// Qwen3-VL, 1176 for Qwen2-VL.
    pub patch_dim: usize,
    /// How many image tokens the prompt gets.
    pub soft_tokens: usize,
    /// What names this prepared image in caches.
    pub digest: MediaDigest,
}

impl QwenImage {
    /// The number of patches, the product of the grid.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        self.grid_thw.iter().product()
    }
}
