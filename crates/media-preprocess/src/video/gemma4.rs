//! Gemma 4 takes a video as a sequence of small images.

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::Value;

use super::{DEFAULT_FPS, FrameSource, Sampling, VideoRules, check_count, check_frame_size};
use crate::config::{self, Block};
use crate::digest::MediaDigest;
use crate::error::{Error, Result};
use crate::image::gemma4::{Gemma4ImageProcessor, Gemma4Layout, flat};
use crate::image::patches::CutDigest;

/// Prepares videos for Gemma 4.
///
/// ```
/// use prefill_media_preprocess::image::RgbImage;
/// use prefill_media_preprocess::video::{FrameList, Gemma4VideoProcessor};
///
/// let config = serde_json::json!({"video_processor": {"num_frames": 2}});
/// let processor = Gemma4VideoProcessor::from_json(&config)?;
/// let frame = RgbImage::new(64, 48, vec![128; 64 * 48 * 3])?;
/// let mut video = FrameList::new(vec![frame; 90], Some(1.0));
/// let prepared = processor.prepare(&mut video)?;
/// assert_eq!(prepared.indices, [0, 45]);
/// assert_eq!(prepared.timestamp_text(1), "00:45");
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemma4VideoProcessor {
    /// Every frame is prepared as an image, under a smaller budget.
    frame: Gemma4ImageProcessor,
    num_frames: usize,
    sample: bool,
    rules: VideoRules,
}

impl Gemma4VideoProcessor {
    /// Reads a checkpoint's configuration: the `video_processor` block of its
    /// `processor_config.json`, that block alone, or a flat `video_preprocessor_config.json`.
    ///
    /// Absent keys have transformers' class defaults: 32 frames of 70 soft tokens.
    ///
    /// # Errors
    /// [`Error::ConfigUnknown`] for a key that isn't known not to matter, and
    /// [`Error::ConfigValue`] for a value that can't be followed.
    pub fn from_json(config: &Value) -> Result<Self> {
        let mut block = Block::new(config, "video_processor")?;
        let num_frames = block.positive("num_frames")?.unwrap_or(32) as usize;
        let sample = block.boolean("do_sample_frames")?.unwrap_or(true);
        let frame = Gemma4ImageProcessor::from_video_block(block)?;
        let rules = VideoRules::default();
        Ok(Self {
            frame,
            num_frames,
            sample,
            rules,
        }
        .with_rules(rules))
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
        self.frame = self
            .frame
            .with_resize_backend(backend)
            .with_rescale(rescale);
        self.rules = rules;
        self
    }

    /// This processor with another layout of `pixel_values`.
    #[must_use]
    pub fn with_layout(mut self, layout: Gemma4Layout) -> Self {
        self.frame = self.frame.with_layout(layout);
        self
    }

    /// This processor with more threads for resizing.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.frame = self.frame.with_threads(threads);
        self
    }

    /// This processor with another number of frames.
    #[must_use]
    pub fn with_num_frames(mut self, frames: NonZeroUsize) -> Self {
        self.num_frames = frames.get();
        self
    }

    /// The rule that chooses frames.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        let frames = self.num_frames;
        match self.rules {
            _ if !self.sample => Sampling::All,
            VideoRules::Transformers => Sampling::Uniform { frames },
            VideoRules::MlxVlm(_) => Sampling::Spread { frames },
        }
    }

    /// Samples, resizes, rescales and cuts a video.
    ///
    /// # Errors
    /// [`Error::TooFewFrames`]; [`Error::FrameSize`] if frames differ in size;
    /// [`Error::Limit`] for more than [`MAX_SAMPLED_FRAMES`](super::MAX_SAMPLED_FRAMES); those
    /// of the source and of [`Gemma4ImageProcessor::prepare`].
    pub fn prepare(&self, video: &mut dyn FrameSource) -> Result<Gemma4Video> {
        let _span = tracing::debug_span!("gemma4_prepare_video").entered();
        let fps = video.fps().filter(|fps| *fps > 0.0).unwrap_or(DEFAULT_FPS);
        let indices = self.sampling().indices(video.num_frames(), video.fps())?;
        check_count(indices.len())?;
        let table = self.frame.table();
        let cutter = self.frame.cutter(&table);
        let mut digest = CutDigest::new("gemma4.video", &cutter);
        let (mut first, mut layout, mut pixel_values) = (None, None, Vec::new());
        video.visit(&indices, &mut |frame| {
            let size = (frame.width(), frame.height());
            check_frame_size(first, size)?;
            first = Some(size);
            let frame = self.frame.resize(&frame)?;
            digest.frame(&frame);
            cutter.cut(&[&frame], &mut pixel_values);
            layout.get_or_insert_with(|| self.frame.layout_of(&frame));
            Ok(())
        })?;
        let layout = layout.ok_or(Error::TooFewFrames {
            found: 0,
            wanted: indices.len(),
        })?;
        let shape = [indices.len(), layout.num_patches(), layout.patch_dim()];
        let digest = digest.finish(&shape, "positions", &[shape[1], 2], flat(&layout.positions));
        Ok(Gemma4Video {
            pixel_values,
            num_frames: indices.len(),
            rows: layout.rows,
            columns: layout.columns,
            patch_size: layout.patch_size,
            soft_tokens_per_frame: layout.soft_tokens,
            max_patches: layout.max_patches,
            positions: layout.positions,
            timestamps: indices.iter().map(|&i| i as f64 / fps).collect(),
            indices,
            digest,
        })
    }
}

/// A video as Gemma 4 takes it, without padding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Gemma4Video {
    /// `[num_frames, num_patches, patch_dim]`, row major; each frame as in
    /// [`Gemma4Image`](crate::image::Gemma4Image).
    pub pixel_values: Vec<f32>,
    /// `[num_patches, 2]`, the same for every frame: column (x) and row (y) of each patch.
    pub positions: Vec<[i32; 2]>,
    /// How many frames.
    pub num_frames: usize,
    /// Rows of a frame's patch grid.
    pub rows: usize,
    /// Columns of a frame's patch grid.
    pub columns: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// How many video tokens the prompt gets for each frame.
    pub soft_tokens_per_frame: usize,
    /// The number of rows to which transformers pads each frame.
    pub max_patches: usize,
    /// Which frames of the source these are.
    pub indices: Vec<usize>,
    /// When they are shown, in seconds: index over rate.
    pub timestamps: Vec<f64>,
    /// What names this prepared video in caches.
    pub digest: MediaDigest,
}

impl Gemma4Video {
    /// Patches a frame, `rows * columns`.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        self.positions.len()
    }

    /// Values a patch.
    #[must_use]
    pub fn patch_dim(&self) -> usize {
        self.patch_size * self.patch_size * 3
    }

    /// The timestamp that precedes frame `i` in the prompt, minutes and seconds cut off:
    /// `01:05`.
    ///
    /// # Panics
    /// If there is no such frame.
    #[must_use]
    pub fn timestamp_text(&self, i: usize) -> String {
        let seconds = self.timestamps[i];
        format!(
            "{:02}:{:02}",
            (seconds / 60.0).floor() as u64,
            (seconds % 60.0) as u64
        )
    }

    /// The tensors as transformers gives them: each frame padded to `max_patches` rows, pixels
    /// with 0 and positions with -1; shapes `[num_frames, max_patches, patch_dim]` and
    /// `[num_frames, max_patches, 2]`.
    #[must_use]
    pub fn padded(&self) -> (Vec<f32>, Vec<[i32; 2]>) {
        let frame_len = self.num_patches() * self.patch_dim();
        let padded_len = self.max_patches * self.patch_dim();
        let mut pixels = Vec::with_capacity(self.num_frames * padded_len);
        let mut positions = Vec::with_capacity(self.num_frames * self.max_patches);
        for (i, frame) in self.pixel_values.chunks_exact(frame_len).enumerate() {
            pixels.extend_from_slice(frame);
            pixels.resize((i + 1) * padded_len, 0.0);
            positions.extend_from_slice(&self.positions);
            positions.resize((i + 1) * self.max_patches, [-1, -1]);
        }
        (pixels, positions)
    }
}
