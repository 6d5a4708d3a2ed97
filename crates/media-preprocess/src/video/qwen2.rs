//! Qwen2-VL and Qwen2.5-VL take a video in pairs of frames, too, each frame within an image's
//! bounds.

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::Value;

use super::qwen::prepare_groups;
use super::{FrameSource, QwenVideo, Sampling, VideoRules};
use crate::config::{self, Block};
use crate::error::{Error, Result};
use crate::image::qwen::{CLIP_MEAN, CLIP_STD, QwenGrid, area_bounded_size, read_pixel_bounds};
use crate::image::resize::Resizer;
use crate::image::steps::Steps;

/// Prepares videos for Qwen2-VL and Qwen2.5-VL (`Qwen2VLVideoProcessor` in transformers).
///
/// ```
/// use prefill_media_preprocess::image::RgbImage;
/// use prefill_media_preprocess::video::{FrameList, Qwen2VideoProcessor};
///
/// let config = serde_json::json!({
///     "min_pixels": 3136, "max_pixels": 602112, "do_sample_frames": true, "fps": 2
/// });
/// let processor = Qwen2VideoProcessor::from_json(&config)?;
/// let frame = RgbImage::new(112, 56, vec![128; 112 * 56 * 3])?;
/// let mut video = FrameList::new(vec![frame; 75], Some(25.0));
/// let prepared = processor.prepare(&mut video)?;
/// assert_eq!(prepared.indices, [0, 12, 25, 37, 50, 62]); // 3 seconds at 2 a second
/// assert_eq!(prepared.grid_thw, [3, 4, 8]);
/// assert_eq!(prepared.seconds_per_group, 1.0);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Qwen2VideoProcessor {
    grid: QwenGrid,
    min_pixels: u64,
    max_pixels: u64,
    /// Tokens of which all frames together may cost nine tenths, if they are capped at all.
    token_cap: Option<u32>,
    sampling: Sampling,
    steps: Steps,
}

impl Qwen2VideoProcessor {
    /// Reads a checkpoint's configuration: the `video_processor` block of a
    /// `processor_config.json`, or a flat `video_preprocessor_config.json` or
    /// `preprocessor_config.json`.
    ///
    /// Absent keys have transformers' class defaults (so that all frames are taken unless
    /// `do_sample_frames` is on), except the bounds on the pixels of one frame.
    ///
    /// # Errors
    /// [`Error::ConfigMissing`] without those bounds, or without `fps` and `num_frames` where
    /// frames are sampled; [`Error::ConfigUnknown`] for a key that isn't known not to matter;
    /// [`Error::ConfigValue`] for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        let mut block = Block::new(config, "video_processor")?;
        let classes = ["Qwen2VLVideoProcessor", "Qwen2_5_VLVideoProcessor"];
        block.class("video_processor_type", &classes)?;
        // Published checkpoints have one file for images and videos.
        let classes = ["Qwen2VLImageProcessor", "Qwen2_5_VLImageProcessor"];
        block.class("image_processor_type", &classes)?;
        let grid = QwenGrid::read(&mut block, 14)?;
        let (min_pixels, max_pixels) = read_pixel_bounds(&mut block)?;
        let sampling = read_sampling(&mut block, grid.temporal_patch_size as usize)?;
        let cap = block.boolean("cap_pixels_per_frame")?.unwrap_or(false);
        let tokens = block.positive("max_video_tokens")?.unwrap_or(128_000);
        let (backend, rescale) = VideoRules::Transformers.arithmetic();
        let defaults = Steps {
            do_resize: true,
            resizer: Resizer {
                backend,
                ..Resizer::default()
            },
            rescale,
            factor: Some(1.0 / 255.0),
            normalize: Some((CLIP_MEAN, CLIP_STD)),
        };
        let steps = Steps::read(&mut block, defaults)?;
        block.finish()?;
        Ok(Self {
            grid,
            min_pixels,
            max_pixels,
            token_cap: cap.then_some(tokens),
            sampling,
            steps,
        })
    }

    /// Reads the configuration in a checkpoint's folder: `processor_config.json`, or if that
    /// has no `video_processor` `video_preprocessor_config.json`, or if there is none
    /// `preprocessor_config.json`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json); [`Error::Io`] if there is no such file,
    /// [`Error::Json`] if one is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let own = "video_preprocessor_config.json";
        let flat = if folder.join(own).exists() {
            own
        } else {
            "preprocessor_config.json"
        };
        Self::from_json(&config::read_folder(folder, "video_processor", flat)?)
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

    /// The size, `(width, height)`, to which each of `frames` frames of `width` by `height`
    /// is resized.
    ///
    /// # Errors
    /// [`Error::EmptyImage`] for a side of 0; [`Error::TooFewFrames`] for no frame;
    /// [`Error::ImageSize`] for an aspect over 200.
    pub fn target_size(&self, frames: usize, width: u32, height: u32) -> Result<(u32, u32)> {
        if frames == 0 {
            return Err(Error::TooFewFrames {
                found: 0,
                wanted: 1,
            });
        }
        let bounds = (self.min_pixels, self.max_area(frames));
        area_bounded_size(self.grid.factor(), bounds, width, height)
    }

    /// The most pixels of one of `frames` frames.
    fn max_area(&self, frames: usize) -> u64 {
        let Some(tokens) = self.token_cap else {
            return self.max_pixels;
        };
        // Operation by operation as in transformers' `resize`.
        let area = u64::from(self.grid.factor()).pow(2);
        let all = (u64::from(tokens).saturating_mul(area) as f64 * 0.9) as u64;
        let share = all.saturating_mul(self.grid.temporal_patch_size.into()) / frames as u64;
        let floor = (self.min_pixels as f64 * 1.05) as u64;
        self.max_pixels.min(share).max(floor)
    }

    /// Samples, resizes, normalises and cuts a video. The last frame is repeated to fill its
    /// temporal patch.
    ///
    /// # Errors
    /// Those of [`target_size`](Self::target_size) and [`Sampling::indices`];
    /// [`Error::FrameSize`] if frames differ in size; [`Error::Limit`] for more than
    /// [`MAX_SAMPLED_FRAMES`](super::MAX_SAMPLED_FRAMES); those of the source.
    pub fn prepare(&self, video: &mut dyn FrameSource) -> Result<QwenVideo> {
        let _span = tracing::debug_span!("qwen2_prepare_video").entered();
        let indices = self.sampling.indices(video.num_frames(), video.fps())?;
        let frames = indices.len();
        prepare_groups(self.grid, &self.steps, indices, video, |width, height| {
            self.target_size(frames, width, height)
        })
    }
}

fn read_sampling(block: &mut Block<'_>, multiple: usize) -> Result<Sampling> {
    let sample = block.boolean("do_sample_frames")?.unwrap_or(false);
    let frames = block.positive("num_frames")?.map(|n| n as usize);
    let fps = block.number("fps")?;
    let min_frames = block.positive("min_frames")?.unwrap_or(4) as usize;
    let max_frames = block.positive("max_frames")?.unwrap_or(768) as usize;
    if !sample {
        return Ok(Sampling::All);
    }
    match (frames, fps) {
        (Some(frames), None) => Ok(Sampling::UniformMultiple { frames, multiple }),
        (None, Some(fps)) => Ok(Sampling::RateMultiple {
            fps,
            min_frames,
            max_frames,
            multiple,
        }),
        (Some(frames), Some(_)) => Err(config::bad_value(
            "num_frames",
            &frames.into(),
            "null beside `fps`",
        )),
        (None, None) => Err(Error::ConfigMissing { key: "fps" }),
    }
}
