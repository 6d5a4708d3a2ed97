//! Two strided convolutions: a quarter of the frames and of the mel bins.

use mlx_rs::Array;
use mlx_rs::fast::layer_norm;
use mlx_rs::ops::{conv2d, maximum};

use super::super::config::AudioConfig;
use super::ConvLayout;
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, scalar_like};

const PATH: &str = "audio_tower.subsample_conv_projection";

/// The convolutions, and the projection of what they leave of a frame.
#[derive(Debug)]
pub(super) struct Subsampling {
    layers: [Convolution; 2],
    projection: Linear,
    layout: ConvLayout,
}

#[derive(Debug)]
struct Convolution {
    /// `[out, 3, 3, in]`.
    kernel: Array,
    /// `[out]`.
    norm: Array,
    eps: f32,
}

impl Subsampling {
    pub(super) fn load(weights: &mut Weights, config: &AudioConfig) -> Result<Self> {
        let [first, second] = config.subsampling_conv_channels;
        // One input channel tells the layouts apart, which three would not.
        let kernel = format!("{PATH}.layer0.conv.weight");
        let stored = weights.stored(&kernel).map(|(_, shape)| shape);
        let layout = if stored == Some(&[first, 3, 3, 1][..]) {
            ConvLayout::ChannelsLast
        } else {
            ConvLayout::ChannelsFirst
        };
        let eps = config.rms_norm_eps;
        Ok(Self {
            layers: [
                Convolution::load(weights, 0, (1, first), layout, eps)?,
                Convolution::load(weights, 1, (first, second), layout, eps)?,
            ],
            projection: Linear::load(
                weights,
                &format!("{PATH}.input_proj_linear"),
                config.mel_bins() / 4 * second,
                config.hidden_size,
            )?,
            layout,
        })
    }

    pub(super) fn layout(&self) -> ConvLayout {
        self.layout
    }

    /// `[1, frames, bins, 1]` to `[1, frames / 4, hidden]`, halves rounded up each time.
    pub(super) fn forward(&self, mel: &Array) -> Result<Array> {
        let [first, second] = &self.layers;
        let h = second.forward(&first.forward(mel)?)?;
        let rows = h.reshape(&[1, h.dim(1), -1])?;
        self.projection.forward(&rows)
    }
}

impl Convolution {
    fn load(
        weights: &mut Weights,
        index: usize,
        (input, out): (i32, i32),
        layout: ConvLayout,
        eps: f32,
    ) -> Result<Self> {
        let path = format!("{PATH}.layer{index}");
        let name = format!("{path}.conv.weight");
        let kernel = match layout {
            ConvLayout::ChannelsFirst => weights
                .take(&name, &[out, input, 3, 3])?
                .transpose_axes(&[0, 2, 3, 1])?,
            ConvLayout::ChannelsLast => weights.take(&name, &[out, 3, 3, input])?,
        };
        Ok(Self {
            kernel,
            norm: weights.take(&format!("{path}.norm.weight"), &[out])?,
            eps,
        })
    }

    /// `[1, height, width, in]` to half the height and width, rounded up.
    fn forward(&self, x: &Array) -> Result<Array> {
        let x = conv2d(x, &self.kernel, (2, 2), (1, 1), (1, 1), 1)?;
        let x = layer_norm(&x, &self.norm, None, self.eps)?;
        Ok(maximum(&x, scalar_like(0.0, &x)?)?)
    }
}
