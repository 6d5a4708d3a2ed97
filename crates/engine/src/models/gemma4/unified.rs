//! Pictures of the unified model: no tower, each soft token straight from its pixels.

use mlx_rs::ops::mean_axis;
use mlx_rs::{Array, Dtype};

use super::config::{TextConfig, UnifiedVisionConfig};
use super::patches::Patches;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, RmsNorm};
use crate::{Error, Result};

/// The default of torch's `nn.LayerNorm`, which transformers leaves as it is.
const LAYER_NORM_EPS: f32 = 1e-5;

/// The embedder of pictures.
#[derive(Debug)]
pub(super) struct UnifiedEmbedder {
    pixel_norm: LayerNorm,
    dense: Linear,
    dense_bias: Array,
    dense_norm: LayerNorm,
    /// `[mm_posemb_size, 2, dim]`: for columns and for rows.
    positions: Array,
    position_norm: LayerNorm,
    output_norm: RmsNorm,
    projection: Linear,
    side: i32,
    grid: i32,
    dtype: Dtype,
}

impl UnifiedEmbedder {
    pub(super) fn load(
        weights: &mut Weights,
        config: &UnifiedVisionConfig,
        text: &TextConfig,
    ) -> Result<Self> {
        let path = "vision_embedder";
        let (dim, grid, side) = (
            config.mm_embed_dim,
            config.mm_posemb_size,
            config.model_patch_size,
        );
        let pixels = side * side * 3;
        let positions = weights.take(&format!("{path}.pos_embedding"), &[grid, 2, dim])?;
        Ok(Self {
            pixel_norm: LayerNorm::load(weights, &format!("{path}.patch_ln1"), pixels)?,
            dense: Linear::load(weights, &format!("{path}.patch_dense"), pixels, dim)?,
            dense_bias: weights.take(&format!("{path}.patch_dense.bias"), &[dim])?,
            dense_norm: LayerNorm::load(weights, &format!("{path}.patch_ln2"), dim)?,
            dtype: positions.dtype(),
            positions,
            position_norm: LayerNorm::load(weights, &format!("{path}.pos_norm"), dim)?,
            output_norm: RmsNorm::without_weight(config.rms_norm_eps),
            projection: Linear::load(
                weights,
                "embed_vision.embedding_projection",
                dim,
                text.hidden_size,
            )?,
            side,
            grid,
        })
    }

    /// `[frames * patches, text hidden]`, in the working type.
    pub(super) fn forward(&self, patches: &Patches<'_>) -> Result<Array> {
        let (rows, columns) = (patches.rows, patches.columns);
        let fits = patches.is_consistent()
            && patches.side == self.side as usize
            && rows.max(columns) <= self.grid as usize;
        if !fits {
            let fact = format!(
                "a grid of {rows} x {columns} patches of {} pixels does not fit \
                 model_patch_size {} and mm_posemb_size {}",
                patches.side, self.side, self.grid
            );
            return Err(Error::Config {
                key: "vision_config",
                fact,
            });
        }
        let [frames, count, values] = patches.shape();
        let pixels = Array::from_slice(patches.pixels, &[frames * count, values]);
        let x = self.pixel_norm.forward(&pixels.as_dtype(self.dtype)?)?;
        let x = self
            .dense_norm
            .forward(&self.dense.forward(&x)?.add(&self.dense_bias)?)?
            .reshape(&[frames, count, -1])?;
        let place = |axis: usize| -> Result<Array> {
            let at: Vec<i32> = patches
                .positions
                .iter()
                .map(|position| 2 * position[axis] + axis as i32)
                .collect();
            let table = self.positions.reshape(&[2 * self.grid, -1])?;
            Ok(table.take_axis(Array::from_slice(&at, &[count]), 0)?)
        };
        let x = x.add(place(0)?)?.add(place(1)?)?;
        let x = x.reshape(&[frames * count, -1])?;
        let x = self.output_norm.forward(&self.position_norm.forward(&x)?)?;
        self.projection.forward(&x)
    }
}

/// Layer normalisation with weight and bias.
#[derive(Debug)]
struct LayerNorm {
    weight: Array,
    bias: Array,
}

impl LayerNorm {
    fn load(weights: &mut Weights, path: &str, size: i32) -> Result<Self> {
        Ok(Self {
            weight: weights.take(&format!("{path}.weight"), &[size])?,
            bias: weights.take(&format!("{path}.bias"), &[size])?,
        })
    }

    /// In f32, pass by pass; see [`mean`].
    fn forward(&self, x: &Array) -> Result<Array> {
        let wide = x.as_dtype(Dtype::Float32)?;
        // What rounding left of the mean is small, and so is its own rounding. In a patch of
        // one colour it would otherwise be of the size of what is to be normalised.
        let nearly = wide.subtract(mean(&wide)?)?;
        let centred = nearly.subtract(mean(&nearly)?)?;
        let variance = mean(&centred.square()?)?;
        let scale = variance.add(Array::from_f32(LAYER_NORM_EPS))?.rsqrt()?;
        let normal = centred.multiply(scale)?.as_dtype(x.dtype())?;
        Ok(normal.multiply(&self.weight)?.add(&self.bias)?)
    }
}

/// The mean over the last axis, kept with extent 1, as a mean of means. On the CPU MLX adds
/// one value after the other, which over the 6912 values of a patch leaves features off by
/// 2e-4 (its own layer norm is no better).
fn mean(x: &Array) -> Result<Array> {
    let size = x.dim(-1);
    let groups = (1..=size)
        .take_while(|group| group * group <= size)
        .filter(|group| size % group == 0)
        .last()
        .unwrap_or(1);
    let grouped = x.reshape(&[x.dim(0), groups, size / groups])?;
    let means = mean_axis(&grouped, -1, false)?;
    Ok(mean_axis(&means, -1, true)?)
}
