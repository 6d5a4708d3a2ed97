//! Frames cut in temporal groups, which all Qwen-VL families share.

use crate::digest::MediaDigest;
use crate::error::Result;
use crate::image::RgbImage;
use crate::image::patches::CutDigest;
use crate::image::qwen::QwenGrid;
use crate::image::steps::Steps;
use crate::video::{DEFAULT_FPS, FrameSource, check_count, check_frame_size};

/// A video as the Qwen-VL families take it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QwenVideo {
    /// `[num_patches, patch_dim]`, row major: temporal groups in turn, each laid out as in
    /// [`QwenImage`](crate::image::QwenImage) with its frames as the temporal copies.
    pub pixel_values: Vec<f32>,
    /// Temporal groups, rows and columns of patches.
    pub grid_thw: [usize; 3],
    /// Values a patch: `3 * temporal_patch_size * patch_size * patch_size`.
    pub patch_dim: usize,
    /// How many video tokens the prompt gets for each temporal group.
    pub soft_tokens_per_group: usize,
    /// Which frames of the source these are, without the padding.
    pub indices: Vec<usize>,
    /// When each temporal group is shown, in seconds. Only Qwen3-VL's prompt says so.
    pub timestamps: Vec<f64>,
    /// Seconds from one temporal group to the next, on average, which Qwen2.5-VL's positions
    /// are made of (`second_per_grid_ts` in transformers).
    pub seconds_per_group: f64,
    /// What names this prepared video in caches.
    pub digest: MediaDigest,
}

impl QwenVideo {
    /// The number of patches, the product of the grid.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        self.grid_thw.iter().product()
    }

    /// The text that precedes temporal group `i` in Qwen3-VL's prompt: `<1.5 seconds>`.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn timestamp_text(&self, i: usize) -> String {
        format!("<{:.1} seconds>", self.timestamps[i])
    }
}

/// Resizes the frames at `indices` to the size that `target` gives for the first one's,
/// normalises and cuts them. The last frame is repeated to fill its temporal patch.
pub(crate) fn prepare_groups(
    grid: QwenGrid,
    steps: &Steps,
    indices: Vec<usize>,
    video: &mut dyn FrameSource,
    target: impl Fn(u32, u32) -> Result<(u32, u32)>,
) -> Result<QwenVideo> {
    check_count(indices.len())?;
    let fps = video.fps().filter(|fps| *fps > 0.0);
    let temporal = grid.temporal_patch_size as usize;
    let table = steps.table();
    let cutter = grid.cutter(&table, steps.resizer.threads);
    let mut digest = CutDigest::new("qwen.video", &cutter);
    let (mut first, mut seen) = (None, 0);
    let (mut group, mut pixel_values, mut grid_thw) = (Vec::new(), Vec::new(), [0; 3]);
    let total = video.num_frames();
    video.visit(&indices, &mut |frame| {
        let size = (frame.width(), frame.height());
        check_frame_size(first, size)?;
        first = Some(size);
        let resized =
            steps.resize_or_check(&frame, "Qwen-VL", grid.factor(), || target(size.0, size.1))?;
        digest.frame(&resized);
        grid_thw = grid.grid_of(indices.len().div_ceil(temporal), &resized);
        group.push(resized.into_owned());
        seen += 1;
        if group.len() == temporal || seen == indices.len() {
            let mut frames: Vec<&RgbImage> = group.iter().collect();
            frames.resize(temporal, &group[group.len() - 1]);
            cutter.cut(&frames, &mut pixel_values);
            group.clear();
        }
        Ok(())
    })?;
    Ok(QwenVideo {
        digest: grid.finish(digest, grid_thw),
        pixel_values,
        grid_thw,
        patch_dim: grid.patch_dim(),
        soft_tokens_per_group: grid.tokens_per_group(grid_thw),
        timestamps: group_times(&indices, fps.unwrap_or(DEFAULT_FPS), temporal),
        seconds_per_group: temporal as f64 / sampled_fps(indices.len(), total, fps),
        indices,
    })
}

/// The rate of the chosen frames (`VideoMetadata.sampled_fps` in transformers).
fn sampled_fps(frames: usize, total: usize, fps: Option<f64>) -> f64 {
    fps.map_or(DEFAULT_FPS, |fps| frames as f64 / total as f64 * fps)
}

/// The time of each group of `temporal` frames: the mean of its first and last, the indices
/// padded by repeating the last (`_calculate_timestamps` in transformers).
fn group_times(indices: &[usize], fps: f64, temporal: usize) -> Vec<f64> {
    let time = |index: Option<&usize>| index.map_or(0.0, |&index| index as f64 / fps);
    indices
        .chunks(temporal)
        .map(|group| f64::midpoint(time(group.first()), time(group.last())))
        .collect()
}
