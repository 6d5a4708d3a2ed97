//! One layer of the text decoder.

use mlx_rs::Array;

use super::attention::Attention;
use super::config::TextConfig;
use super::experts::Mixture;
use super::load_norm;
use crate::Result;
use crate::cache::{KeysValues, LayerCache};
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, Mask, RmsNorm, Rotation, gated_gelu};

/// Attention and MLP, each between two norms, then the per-layer embedding's gate.
#[derive(Debug)]
pub(super) struct DecoderLayer {
    attention: Attention,
    input_norm: RmsNorm,
    post_attention_norm: RmsNorm,
    mlp: Mlp,
    pre_mlp_norm: RmsNorm,
    post_mlp_norm: RmsNorm,
    mixture: Option<Mixture>,
    per_layer: Option<PerLayerGate>,
    /// `[1]`: multiplies the whole residual stream.
    scalar: Option<Array>,
}

impl DecoderLayer {
    pub(super) fn load(weights: &mut Weights, config: &TextConfig, index: usize) -> Result<Self> {
        let path = format!("language_model.layers.{index}");
        let (hidden, eps) = (config.hidden_size, config.rms_norm_eps);
        let mut norm = |name| load_norm(weights, &format!("{path}.{name}"), hidden, config);
        let [input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm] = [
            norm("input_layernorm")?,
            norm("post_attention_layernorm")?,
            norm("pre_feedforward_layernorm")?,
            norm("post_feedforward_layernorm")?,
        ];
        let is_shared = index >= config.first_shared_layer();
        let width = if is_shared && config.use_double_wide_mlp {
            2 * config.intermediate_size
        } else {
            config.intermediate_size
        };
        let per_layer = match config.hidden_size_per_layer_input {
            0 => None,
            size => Some(PerLayerGate::load(weights, &path, (hidden, size), eps)?),
        };
        Ok(Self {
            attention: Attention::load(weights, &format!("{path}.self_attn"), config, index)?,
            input_norm,
            post_attention_norm,
            mlp: Mlp::load(weights, &format!("{path}.mlp"), hidden, width)?,
            pre_mlp_norm,
            post_mlp_norm,
            mixture: match config.experts()? {
                Some(sizes) => Some(Mixture::load(weights, &path, config, sizes)?),
                None => None,
            },
            per_layer,
            scalar: if config.dialect.has_layer_scalar {
                Some(weights.take(&format!("{path}.layer_scalar"), &[1])?)
            } else {
                None
            },
        })
    }

    /// `h` is `[1, tokens, hidden]`, `per_layer` this layer's `[1, tokens, size]`.
    pub(super) fn forward(
        &self,
        h: &Array,
        per_layer: Option<&Array>,
        cache: &mut LayerCache,
        mask: &Mask,
        rotation: &Rotation<'_>,
    ) -> Result<(Array, Option<KeysValues>)> {
        let x = self.input_norm.forward(h)?;
        let (attended, shared) = self.attention.forward(&x, cache, mask, rotation)?;
        Ok((self.finish(h, &attended, per_layer)?, shared))
    }

    /// For a layer that shares: one token.
    pub(super) fn forward_shared(
        &self,
        h: &Array,
        per_layer: Option<&Array>,
        rotation: &Rotation<'_>,
        shared: &KeysValues,
    ) -> Result<Array> {
        let x = self.input_norm.forward(h)?;
        let attended = self.attention.forward_shared(&x, rotation, shared)?;
        self.finish(h, &attended, per_layer)
    }

    /// What follows attention.
    fn finish(&self, h: &Array, attended: &Array, per_layer: Option<&Array>) -> Result<Array> {
        let h = h.add(self.post_attention_norm.forward(attended)?)?;
        let mut mlp = self.mlp.forward(&self.pre_mlp_norm.forward(&h)?)?;
        if let Some(mixture) = &self.mixture {
            mlp = mixture.add_to(&mlp, &h)?;
        }
        let mut h = h.add(self.post_mlp_norm.forward(&mlp)?)?;
        if let (Some(gate), Some(per_layer)) = (&self.per_layer, per_layer) {
            h = h.add(gate.forward(&h, per_layer)?)?;
        }
        Ok(match &self.scalar {
            Some(scalar) => h.multiply(scalar)?,
            None => h,
        })
    }
}

/// `down(gelu(gate(x)) * up(x))`.
#[derive(Debug)]
struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Mlp {
    fn load(weights: &mut Weights, path: &str, hidden: i32, width: i32) -> Result<Self> {
        Ok(Self {
            gate: Linear::load(weights, &format!("{path}.gate_proj"), hidden, width)?,
            up: Linear::load(weights, &format!("{path}.up_proj"), hidden, width)?,
            down: Linear::load(weights, &format!("{path}.down_proj"), width, hidden)?,
        })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let gated = gated_gelu(&self.gate.forward(x)?, &self.up.forward(x)?)?;
        self.down.forward(&gated)
    }
}

/// What a layer takes from the per-layer embedding.
#[derive(Debug)]
struct PerLayerGate {
    gate: Linear,
    projection: Linear,
    norm: RmsNorm,
}

impl PerLayerGate {
    fn load(
        weights: &mut Weights,
        path: &str,
        (hidden, size): (i32, i32),
        eps: f32,
    ) -> Result<Self> {
        Ok(Self {
            gate: Linear::load(
                weights,
                &format!("{path}.per_layer_input_gate"),
                hidden,
                size,
            )?,
            projection: Linear::load(
                weights,
                &format!("{path}.per_layer_projection"),
                size,
                hidden,
            )?,
            norm: RmsNorm::load(
                weights,
                &format!("{path}.post_per_layer_input_norm"),
                hidden,
                eps,
            )?,
        })
    }

    fn forward(&self, h: &Array, per_layer: &Array) -> Result<Array> {
        let gated = gated_gelu(&self.gate.forward(h)?, per_layer)?;
        self.norm.forward(&self.projection.forward(&gated)?)
    }
}
