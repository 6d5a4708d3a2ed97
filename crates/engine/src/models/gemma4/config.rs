//! Gemma 4's `config.json`. What decides the computation must be stated; only settings
//! whose absence transformers itself reads as "off" may be left out.

use serde::Deserialize;

use crate::{Error, Result};

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Gemma4Config {
    pub text_config: TextConfig,
    pub vision_config: Option<VisionConfig>,
    pub image_token_id: Option<u32>,
    pub audio_token_id: Option<u32>,
    pub video_token_id: Option<u32>,
    quantization: Option<serde_json::Value>,
    quantization_config: Option<serde_json::Value>,
}

/// The text decoder.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TextConfig {
    pub vocab_size: i32,
    pub hidden_size: i32,
    pub intermediate_size: i32,
    pub num_hidden_layers: usize,
    pub num_attention_heads: i32,
    pub num_key_value_heads: i32,
    /// Of sliding layers.
    pub head_dim: i32,
    /// Of full layers.
    pub global_head_dim: i32,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f32,
    pub rope_parameters: RopeByLayer,
    pub sliding_window: i32,
    pub layer_types: Vec<LayerKind>,
    pub hidden_activation: String,
    #[serde(default)]
    pub pad_token_id: i32,
    /// `c` of `c tanh(z / c)` over the logits.
    pub final_logit_softcapping: Option<f32>,
    /// Width of the per-layer embeddings; 0 for none.
    #[serde(default)]
    pub hidden_size_per_layer_input: i32,
    #[serde(default)]
    pub vocab_size_per_layer_input: i32,
    /// Layers at the end that read an earlier one's keys and values.
    #[serde(default)]
    pub num_kv_shared_layers: usize,
    /// Whether those have an MLP of twice the width.
    #[serde(default)]
    pub use_double_wide_mlp: bool,
    use_bidirectional_attention: Option<String>,
    #[serde(default)]
    attention_k_eq_v: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    enable_moe_block: bool,
}

/// What a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum LayerKind {
    /// The last `sliding_window` tokens.
    #[serde(rename = "sliding_attention")]
    Sliding,
    /// Every token before.
    #[serde(rename = "full_attention")]
    Full,
}

/// The rotary embedding of each kind of layer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RopeByLayer {
    pub sliding_attention: RopeConfig,
    pub full_attention: RopeConfig,
}

/// One rotary embedding.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RopeConfig {
    pub rope_type: RopeType,
    pub rope_theta: f32,
    pub partial_rotary_factor: Option<f32>,
}

/// How frequencies follow from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RopeType {
    Default,
    Proportional,
}

/// The vision tower.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct VisionConfig {
    pub hidden_size: i32,
    pub intermediate_size: i32,
    pub num_hidden_layers: usize,
    pub num_attention_heads: i32,
    pub num_key_value_heads: i32,
    pub head_dim: i32,
    pub patch_size: i32,
    pub position_embedding_size: i32,
    pub pooling_kernel_size: i32,
    pub rms_norm_eps: f32,
    pub rope_parameters: RopeConfig,
    pub hidden_activation: String,
    #[serde(default)]
    pub use_clipped_linears: bool,
    #[serde(default)]
    standardize: bool,
}

/// The only activation of the family's text and vision parts.
const GELU_TANH: &str = "gelu_pytorch_tanh";

/// No size of a published model comes near; it keeps every product inside an `i64`.
const LARGEST_SIZE: i32 = 1 << 24;

impl Gemma4Config {
    /// Refuses what contradicts itself and what is not served.
    pub(crate) fn check(&self) -> Result<()> {
        if self.quantization.is_some() || self.quantization_config.is_some() {
            return Err(unsupported(
                "quantization",
                "quantised weights are not supported yet",
            ));
        }
        self.text_config.check()?;
        self.vision_config
            .as_ref()
            .map_or(Ok(()), VisionConfig::check)
    }
}

impl TextConfig {
    /// The first layer that reads an earlier one's keys and values; the number of layers,
    /// if none does.
    pub(crate) fn first_shared_layer(&self) -> usize {
        self.num_hidden_layers
            .saturating_sub(self.num_kv_shared_layers)
    }

    /// The layer whose keys and values `layer` reads: itself, or the last of its kind
    /// before the shared ones.
    pub(crate) fn key_value_layer(&self, layer: usize) -> usize {
        let first_shared = self.first_shared_layer();
        if layer < first_shared {
            return layer;
        }
        let kind = self.layer_types[layer];
        // `check` has seen to it that there is one.
        self.layer_types[..first_shared]
            .iter()
            .rposition(|&other| other == kind)
            .unwrap_or(layer)
    }

    pub(crate) fn head_size(&self, kind: LayerKind) -> i32 {
        match kind {
            LayerKind::Sliding => self.head_dim,
            LayerKind::Full => self.global_head_dim,
        }
    }

    fn check(&self) -> Result<()> {
        for (key, size) in [
            ("text_config.vocab_size", self.vocab_size),
            ("text_config.hidden_size", self.hidden_size),
            ("text_config.intermediate_size", self.intermediate_size),
            ("text_config.num_attention_heads", self.num_attention_heads),
            ("text_config.num_key_value_heads", self.num_key_value_heads),
            ("text_config.head_dim", self.head_dim),
            ("text_config.global_head_dim", self.global_head_dim),
            ("text_config.sliding_window", self.sliding_window),
        ] {
            check_size(key, size)?;
        }
        for (key, on) in [
            ("text_config.attention_k_eq_v", self.attention_k_eq_v),
            ("text_config.attention_bias", self.attention_bias),
            ("text_config.enable_moe_block", self.enable_moe_block),
        ] {
            if on {
                return Err(unsupported(key, "not supported yet"));
            }
        }
        if let Some(scope) = &self.use_bidirectional_attention {
            let fact = format!("{scope:?} is not supported yet");
            return Err(Error::Config {
                key: "text_config.use_bidirectional_attention",
                fact,
            });
        }
        check_activation("text_config.hidden_activation", &self.hidden_activation)?;
        check_heads(
            "text_config.num_key_value_heads",
            self.num_attention_heads,
            self.num_key_value_heads,
        )?;
        if self.head_dim % 2 != 0 || self.global_head_dim % 2 != 0 {
            return Err(unsupported(
                "text_config.head_dim",
                "rotary heads need even sizes",
            ));
        }
        if self.layer_types.len() != self.num_hidden_layers || self.layer_types.is_empty() {
            let fact = format!(
                "{} entries for {} layers",
                self.layer_types.len(),
                self.num_hidden_layers
            );
            return Err(Error::Config {
                key: "text_config.layer_types",
                fact,
            });
        }
        let (own, shared) = self.layer_types.split_at(self.first_shared_layer());
        if own.is_empty() || shared.iter().any(|kind| !own.contains(kind)) {
            let fact = format!(
                "{} of {} layers share, and no layer of their kind is before them",
                self.num_kv_shared_layers, self.num_hidden_layers
            );
            return Err(Error::Config {
                key: "text_config.num_kv_shared_layers",
                fact,
            });
        }
        if self.hidden_size_per_layer_input < 0 || self.hidden_size_per_layer_input > LARGEST_SIZE {
            return check_size(
                "text_config.hidden_size_per_layer_input",
                self.hidden_size_per_layer_input,
            );
        }
        if self.hidden_size_per_layer_input > 0 {
            check_size(
                "text_config.vocab_size_per_layer_input",
                self.vocab_size_per_layer_input,
            )?;
        }
        Ok(())
    }
}

impl VisionConfig {
    fn check(&self) -> Result<()> {
        for (key, size) in [
            ("vision_config.hidden_size", self.hidden_size),
            ("vision_config.intermediate_size", self.intermediate_size),
            (
                "vision_config.num_attention_heads",
                self.num_attention_heads,
            ),
            (
                "vision_config.num_key_value_heads",
                self.num_key_value_heads,
            ),
            ("vision_config.head_dim", self.head_dim),
            ("vision_config.patch_size", self.patch_size),
            (
                "vision_config.position_embedding_size",
                self.position_embedding_size,
            ),
            (
                "vision_config.pooling_kernel_size",
                self.pooling_kernel_size,
            ),
        ] {
            check_size(key, size)?;
        }
        check_activation("vision_config.hidden_activation", &self.hidden_activation)?;
        check_heads(
            "vision_config.num_key_value_heads",
            self.num_attention_heads,
            self.num_key_value_heads,
        )?;
        if self.head_dim % 4 != 0 {
            return Err(unsupported(
                "vision_config.head_dim",
                "a rotary embedding in two dimensions needs a multiple of 4",
            ));
        }
        if self.rope_parameters.rope_type != RopeType::Default {
            return Err(unsupported(
                "vision_config.rope_parameters",
                "only the default type",
            ));
        }
        if self.standardize {
            return Err(unsupported(
                "vision_config.standardize",
                "not supported yet",
            ));
        }
        Ok(())
    }
}

fn unsupported(key: &'static str, fact: &str) -> Error {
    Error::Config {
        key,
        fact: fact.to_owned(),
    }
}

fn check_size(key: &'static str, size: i32) -> Result<()> {
    if size < 1 || size > LARGEST_SIZE {
        return Err(Error::Config {
            key,
            fact: format!("{size} is not in 1..={LARGEST_SIZE}"),
        });
    }
    Ok(())
}

fn check_heads(key: &'static str, heads: i32, key_value_heads: i32) -> Result<()> {
    if heads % key_value_heads != 0 {
        let fact = format!("{heads} heads are no multiple of {key_value_heads}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}

fn check_activation(key: &'static str, name: &str) -> Result<()> {
    if name != GELU_TANH {
        let fact = format!("{name:?} is not supported, only {GELU_TANH:?}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}
