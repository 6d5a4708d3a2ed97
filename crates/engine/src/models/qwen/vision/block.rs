//! One layer of the tower.

use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::pad;

use super::super::config::VisionConfig;
use super::EPS;
use super::grid::Rotation;
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{BiasedLinear, LayerNorm, Mask, attention, gelu_tanh_as_defined};

/// Sizes of heads that MLX's attention kernels serve. Others are filled up with zeros, which
/// change no product.
const KERNEL_HEADS: [i32; 3] = [64, 80, 128];

/// Attention within a frame, and an MLP, each after a norm.
#[derive(Debug)]
pub(super) struct Block {
    heads: i32,
    head_size: i32,
    first_norm: LayerNorm,
    second_norm: LayerNorm,
    /// Queries, keys and values.
    project: BiasedLinear,
    out: BiasedLinear,
    up: BiasedLinear,
    down: BiasedLinear,
}

impl Block {
    pub(super) fn load(weights: &mut Weights, config: &VisionConfig, index: usize) -> Result<Self> {
        let path = format!("vision.blocks.{index}");
        let (hidden, width) = (config.hidden_size, config.intermediate_size);
        let mut norm =
            |name: &str| LayerNorm::load(weights, &format!("{path}.{name}"), hidden, EPS);
        let (first_norm, second_norm) = (norm("norm1")?, norm("norm2")?);
        let mut linear = |name: &str, input, out| {
            BiasedLinear::load(weights, &format!("{path}.{name}"), input, out)
        };
        Ok(Self {
            heads: config.num_heads,
            head_size: config.head_size(),
            first_norm,
            second_norm,
            project: linear("attn.qkv", hidden, 3 * hidden)?,
            out: linear("attn.proj", hidden, hidden)?,
            up: linear("mlp.linear_fc1", hidden, width)?,
            down: linear("mlp.linear_fc2", width, hidden)?,
        })
    }

    /// `[patches, hidden]`, of `frames` frames of equal size.
    pub(super) fn forward(&self, h: &Array, frames: i32, rotation: &Rotation) -> Result<Array> {
        let h = h.add(self.attend(&self.first_norm.forward(h)?, frames, rotation)?)?;
        let x = self.second_norm.forward(&h)?;
        let mlp = self
            .down
            .forward(&gelu_tanh_as_defined(&self.up.forward(&x)?)?)?;
        Ok(h.add(mlp)?)
    }

    fn attend(&self, x: &Array, frames: i32, rotation: &Rotation) -> Result<Array> {
        let patches = x.dim(0);
        let all = self
            .project
            .forward(x)?
            .reshape(&[patches, 3, self.heads, self.head_size])?;
        let part = |index: i32| all.try_index((.., index, .., ..));
        let queries = rotation.apply(&part(0)?)?;
        let keys = rotation.apply(&part(1)?)?;
        // A frame sees itself: frames are what attention calls a batch.
        let outside = |x: Array| -> Result<Array> {
            let by_frame = x.reshape(&[frames, -1, self.heads, self.head_size])?;
            filled(&by_frame.transpose_axes(&[0, 2, 1, 3])?)
        };
        let seen = attention(
            &outside(queries)?,
            &outside(keys)?,
            &outside(part(2)?)?,
            (self.head_size as f32).powf(-0.5),
            &Mask::None,
        )?;
        let merged = seen
            .try_index((.., .., .., 0..self.head_size))?
            .transpose_axes(&[0, 2, 1, 3])?
            .reshape(&[patches, -1])?;
        self.out.forward(&merged)
    }
}

/// Heads `[..., size]` of a size that has a kernel, if there is one that is not smaller.
fn filled(x: &Array) -> Result<Array> {
    let size = x.dim(-1);
    match KERNEL_HEADS.into_iter().find(|&kernel| kernel >= size) {
        Some(kernel) if kernel > size => {
            let widths: &[(i32, i32)] = &[(0, 0), (0, 0), (0, 0), (0, kernel - size)];
            Ok(pad(x, widths, None, None)?)
        }
        _ => Ok(x.clone()),
    }
}
