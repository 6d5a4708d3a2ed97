//! The vision tower: patches to soft tokens.

mod block;
mod grid;

use mlx_rs::ops::concatenate;
use mlx_rs::{Array, Dtype};

use self::block::Block;
use self::grid::{Grid, Rotation};
use super::config::VisionConfig;
use crate::checkpoint::weights::Weights;
use crate::nn::{BiasedLinear, LayerNorm, Matrix, gelu};
use crate::{Error, Result};

/// Of every layer norm of the tower.
const EPS: f32 = 1e-6;

/// Of a picture; the configuration has been checked for it.
const CHANNELS: i32 = 3;

/// The tower, and what merges its patches into the text's embedding space.
#[derive(Debug)]
pub(super) struct VisionTower {
    config: VisionConfig,
    patches: PatchEmbedding,
    /// `[side * side, hidden]`.
    positions: Matrix,
    blocks: Vec<Block>,
    merger: Merger,
    /// One for each of `deepstack_visual_indexes`.
    deepstack: Vec<Merger>,
    dtype: Dtype,
}

/// A picture's or a video's patches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches<'a> {
    /// `[patches, values]`, row major, by merge windows.
    pub values: &'a [f32],
    /// Frame groups, rows and columns of patches.
    pub grid_thw: [usize; 3],
    pub soft_tokens: usize,
}

impl VisionTower {
    pub(super) fn load(weights: &mut Weights, config: &VisionConfig, dtype: Dtype) -> Result<Self> {
        let hidden = config.hidden_size;
        let table = [config.num_position_embeddings, hidden];
        let deepstack = 0..config.deepstack_visual_indexes.len();
        Ok(Self {
            patches: PatchEmbedding::load(weights, config)?,
            positions: Matrix::load(weights, "vision.pos_embed", &table)?,
            blocks: (0..config.depth)
                .map(|index| Block::load(weights, config, index))
                .collect::<Result<_>>()?,
            merger: Merger::load(weights, "vision.merger", config, false)?,
            deepstack: deepstack
                .map(|index| {
                    let path = format!("vision.deepstack_merger_list.{index}");
                    Merger::load(weights, &path, config, true)
                })
                .collect::<Result<_>>()?,
            config: config.clone(),
            dtype,
        })
    }

    /// `[soft tokens, out * (1 + deepstack layers)]`, in the tower's type: in a row what
    /// replaces the embedding, then what is added after each of the first decoder layers.
    pub(super) fn forward(&self, patches: Patches<'_>) -> Result<Array> {
        let grid = self.grid(patches)?;
        let shape = [grid.patches(), self.config.patch_values()];
        let pixels = Array::from_slice(patches.values, &shape).as_dtype(self.dtype)?;
        let places = grid.interpolate(&self.positions, self.config.table_side())?;
        let mut h = self
            .patches
            .forward(&pixels)?
            .add(places.as_dtype(self.dtype)?)?;
        let rotation = Rotation::new(&grid, self.config.head_size(), self.config.rope_base())?;
        let mut extra = Vec::with_capacity(self.deepstack.len());
        for (index, block) in self.blocks.iter().enumerate() {
            h = block.forward(&h, grid.frames, &rotation)?;
            let taps = &self.config.deepstack_visual_indexes;
            if let Some(tap) = taps.iter().position(|&tap| tap == index) {
                extra.push(self.deepstack[tap].forward(&h)?);
            }
        }
        let merged = self.merger.forward(&h)?;
        if extra.is_empty() {
            return Ok(merged);
        }
        let parts: Vec<&Array> = std::iter::once(&merged).chain(&extra).collect();
        Ok(concatenate(&parts, -1)?)
    }

    /// MLX checks no index and no length.
    fn grid(&self, patches: Patches<'_>) -> Result<Grid> {
        let (config, [frames, rows, columns]) = (&self.config, patches.grid_thw);
        let merge = config.spatial_merge_size as usize;
        let count = frames
            .checked_mul(rows)
            .and_then(|count| count.checked_mul(columns));
        let values = count.and_then(|count| count.checked_mul(config.patch_values() as usize));
        let fits = values == Some(patches.values.len())
            && i32::try_from(patches.values.len()).is_ok()
            && rows.is_multiple_of(merge)
            && columns.is_multiple_of(merge)
            && count == Some(patches.soft_tokens * merge * merge)
            && patches.soft_tokens > 0;
        if !fits {
            let fact = format!(
                "{} values in a grid {:?} for {} soft tokens do not fit patches of {} values, \
                 merged {merge} by {merge}",
                patches.values.len(),
                patches.grid_thw,
                patches.soft_tokens,
                config.patch_values(),
            );
            let key = "vision_config";
            return Err(Error::Config { key, fact });
        }
        Ok(Grid {
            frames: frames as i32,
            rows: rows as i32,
            columns: columns as i32,
            merge: merge as i32,
        })
    }
}

/// The convolution whose kernel is its stride, as the linear layer that it is, over the values
/// of a patch with the channels last: the order in which MLX's convolution sums.
#[derive(Debug)]
struct PatchEmbedding {
    /// `[hidden, time * rows * columns * channels]`.
    kernel: Matrix,
    /// `[hidden]`
    bias: Array,
    /// Time, rows and columns of a patch.
    extents: [i32; 3],
}

impl PatchEmbedding {
    /// Hugging Face stores the kernel as `[hidden, channels, time, rows, columns]`, MLX with
    /// the channels last.
    fn load(weights: &mut Weights, config: &VisionConfig) -> Result<Self> {
        let name = "vision.patch_embed.proj.weight";
        let (hidden, time, side) = (
            config.hidden_size,
            config.temporal_patch_size,
            config.patch_size,
        );
        let mlx = [hidden, time, side, side, CHANNELS];
        let kernel = match weights.stored(name) {
            Some((_, shape)) if *shape == mlx => weights.take(name, &mlx)?,
            _ => weights
                .take(name, &[hidden, CHANNELS, time, side, side])?
                .transpose_axes(&[0, 2, 3, 4, 1])?,
        };
        Ok(Self {
            kernel: Matrix::plain(&kernel.reshape(&[hidden, config.patch_values()])?)?,
            bias: weights.take("vision.patch_embed.proj.bias", &[hidden])?,
            extents: [time, side, side],
        })
    }

    /// `[patches, values]`, with the channels first, to `[patches, hidden]`.
    fn forward(&self, pixels: &Array) -> Result<Array> {
        let [time, rows, columns] = self.extents;
        let channels_last = pixels
            .reshape(&[-1, CHANNELS, time, rows, columns])?
            .transpose_axes(&[0, 2, 3, 4, 1])?
            .reshape(pixels.shape())?;
        Ok(self.kernel.multiply(&channels_last)?.add(&self.bias)?)
    }
}

/// Joins the patches of a window and projects them.
#[derive(Debug)]
struct Merger {
    norm: LayerNorm,
    /// Whether a whole window is normalised rather than each of its patches.
    joins_first: bool,
    /// Values of a window.
    joined: i32,
    first: BiasedLinear,
    second: BiasedLinear,
}

impl Merger {
    fn load(
        weights: &mut Weights,
        path: &str,
        config: &VisionConfig,
        joins_first: bool,
    ) -> Result<Self> {
        let joined = config.hidden_size * config.spatial_merge_size * config.spatial_merge_size;
        let normed = if joins_first {
            joined
        } else {
            config.hidden_size
        };
        Ok(Self {
            norm: LayerNorm::load(weights, &format!("{path}.norm"), normed, EPS)?,
            joins_first,
            joined,
            first: BiasedLinear::load(weights, &format!("{path}.linear_fc1"), joined, joined)?,
            second: BiasedLinear::load(
                weights,
                &format!("{path}.linear_fc2"),
                joined,
                config.out_hidden_size,
            )?,
        })
    }

    /// `[patches, hidden]` to `[soft tokens, out]`.
    fn forward(&self, h: &Array) -> Result<Array> {
        let joined = if self.joins_first {
            self.norm.forward(&h.reshape(&[-1, self.joined])?)?
        } else {
            self.norm.forward(h)?.reshape(&[-1, self.joined])?
        };
        self.second.forward(&gelu(&self.first.forward(&joined)?)?)
    }
}
