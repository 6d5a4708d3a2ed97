//! The audio tower: log-mel frames to soft tokens, by a conformer (Gulati et al. 2020) with
//! local attention.
//!
//! The definition is transformers 5.24, `Gemma4AudioModel`. Its queries see
//! `attention_context_left - 1` positions, their own included, where mlx-vlm 0.7.6 lets them
//! see one more.

mod attention;
mod subsample;

use mlx_rs::ops::{clip, conv1d, pad};
use mlx_rs::{Array, Dtype};

use self::attention::AudioAttention;
use self::subsample::Subsampling;
use super::config::{AudioConfig, TextConfig, UnifiedAudioConfig};
use crate::checkpoint::weights::Weights;
use crate::nn::{ClippedLinear, Linear, RmsNorm, glu, scalar_like, silu};
use crate::{Error, Result};

/// The default of transformers' `Gemma4RMSNorm`, which the tower's own norms leave as it is.
const NORM_EPS: f32 = 1e-6;

/// The tower and the projection into the text's embedding space.
#[derive(Debug)]
pub(super) struct AudioTower {
    subsampling: Subsampling,
    layers: Vec<AudioLayer>,
    output: Linear,
    output_bias: Array,
    output_norm: RmsNorm,
    projection: Linear,
    bins: i32,
    dtype: Dtype,
}

impl AudioTower {
    pub(super) fn load(
        weights: &mut Weights,
        config: &AudioConfig,
        text: &TextConfig,
    ) -> Result<Self> {
        let subsampling = Subsampling::load(weights, config)?;
        let output_bias =
            weights.take("audio_tower.output_proj.bias", &[config.output_proj_dims])?;
        Ok(Self {
            layers: (0..config.num_hidden_layers)
                .map(|index| AudioLayer::load(weights, config, index, subsampling.layout()))
                .collect::<Result<_>>()?,
            subsampling,
            output: Linear::load(
                weights,
                "audio_tower.output_proj",
                config.hidden_size,
                config.output_proj_dims,
            )?,
            dtype: output_bias.dtype(),
            output_bias,
            output_norm: RmsNorm::without_weight(config.rms_norm_eps),
            projection: Linear::load(
                weights,
                "embed_audio.embedding_projection",
                config.output_proj_dims,
                text.hidden_size,
            )?,
            bins: config.mel_bins(),
        })
    }

    /// `[soft tokens, text hidden]`, in the working type, of `[frames, bins]` log-mel
    /// energies. What transformers masks, padding, is not among the frames: nothing of it
    /// would reach a frame before it.
    pub(super) fn forward(&self, mel: &[f32], bins: usize) -> Result<Array> {
        check_width(bins, self.bins)?;
        let mel = Array::from_slice(mel, &[1, (mel.len() / bins) as i32, self.bins, 1]);
        let mut h = self.subsampling.forward(&mel.as_dtype(self.dtype)?)?;
        for layer in &self.layers {
            h = layer.forward(&h)?;
        }
        let h = self.output.forward(&h)?.add(&self.output_bias)?;
        let rows = self.projection.forward(&self.output_norm.forward(&h)?)?;
        Ok(rows.squeeze_axes(&[0])?)
    }
}

/// How a checkpoint stores the kernels of convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConvLayout {
    /// `[out, in, ...]`, as `PyTorch`.
    ChannelsFirst,
    /// `[out, ..., in]`, as MLX.
    ChannelsLast,
}

/// Half a feed-forward, attention, a convolution, the other half.
#[derive(Debug)]
struct AudioLayer {
    first: FeedForward,
    pre_attention_norm: RmsNorm,
    attention: AudioAttention,
    post_attention_norm: RmsNorm,
    convolution: LightConvolution,
    second: FeedForward,
    output_norm: RmsNorm,
    limit: Limit,
}

impl AudioLayer {
    fn load(
        weights: &mut Weights,
        config: &AudioConfig,
        index: usize,
        layout: ConvLayout,
    ) -> Result<Self> {
        let path = format!("audio_tower.layers.{index}");
        let hidden = config.hidden_size;
        let mut norm = |name| RmsNorm::load(weights, &format!("{path}.{name}"), hidden, NORM_EPS);
        let [pre_attention_norm, post_attention_norm, output_norm] = [
            norm("norm_pre_attn")?,
            norm("norm_post_attn")?,
            norm("norm_out")?,
        ];
        Ok(Self {
            first: FeedForward::load(weights, &format!("{path}.feed_forward1"), config)?,
            pre_attention_norm,
            attention: AudioAttention::load(weights, &format!("{path}.self_attn"), config)?,
            post_attention_norm,
            convolution: LightConvolution::load(
                weights,
                &format!("{path}.lconv1d"),
                config,
                layout,
            )?,
            second: FeedForward::load(weights, &format!("{path}.feed_forward2"), config)?,
            output_norm,
            limit: Limit(config.gradient_clipping),
        })
    }

    /// `[1, positions, hidden]`.
    fn forward(&self, h: &Array) -> Result<Array> {
        let h = self.first.forward(h)?;
        let x = self.pre_attention_norm.forward(&self.limit.apply(&h)?)?;
        let attended = self.limit.apply(&self.attention.forward(&x)?)?;
        let h = self.post_attention_norm.forward(&attended)?.add(&h)?;
        let h = self.convolution.forward(&h)?;
        let h = self.second.forward(&h)?;
        self.output_norm.forward(&self.limit.apply(&h)?)
    }
}

/// `x + w norm(W2 silu(W1 norm(x)))`, `w` being the weight of the branch.
#[derive(Debug)]
struct FeedForward {
    input_norm: RmsNorm,
    widen: ClippedLinear,
    narrow: ClippedLinear,
    output_norm: RmsNorm,
    weight: f32,
    limit: Limit,
}

impl FeedForward {
    fn load(weights: &mut Weights, path: &str, config: &AudioConfig) -> Result<Self> {
        let (hidden, clipped) = (config.hidden_size, config.use_clipped_linears);
        let mut linear =
            |name, sizes| ClippedLinear::load(weights, &format!("{path}.{name}"), sizes, clipped);
        let widen = linear("ffw_layer_1", (hidden, 4 * hidden))?;
        let narrow = linear("ffw_layer_2", (4 * hidden, hidden))?;
        let mut norm = |name| RmsNorm::load(weights, &format!("{path}.{name}"), hidden, NORM_EPS);
        Ok(Self {
            input_norm: norm("pre_layer_norm")?,
            widen,
            narrow,
            output_norm: norm("post_layer_norm")?,
            weight: config.residual_weight,
            limit: Limit(config.gradient_clipping),
        })
    }

    fn forward(&self, h: &Array) -> Result<Array> {
        let x = self.input_norm.forward(&self.limit.apply(h)?)?;
        let x = self.narrow.forward(&silu(&self.widen.forward(&x)?)?)?;
        let x = self.output_norm.forward(&self.limit.apply(&x)?)?;
        Ok(x.multiply(scalar_like(self.weight, &x)?)?.add(h)?)
    }
}

/// A gated depthwise convolution over what came before.
#[derive(Debug)]
struct LightConvolution {
    input_norm: RmsNorm,
    start: ClippedLinear,
    /// `[hidden, taps, 1]`.
    kernel: Array,
    norm: RmsNorm,
    end: ClippedLinear,
    limit: Limit,
}

impl LightConvolution {
    fn load(
        weights: &mut Weights,
        path: &str,
        config: &AudioConfig,
        layout: ConvLayout,
    ) -> Result<Self> {
        let (hidden, taps) = (config.hidden_size, config.conv_kernel_size);
        let (eps, clipped) = (config.rms_norm_eps, config.use_clipped_linears);
        let kernel = format!("{path}.depthwise_conv1d.weight");
        let kernel = match layout {
            ConvLayout::ChannelsFirst => {
                weights.take(&kernel, &[hidden, 1, taps])?.swap_axes(1, 2)?
            }
            ConvLayout::ChannelsLast => weights.take(&kernel, &[hidden, taps, 1])?,
        };
        let mut linear =
            |name, sizes| ClippedLinear::load(weights, &format!("{path}.{name}"), sizes, clipped);
        let start = linear("linear_start", (hidden, 2 * hidden))?;
        let end = linear("linear_end", (hidden, hidden))?;
        let mut norm = |name| RmsNorm::load(weights, &format!("{path}.{name}"), hidden, eps);
        Ok(Self {
            input_norm: norm("pre_layer_norm")?,
            start,
            kernel,
            norm: norm("conv_norm")?,
            end,
            limit: Limit(config.gradient_clipping),
        })
    }

    fn forward(&self, h: &Array) -> Result<Array> {
        let (channels, taps) = (self.kernel.dim(0), self.kernel.dim(1));
        let x = glu(&self.start.forward(&self.input_norm.forward(h)?)?)?;
        let padded = pad(&x, &[(0, 0), (taps - 1, 0), (0, 0)], None, None)?;
        let x = conv1d(&padded, &self.kernel, 1, 0, 1, channels)?;
        let x = silu(&self.norm.forward(&self.limit.apply(&x)?)?)?;
        Ok(self.end.forward(&x)?.add(h)?)
    }
}

/// The bound of values between the parts, `gradient_clipping`; never more than the type
/// holds, so that an overflow becomes the largest value.
#[derive(Debug, Clone, Copy)]
struct Limit(f32);

impl Limit {
    fn apply(self, x: &Array) -> Result<Array> {
        let largest = match x.dtype() {
            Dtype::Float16 => half::f16::MAX.to_f32(),
            Dtype::Bfloat16 => half::bf16::MAX.to_f32(),
            _ => f32::MAX,
        };
        let bound = scalar_like(self.0.min(largest), x)?;
        Ok(clip(x, (&bound.negative()?, &bound))?)
    }
}

/// The sound of the unified model: frames of samples, each projected as it is.
#[derive(Debug)]
pub(super) struct UnifiedSound {
    norm: RmsNorm,
    projection: Linear,
    frame: i32,
    dtype: Dtype,
}

impl UnifiedSound {
    pub(super) fn load(
        weights: &mut Weights,
        config: &UnifiedAudioConfig,
        text: &TextConfig,
    ) -> Result<Self> {
        let path = "embed_audio.embedding_projection";
        let frame = config.audio_samples_per_token;
        Ok(Self {
            norm: RmsNorm::without_weight(config.rms_norm_eps),
            dtype: weights.working_dtype(),
            projection: Linear::load(weights, path, frame, text.hidden_size)?,
            frame,
        })
    }

    /// `[soft tokens, text hidden]`, in the working type, of whole frames of samples.
    pub(super) fn forward(&self, samples: &[f32], frame: usize) -> Result<Array> {
        check_width(frame, self.frame)?;
        let count = (samples.len() / frame) as i32;
        let frames = Array::from_slice(samples, &[count, self.frame]).as_dtype(self.dtype)?;
        self.projection.forward(&self.norm.forward(&frames)?)
    }
}

/// Whether rows are as wide as the model takes them.
fn check_width(found: usize, expected: i32) -> Result<()> {
    if found == expected as usize {
        return Ok(());
    }
    let fact = format!("rows of {found} values are prepared, and the model takes {expected}");
    let key = "audio_config";
    Err(Error::Config { key, fact })
}
