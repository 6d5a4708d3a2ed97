//! Gemma 4: images cut into square patches under a budget of soft tokens.
//!
//! Two layouts share one size rule. The tower of the E2B and E4B models takes patches of 16
//! pixels and pools 3x3 of them into a soft token; the unified (encoder-free) models take
//! the 48-pixel blocks whole.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::Value;

use super::config::{self, Block, bad_value};
use super::patches::{CutDigest, Cutter, PatchOrder};
use super::rescale::Table;
use super::resize::{Backend, PassOrder, Resizer};
use super::steps::Steps;
use super::{Rescale, RgbImage};
use crate::digest::MediaDigest;
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
#[derive(Debug, Clone, Copy, PartialEq)]
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
        let block = Block::new(config, "image_processor")?;
        Self::from_block(block, "image_processor_type", Self::default())
    }

    /// Reads what a video's frames need, after the keys that are a video's own.
    #[cfg(feature = "video")]
    pub(crate) fn from_video_block(block: Block<'_>) -> Result<Self> {
        let mut defaults = Self {
            max_soft_tokens: 70,
            ..Self::default()
        };
        defaults.steps.normalize = Some(([0.0; 3], [1.0; 3]));
        Self::from_block(block, "video_processor_type", defaults)
    }

    fn from_block(mut block: Block<'_>, class_key: &'static str, defaults: Self) -> Result<Self> {
        const TOWER: [&str; 2] = ["Gemma4ImageProcessor", "Gemma4VideoProcessor"];
        const UNIFIED: [&str; 2] = ["Gemma4UnifiedImageProcessor", "Gemma4UnifiedVideoProcessor"];
        let kind = usize::from(class_key == "video_processor_type");
        block.class(class_key, &[TOWER[kind], UNIFIED[kind]])?;
        let class = block.get(class_key).and_then(Value::as_str);
        let unified = class.is_some_and(|class| class.starts_with(UNIFIED[kind]));
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

    /// The image as the model will see it, before it is rescaled and cut.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub fn resize<'a>(&self, image: &'a RgbImage) -> Result<Cow<'a, RgbImage>> {
        let side = self.side_multiple();
        let image = self.steps.resize_or_check(image, "Gemma 4", side, || {
            self.target_size(image.width(), image.height())
        })?;
        let tokens = (image.width() / side) * (image.height() / side);
        if tokens > self.max_soft_tokens {
            // Only an image that is not resized can be.
            return Err(Error::ImageSize {
                family: "Gemma 4",
                width: image.width().into(),
                height: image.height().into(),
                reason: format!(
                    "{tokens} soft tokens are over the budget of {}",
                    self.max_soft_tokens
                ),
            });
        }
        Ok(image)
    }

    /// Resizes, rescales and cuts an image.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size). With `do_resize` off in the
    /// configuration, [`Error::ImageSize`] if the image is not already made of whole blocks
    /// or exceeds the budget.
    pub fn prepare(&self, image: &RgbImage) -> Result<Gemma4Image> {
        let _span = tracing::debug_span!("gemma4_prepare", layout = ?self.layout).entered();
        let image = self.resize(image)?;
        let table = self.steps.table();
        let cutter = self.cutter(&table);
        let mut prepared = self.layout_of(&image);
        let digest = || {
            let mut digest = CutDigest::new("gemma4.image", &cutter);
            digest.frame(&image);
            let shape = [prepared.num_patches(), prepared.patch_dim()];
            digest.finish(
                &shape,
                "positions",
                &[shape[0], 2],
                flat(&prepared.positions),
            )
        };
        let mut pixel_values = Vec::new();
        let digest = if cutter.threads.get() > 1 {
            std::thread::scope(|scope| {
                let digest = scope.spawn(digest);
                cutter.cut(&[&image], &mut pixel_values);
                // It panics on nothing; if it did, so should we.
                digest
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        } else {
            cutter.cut(&[&image], &mut pixel_values);
            digest()
        };
        prepared.pixel_values = pixel_values;
        prepared.digest = digest;
        Ok(prepared)
    }

    /// How images of this layout are cut.
    pub(crate) fn cutter<'a>(&self, table: &'a Table) -> Cutter<'a> {
        let patch = match self.layout {
            Gemma4Layout::Tower => self.patch_size,
            Gemma4Layout::Unified => self.side_multiple(),
        };
        let threads = self.steps.resizer.threads;
        Cutter {
            patch: patch as usize,
            order: PatchOrder::Rows,
            table,
            threads,
        }
    }

    /// The f32 of every byte value, by channel.
    #[cfg(feature = "video")]
    pub(crate) fn table(&self) -> Box<Table> {
        self.steps.table()
    }

    /// Everything but the pixels and the digest, for an image whose sides are multiples of the
    /// patch.
    pub(crate) fn layout_of(&self, image: &RgbImage) -> Gemma4Image {
        let pool = (self.pooling * self.pooling) as usize;
        let budget = self.max_soft_tokens as usize;
        let (patch_size, max_patches, patches_per_token) = match self.layout {
            Gemma4Layout::Tower => (self.patch_size, budget * pool, pool),
            Gemma4Layout::Unified => (self.side_multiple(), budget, 1),
        };
        let (columns, rows) = (image.width() / patch_size, image.height() / patch_size);
        let positions: Vec<[i32; 2]> = (0..rows as i32)
            .flat_map(|y| (0..columns as i32).map(move |x| [x, y]))
            .collect();
        Gemma4Image {
            soft_tokens: positions.len() / patches_per_token,
            digest: MediaDigest([0; 32]),
            pixel_values: Vec::new(),
            positions,
            rows: rows as usize,
            columns: columns as usize,
            patch_size: patch_size as usize,
            max_patches,
        }
    }
}

/// Positions as the digest takes them.
pub(crate) fn flat(positions: &[[i32; 2]]) -> impl Iterator<Item = i64> {
    positions.as_flattened().iter().map(|&v| v.into())
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
