//! Gemma 4: images cut into square patches under a budget of soft tokens.
//!
//! Two layouts share one size rule. The tower of the E2B and E4B models takes patches of 16
//! pixels and pools 3x3 of them into a soft token; the unified (encoder-free) models take
//! the 48-pixel blocks whole.

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::Value;

use super::config::{self, Block, bad_value};
use super::resize::{PassOrder, Resizer};
use super::steps::Steps;
use super::{Rescale, RgbImage};
use crate::digest::{DigestWriter, MediaDigest};
use crate::error::{Error, Result};

/// The budgets that the models were trained for (`_SUPPORTED_SOFT_TOKENS` in transformers).
pub const SOFT_TOKEN_BUDGETS: [u32; 5] = [70, 140, 280, 560, 1120];

/// What a row of `pixel_values` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Gemma4Layout {
    /// One patch of the vision tower: 16x16 pixels, 768 values.
    #[default]
    Tower,
    /// One soft token of the unified model: 48x48 pixels, 6912 values.
    Unified,
}

/// Prepares images for Gemma 4.
///
/// ```
/// use prefill_media_preprocess::image::{Gemma4ImageProcessor, RgbImage};
///
/// let config = serde_json::json!({"image_processor": {"max_soft_tokens": 70, "patch_size": 16}});
/// let processor = Gemma4ImageProcessor::from_json(&config)?;
/// let image = RgbImage::new(2, 2, vec![128; 12])?;
/// let prepared = processor.prepare(&image)?;
/// assert_eq!((prepared.width(), prepared.height()), (384, 384)); // small images are enlarged
/// assert_eq!(prepared.soft_tokens, 64);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Gemma4ImageProcessor {
    layout: Gemma4Layout,
    patch_size: u32,
    pooling: u32,
    max_soft_tokens: u32,
    steps: Steps,
}

impl Default for Gemma4ImageProcessor {
    /// The class defaults of transformers 5.24: the tower's layout, 280 soft tokens.
    fn default() -> Self {
        Self {
            layout: Gemma4Layout::Tower,
            patch_size: 16,
            pooling: 3,
            max_soft_tokens: 280,
            steps: Steps {
                do_resize: true,
                resizer: Resizer::default(),
                rescale: Rescale::default(),
                factor: Some(1.0 / 255.0),
                normalize: None,
            },
        }
    }
}

impl Gemma4ImageProcessor {
    /// Reads a checkpoint's configuration: the `image_processor` block of its
    /// `processor_config.json`, that block alone, or a flat `preprocessor_config.json`.
    ///
    /// The class named there chooses the layout. Absent keys have transformers' class
    /// defaults.
    ///
    /// # Errors
    /// [`Error::ConfigUnknown`] for a key that isn't known not to matter, and
    /// [`Error::ConfigValue`] for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        const TOWER: &str = "Gemma4ImageProcessor";
        const UNIFIED: &str = "Gemma4UnifiedImageProcessor";
        let mut block = Block::new(config, "image_processor")?;
        let defaults = Self::default();
        block.class("image_processor_type", &[TOWER, UNIFIED])?;
        let class = block.get("image_processor_type").and_then(Value::as_str);
        let unified = class.is_some_and(|class| class.starts_with(UNIFIED));
        let processor = Self {
            layout: if unified {
                Gemma4Layout::Unified
            } else {
                Gemma4Layout::Tower
            },
            patch_size: block.positive("patch_size")?.unwrap_or(defaults.patch_size),
            pooling: block
                .positive("pooling_kernel_size")?
                .unwrap_or(defaults.pooling),
            max_soft_tokens: defaults.max_soft_tokens,
            steps: Steps::read(&mut block, defaults.steps)?,
        };
        // Larger sizes are no checkpoint's, and would overflow what follows.
        if processor.patch_size > 256 || processor.pooling > 16 {
            let sizes = [processor.patch_size, processor.pooling];
            let expected = "patches of at most 256 pixels, pooled by at most 16";
            return Err(bad_value(
                "patch_size, pooling_kernel_size",
                &sizes[..].into(),
                expected,
            ));
        }
        if let Some(value) = block.get("model_patch_size") {
            let side = processor.side_multiple();
            if value.as_u64() != Some(side.into()) {
                let expected = format!("patch_size * pooling_kernel_size = {side}");
                return Err(bad_value("model_patch_size", value, &expected));
            }
        }
        // Gemma's size follows from the budget; transformers leaves `size` empty.
        if let Some(value) = block.get("size") {
            return Err(bad_value("size", value, "null: the budget gives the size"));
        }
        let budget = block.positive("max_soft_tokens")?;
        block.finish()?;
        match budget {
            Some(budget) => processor.with_max_soft_tokens(budget),
            None => Ok(processor),
        }
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or
    /// `preprocessor_config.json` if that has no `image_processor`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`] if there is neither file,
    /// [`Error::Json`] if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let flat = "preprocessor_config.json";
        Self::from_json(&config::read_folder(
            folder.as_ref(),
            "image_processor",
            flat,
        )?)
    }

    /// This processor with another layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Gemma4Layout) -> Self {
        self.layout = layout;
        self
    }

    /// This processor with another budget.
    ///
    /// # Errors
    /// [`Error::ConfigValue`] unless it is one of [`SOFT_TOKEN_BUDGETS`].
    pub fn with_max_soft_tokens(mut self, budget: u32) -> Result<Self> {
        if !SOFT_TOKEN_BUDGETS.contains(&budget) {
            let expected = format!("one of {SOFT_TOKEN_BUDGETS:?}");
            return Err(bad_value("max_soft_tokens", &budget.into(), &expected));
        }
        self.max_soft_tokens = budget;
        Ok(self)
    }

    /// This processor with another Pillow's pass order.
    #[must_use]
    pub fn with_pass_order(mut self, order: PassOrder) -> Self {
        self.steps.resizer.pass_order = order;
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

    /// The budget of soft tokens.
    #[must_use]
    pub fn max_soft_tokens(&self) -> u32 {
        self.max_soft_tokens
    }

    /// The layout of `pixel_values`.
    #[must_use]
    pub fn layout(&self) -> Gemma4Layout {
        self.layout
    }

    /// Both sides of a prepared image are multiples of this many pixels.
    fn side_multiple(&self) -> u32 {
        self.patch_size * self.pooling
    }

    /// The size, `(width, height)`, to which an image of `width` by `height` is resized:
    /// the largest with sides that are multiples of 48 whose patches stay in the budget,
    /// keeping the aspect. Small images are enlarged.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] for a side of 0; [`Error::ImageSize`] if the rule finds none.
    pub fn target_size(&self, width: u32, height: u32) -> Result<(u32, u32)> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let fail = |reason: String| Error::ImageSize {
            family: "Gemma 4",
            width: width.into(),
            height: height.into(),
            reason,
        };
        // `get_aspect_ratio_preserving_size` of transformers, operation by operation.
        let side = self.side_multiple();
        let budget = u64::from(self.max_soft_tokens);
        let target_pixels = budget * u64::from(side).pow(2);
        let (w, h) = (f64::from(width), f64::from(height));
        let factor = (target_pixels as f64 / (w * h)).sqrt();
        let floor = |ideal: f64| (ideal / f64::from(side)).floor() as u64 * u64::from(side);
        let (mut target_width, mut target_height) = (floor(factor * w), floor(factor * h));
        let along =
            |long: f64, short: f64| ((long / short).floor() as u64).min(budget) * u64::from(side);
        match (target_width, target_height) {
            (0, 0) => return Err(fail("both sides round to 0".to_owned())),
            (_, 0) => (target_width, target_height) = (along(w, h), side.into()),
            (0, _) => (target_width, target_height) = (side.into(), along(h, w)),
            _ => {}
        }
        if target_width * target_height > target_pixels {
            let reason = format!(
                "{target_width}x{target_height} is over the budget of {target_pixels} pixels"
            );
            return Err(fail(reason));
        }
        // At most `budget * side` each, so they fit.
        Ok((target_width as u32, target_height as u32))
    }

    /// Resizes, rescales and cuts an image.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size). With `do_resize` off in the
    /// configuration, [`Error::ImageSize`] if the image is not already made of whole blocks
    /// or exceeds the budget.
    pub fn prepare(&self, image: &RgbImage) -> Result<Gemma4Image> {
        let _span = tracing::debug_span!("gemma4_prepare", layout = ?self.layout).entered();
        let (width, height) = (image.width(), image.height());
        let resized;
        let image = if self.steps.do_resize {
            let (width, height) = self.target_size(width, height)?;
            if (width, height) == (image.width(), image.height()) {
                image
            } else {
                resized = self.steps.resize(image, width, height)?;
                &resized
            }
        } else {
            let side = self.side_multiple();
            let blocks = u64::from(width / side) * u64::from(height / side);
            if width % side != 0 || height % side != 0 || blocks > self.max_soft_tokens.into() {
                return Err(Error::ImageSize {
                    family: "Gemma 4",
                    width: width.into(),
                    height: height.into(),
                    reason: format!(
                        "without resizing it must be made of at most {} blocks of {side} pixels",
                        self.max_soft_tokens
                    ),
                });
            }
            image
        };
        Ok(self.cut(image))
    }

    /// Cuts an image whose sides are multiples of the block.
    fn cut(&self, image: &RgbImage) -> Gemma4Image {
        let pool = (self.pooling * self.pooling) as usize;
        let (patch_size, max_patches, patches_per_token) = match self.layout {
            Gemma4Layout::Tower => (self.patch_size, self.max_soft_tokens as usize * pool, pool),
            Gemma4Layout::Unified => (self.side_multiple(), self.max_soft_tokens as usize, 1),
        };
        let (columns, rows) = (image.width() / patch_size, image.height() / patch_size);
        let pixel_values = patchify(image, patch_size as usize, &self.steps.table());
        let positions: Vec<[i32; 2]> = (0..rows as i32)
            .flat_map(|y| (0..columns as i32).map(move |x| [x, y]))
            .collect();
        let num_patches = positions.len();
        let mut digest = DigestWriter::new("gemma4.image");
        let patch_dim = pixel_values.len() / num_patches;
        digest.f32s("pixel_values", &[num_patches, patch_dim], &pixel_values);
        let flat = positions.as_flattened().iter().map(|&v| i64::from(v));
        digest.i64s("positions", &[num_patches, 2], flat);
        Gemma4Image {
            soft_tokens: num_patches / patches_per_token,
            digest: digest.finish(),
            pixel_values,
            positions,
            rows: rows as usize,
            columns: columns as usize,
            patch_size: patch_size as usize,
            max_patches,
        }
    }
}

/// Patches in rows from the top, each its pixels in rows, channels last.
fn patchify(image: &RgbImage, patch: usize, table: &super::rescale::Table) -> Vec<f32> {
    let row_len = image.width() as usize * 3;
    let mut out = Vec::with_capacity(image.data().len());
    for band in image.data().chunks_exact(row_len * patch) {
        for column in 0..image.width() as usize / patch {
            for row in band.chunks_exact(row_len) {
                let pixels = row[column * patch * 3..][..patch * 3].as_chunks::<3>().0;
                out.extend(pixels.iter().flat_map(|&[r, g, b]| {
                    [
                        table[0][r as usize],
                        table[1][g as usize],
                        table[2][b as usize],
                    ]
                }));
            }
        }
    }
    out
}

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
