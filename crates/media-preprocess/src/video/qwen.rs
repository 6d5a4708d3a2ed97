//! Qwen3-VL and Qwen3.5 take a video in pairs of frames.

mod groups;

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::Value;

pub use groups::QwenVideo;
pub(crate) use groups::prepare_groups;

use super::{FrameSource, Sampling, VideoRules};
use crate::config::{self, Block};
use crate::error::{Error, Result};
use crate::image::Rescale;
use crate::image::qwen::{QwenGrid, check_aspect, read_pixel_bounds, round_to};
use crate::image::resize::Resizer;
use crate::image::steps::Steps;

/// Prepares videos for Qwen3-VL and Qwen3.5 (`Qwen3VLVideoProcessor` in transformers).
///
/// ```
/// use prefill_media_preprocess::image::RgbImage;
/// use prefill_media_preprocess::video::{FrameList, QwenVideoProcessor};
///
/// let config = serde_json::json!({
///     "size": {"shortest_edge": 4096, "longest_edge": 25165824}, "patch_size": 16
/// });
/// let processor = QwenVideoProcessor::from_json(&config)?;
/// let frame = RgbImage::new(96, 64, vec![128; 96 * 64 * 3])?;
/// let mut video = FrameList::new(vec![frame; 60], Some(24.0));
/// let prepared = processor.prepare(&mut video)?;
/// assert_eq!(prepared.grid_thw, [3, 4, 6]); // 5 frames at 2 a second, in 3 pairs
/// assert_eq!(prepared.timestamp_text(0), "<0.3 seconds>");
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QwenVideoProcessor {
    grid: QwenGrid,
    min_pixels: u64,
    max_pixels: u64,
    /// Tokens that one frame may cost, if frames are capped at all.
    frame_cap: Option<u32>,
    sampling: Sampling,
    rules: VideoRules,
    steps: Steps,
}

impl QwenVideoProcessor {
    /// Reads a checkpoint's configuration: a flat `video_preprocessor_config.json`, or the
    /// `video_processor` block of a `processor_config.json`.
    ///
    /// Absent keys have transformers' class defaults, except the bounds on the pixels, which
    /// span all frames together.
    ///
    /// # Errors
    /// [`Error::ConfigMissing`] without those bounds, [`Error::ConfigUnknown`] for a key that
    /// isn't known not to matter, [`Error::ConfigValue`] for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        let mut block = Block::new(config, "video_processor")?;
        block.class("video_processor_type", &["Qwen3VLVideoProcessor"])?;
        let grid = QwenGrid::read(&mut block, 16)?;
        let (min_pixels, max_pixels) = read_pixel_bounds(&mut block)?;
        let sampling = read_sampling(&mut block)?;
        let cap = block.boolean("cap_pixels_per_frame")?.unwrap_or(false);
        let tokens = block.positive("max_video_tokens")?.unwrap_or(768);
        let half = ([0.5; 3], [0.5; 3]);
        let defaults = Steps {
            do_resize: true,
            resizer: Resizer::default(),
            rescale: Rescale::default(),
            factor: Some(1.0 / 255.0),
            normalize: Some(half),
        };
        let steps = Steps::read(&mut block, defaults)?;
        block.finish()?;
        let frame_cap = cap.then_some(tokens);
        let rules = VideoRules::default();
        let processor = Self {
            grid,
            min_pixels,
            max_pixels,
            frame_cap,
            sampling,
            rules,
            steps,
        };
        Ok(processor.with_rules(rules))
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or
    /// `video_preprocessor_config.json` if that has no `video_processor`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`] if there is neither file,
    /// [`Error::Json`] if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let flat = "video_preprocessor_config.json";
        Self::from_json(&config::read_folder(
            folder.as_ref(),
            "video_processor",
            flat,
        )?)
    }

    /// This processor under other rules.
    #[must_use]
    pub fn with_rules(mut self, rules: VideoRules) -> Self {
        let (backend, rescale) = rules.arithmetic();
        self.steps.resizer.backend = backend;
        self.steps.rescale = rescale;
        self.rules = rules;
        self
    }

    /// This processor with another choice of frames.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// This processor with more threads for resizing.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.steps.resizer.threads = threads;
        self
    }

    /// The size, `(width, height)`, to which `frames` frames of `width` by `height` are
    /// resized.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] for a side of 0; [`Error::TooFewFrames`] for less than one
    /// temporal patch; [`Error::ImageSize`] for an aspect over 200, or, under mlx-vlm's rules,
    /// a side below the merged patch.
    pub fn target_size(&self, frames: usize, width: u32, height: u32) -> Result<(u32, u32)> {
        if width == 0 || height == 0 {
            return Err(Error::EmptyImage {
                width: width.into(),
                height: height.into(),
            });
        }
        let wanted = self.grid.temporal_patch_size as usize;
        if frames < wanted {
            return Err(Error::TooFewFrames {
                found: frames,
                wanted,
            });
        }
        // `smart_resize` of the video processor, operation by operation.
        let factor = f64::from(self.grid.factor());
        let (mut w, mut h) = (f64::from(width), f64::from(height));
        if h < factor || w < factor {
            if matches!(self.rules, VideoRules::MlxVlm(_)) {
                return Err(Error::ImageSize {
                    family: "Qwen-VL",
                    width: width.into(),
                    height: height.into(),
                    reason: format!("a side is below {factor}, which mlx-vlm refuses"),
                });
            }
            let scale = (factor / h).max(factor / w);
            (w, h) = ((w * scale).trunc(), (h * scale).trunc());
        }
        check_aspect(w, h)?;
        let (t, temporal) = (frames as f64, wanted as f64);
        let groups = match self.rules {
            VideoRules::Transformers => round_to(t, temporal),
            VideoRules::MlxVlm(_) => (t / temporal).ceil() * temporal,
        };
        let (min, max) = (self.min_pixels as f64, self.max_area(frames) as f64);
        let (mut wide, mut high) = (round_to(w, factor), round_to(h, factor));
        if groups * high * wide > max {
            let beta = (t * h * w / max).sqrt();
            let shrink = |side: f64| ((side / beta / factor).floor() * factor).max(factor);
            (wide, high) = (shrink(w), shrink(h));
        } else if groups * high * wide < min {
            let beta = (min / (t * h * w)).sqrt();
            let grow = |side: f64| (side * beta / factor).ceil() * factor;
            (wide, high) = (grow(w), grow(h));
        }
        Ok((wide as u32, high as u32))
    }

    /// The most pixels of all frames together.
    fn max_area(&self, frames: usize) -> u64 {
        let Some(tokens) = self.frame_cap else {
            return self.max_pixels;
        };
        let frames = frames as u64;
        let cap = u64::from(tokens) * u64::from(self.grid.factor()).pow(2);
        let floor = (self.min_pixels as f64 * 1.05) as u64;
        cap.min(self.max_pixels / frames)
            .max(floor)
            .saturating_mul(frames)
    }

    /// Samples, resizes, normalises and cuts a video. The last frame is repeated to fill its
    /// temporal patch.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size); [`Error::FrameSize`] if frames differ in
    /// size; [`Error::Limit`] for more than
    /// [`MAX_SAMPLED_FRAMES`](super::MAX_SAMPLED_FRAMES); those of the source.
    pub fn prepare(&self, video: &mut dyn FrameSource) -> Result<QwenVideo> {
        let _span = tracing::debug_span!("qwen_prepare_video").entered();
        let indices = self.sampling.indices(video.num_frames(), video.fps())?;
        let frames = indices.len();
        prepare_groups(self.grid, &self.steps, indices, video, |width, height| {
            self.target_size(frames, width, height)
        })
    }
}

fn read_sampling(block: &mut Block<'_>) -> Result<Sampling> {
    let sample = block.boolean("do_sample_frames")?.unwrap_or(true);
    if let Some(value) = block.get("num_frames") {
        // transformers refuses it beside its default `fps`.
        return Err(config::bad_value(
            "num_frames",
            value,
            "null: the rate chooses the frames",
        ));
    }
    let fps = block.number("fps")?.unwrap_or(2.0);
    let min_frames = block.positive("min_frames")?.unwrap_or(4) as usize;
    let max_frames = block.positive("max_frames")?.unwrap_or(768) as usize;
    Ok(if sample {
        Sampling::Rate {
            fps,
            min_frames,
            max_frames,
        }
    } else {
        Sampling::All
    })
}
