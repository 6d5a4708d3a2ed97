//! Gemma 4: images cut into square patches under a budget of soft tokens.
//!
//! Two layouts share one size rule. The tower of the E2B and E4B models takes patches of 16
//! pixels and pools 3x3 of them into a soft token; the unified (encoder-free) models take
//! the 48-pixel blocks whole.

mod prepare;
mod prepared;

use std::num::NonZeroUsize;
use std::path::Path;

pub use prepared::Gemma4Image;
#[cfg(feature = "video")]
pub(crate) use prepared::flat;
use serde_json::Value;

use super::Rescale;
use super::resize::{Backend, PassOrder, Resizer};
use super::steps::Steps;
use crate::config::{self, Block, bad_value};
use crate::error::Result;

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
    /// [`Error::ConfigUnknown`](crate::Error::ConfigUnknown) for a key that isn't known not to
    /// matter, and [`Error::ConfigValue`](crate::Error::ConfigValue) for a value that can't be
    /// followed.
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
        // Larger sizes are no checkpoint's; they would overflow what follows, and memory.
        let sizes = [processor.patch_size, processor.pooling];
        if sizes[0].saturating_mul(sizes[1]) > 256 {
            let expected = "a product of at most 256 pixels";
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
    /// Those of [`from_json`](Self::from_json); [`Error::Io`](crate::Error::Io) if there is
    /// neither file, [`Error::Json`](crate::Error::Json) if one is not JSON.
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
    /// [`Error::ConfigValue`](crate::Error::ConfigValue) unless it is one of
    /// [`SOFT_TOKEN_BUDGETS`].
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
}
