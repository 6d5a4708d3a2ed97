//! Gemma 3's text models (270M and 1B), in the terms of Gemma 4, whose decoder has all of
//! their parts (transformers 5.24, `models/gemma3`).

use serde::Deserialize;
use serde_json::Value;

use super::{
    Bidirectional, Dialect, Gemma4Config, LayerKind, RopeByLayer, RopeConfig, RopeType, TextConfig,
    unsupported,
};
use crate::Result;

/// The file's settings. Rotary ones are written in two ways: those of transformers 4 stand
/// beside the others, those of transformers 5 in `rope_parameters`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Gemma3Config {
    vocab_size: i32,
    hidden_size: i32,
    intermediate_size: i32,
    num_hidden_layers: usize,
    num_attention_heads: i32,
    num_key_value_heads: i32,
    head_dim: i32,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    query_pre_attn_scalar: f32,
    sliding_window: i32,
    layer_types: Option<Vec<LayerKind>>,
    #[serde(alias = "_sliding_window_pattern")]
    sliding_window_pattern: Option<usize>,
    hidden_activation: String,
    rope_parameters: Option<RopeByLayer>,
    rope_theta: Option<f32>,
    rope_local_base_freq: Option<f32>,
    rope_scaling: Option<LinearScaling>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
    #[serde(default)]
    use_bidirectional_attention: Option<bool>,
    #[serde(default)]
    attention_bias: bool,
    tie_word_embeddings: Option<bool>,
    quantization_config: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinearScaling {
    rope_type: String,
    factor: f32,
}

impl TryFrom<Gemma3Config> for Gemma4Config {
    type Error = crate::Error;

    fn try_from(config: Gemma3Config) -> Result<Self> {
        if config.use_bidirectional_attention == Some(true) {
            let fact = "not supported: this decoder is causal";
            return Err(unsupported("use_bidirectional_attention", fact));
        }
        if config.attn_logit_softcapping.is_some() {
            return Err(unsupported("attn_logit_softcapping", "not supported"));
        }
        let rope_parameters = config.rotation()?;
        let layer_types = match (config.layer_types, config.sliding_window_pattern) {
            (Some(types), _) => types,
            (None, Some(period)) => (1..=config.num_hidden_layers)
                .map(|layer| match layer % period.max(1) {
                    0 => LayerKind::Full,
                    _ => LayerKind::Sliding,
                })
                .collect(),
            (None, None) => {
                let fact = "missing, and so is sliding_window_pattern";
                return Err(unsupported("layer_types", fact));
            }
        };
        let text = TextConfig {
            vocab_size: config.vocab_size,
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            num_hidden_layers: config.num_hidden_layers,
            num_attention_heads: config.num_attention_heads,
            num_key_value_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            global_head_dim: config.head_dim,
            max_position_embeddings: config.max_position_embeddings,
            rms_norm_eps: config.rms_norm_eps,
            rope_parameters,
            sliding_window: config.sliding_window,
            layer_types,
            hidden_activation: config.hidden_activation,
            pad_token_id: 0,
            final_logit_softcapping: config.final_logit_softcapping,
            hidden_size_per_layer_input: 0,
            vocab_size_per_layer_input: 0,
            num_kv_shared_layers: 0,
            use_double_wide_mlp: false,
            attention_k_eq_v: false,
            num_global_key_value_heads: None,
            enable_moe_block: false,
            num_experts: None,
            top_k_experts: None,
            moe_intermediate_size: None,
            tie_word_embeddings: config.tie_word_embeddings,
            use_bidirectional_attention: Bidirectional::Off,
            attention_bias: config.attention_bias,
            dialect: Dialect {
                attention_scale: config.query_pre_attn_scalar.powf(-0.5),
                norm_weights_are_offsets: true,
                has_value_norm: false,
                has_layer_scalar: false,
            },
        };
        Ok(Self::of_text(text, config.quantization_config))
    }
}

impl Gemma3Config {
    fn rotation(&self) -> Result<RopeByLayer> {
        if let Some(stated) = &self.rope_parameters {
            return Ok(stated.clone());
        }
        let base = |key, base: Option<f32>| base.ok_or_else(|| unsupported(key, "missing"));
        let plain = |rope_theta| RopeConfig {
            rope_type: RopeType::Default,
            rope_theta,
            partial_rotary_factor: None,
            factor: None,
        };
        let sliding_attention = plain(base("rope_local_base_freq", self.rope_local_base_freq)?);
        let mut full_attention = plain(base("rope_theta", self.rope_theta)?);
        if let Some(scaling) = &self.rope_scaling {
            if scaling.rope_type != "linear" {
                return Err(unsupported(
                    "rope_scaling",
                    "only linear scaling is supported",
                ));
            }
            full_attention.rope_type = RopeType::Linear;
            full_attention.factor = Some(scaling.factor);
        }
        Ok(RopeByLayer {
            sliding_attention,
            full_attention,
        })
    }
}
