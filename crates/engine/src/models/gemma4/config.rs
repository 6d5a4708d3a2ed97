//! Gemma 4's `config.json`. What decides the computation must be stated; only settings
//! whose absence transformers itself reads as "off" may be left out.

mod check;
mod gemma3;

use serde::Deserialize;

use self::check::{check_size, unsupported};
pub(crate) use self::gemma3::Gemma3Config;
use crate::{Error, Result};

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Gemma4Config {
    pub text_config: TextConfig,
    pub vision_config: Option<VisionPart>,
    pub audio_config: Option<AudioPart>,
    pub image_token_id: Option<u32>,
    pub audio_token_id: Option<u32>,
    pub video_token_id: Option<u32>,
    tie_word_embeddings: Option<bool>,
    quantization_config: Option<serde_json::Value>,
}

impl Gemma4Config {
    /// A model of text alone, whose file has the settings of the decoder at its top.
    pub(crate) fn of_text(
        text_config: TextConfig,
        quantization_config: Option<serde_json::Value>,
    ) -> Self {
        Self {
            text_config,
            vision_config: None,
            audio_config: None,
            image_token_id: None,
            audio_token_id: None,
            video_token_id: None,
            tie_word_embeddings: None,
            quantization_config,
        }
    }
}

/// The text decoder.
#[derive(Debug, Clone, Deserialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "these are the file's settings"
)]
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
    /// Whether the values of full layers are their keys before norm and rotation.
    #[serde(default)]
    pub attention_k_eq_v: bool,
    /// Key and value heads of full layers, where keys are values.
    num_global_key_value_heads: Option<i32>,
    /// Whether a mixture of experts runs beside the MLP.
    #[serde(default)]
    pub enable_moe_block: bool,
    num_experts: Option<i32>,
    top_k_experts: Option<i32>,
    moe_intermediate_size: Option<i32>,
    tie_word_embeddings: Option<bool>,
    #[serde(default)]
    use_bidirectional_attention: Bidirectional,
    #[serde(default)]
    attention_bias: bool,
    #[serde(skip)]
    pub dialect: Dialect,
}

/// What differs between the generations of the family and stands in no file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    pub attention_scale: f32,
    /// Whether a norm multiplies by one plus its weight.
    pub norm_weights_are_offsets: bool,
    /// Whether values are normalised.
    pub has_value_norm: bool,
    /// Whether a layer's output is scaled by a stored number.
    pub has_layer_scalar: bool,
}

impl Default for Dialect {
    /// Gemma 4's. Its keys are normalised, so logits need no scale.
    fn default() -> Self {
        Self {
            attention_scale: 1.0,
            norm_weights_are_offsets: false,
            has_value_norm: true,
            has_layer_scalar: true,
        }
    }
}

/// Which positions see what is to come. Nothing said is not the same as null.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Option<String>")]
enum Bidirectional {
    #[default]
    Unstated,
    Off,
    Scope(String),
}

impl From<Option<String>> for Bidirectional {
    fn from(stated: Option<String>) -> Self {
        stated.map_or(Self::Off, Self::Scope)
    }
}

/// The sizes of a mixture of experts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSizes {
    pub experts: i32,
    /// Experts that a token goes through.
    pub chosen: i32,
    /// Width of one expert.
    pub width: i32,
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

/// One rotary embedding. A setting that is not known here could change the result.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RopeConfig {
    pub rope_type: RopeType,
    pub rope_theta: f32,
    pub partial_rotary_factor: Option<f32>,
    /// Divides the frequencies.
    pub factor: Option<f32>,
}

/// How frequencies follow from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RopeType {
    Default,
    /// All frequencies divided by `factor`.
    Linear,
    /// Some of the pairs turn, at the frequencies that they have when all do.
    Proportional,
}

/// How pictures enter.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "model_type")]
pub(crate) enum VisionPart {
    /// Through a tower.
    #[serde(rename = "gemma4_vision")]
    Tower(VisionConfig),
    /// Straight from their pixels.
    #[serde(rename = "gemma4_unified_vision")]
    Unified(UnifiedVisionConfig),
}

/// The embedder of pictures of the unified model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct UnifiedVisionConfig {
    /// Side in pixels of what one soft token shows.
    pub model_patch_size: i32,
    pub mm_embed_dim: i32,
    pub mm_posemb_size: i32,
    pub rms_norm_eps: f32,
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
    /// Whether soft tokens are shifted and scaled by recorded statistics.
    #[serde(default)]
    pub standardize: bool,
}

/// How sound enters.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "model_type")]
pub(crate) enum AudioPart {
    /// Through a tower.
    #[serde(rename = "gemma4_audio")]
    Tower(AudioConfig),
    /// Straight from its samples.
    #[serde(rename = "gemma4_unified_audio")]
    Unified(UnifiedAudioConfig),
}

/// The audio tower.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AudioConfig {
    pub hidden_size: i32,
    pub num_hidden_layers: usize,
    pub num_attention_heads: i32,
    pub hidden_act: String,
    pub subsampling_conv_channels: [i32; 2],
    pub conv_kernel_size: i32,
    /// Of the feed-forward branches.
    pub residual_weight: f32,
    /// Queries of a block.
    pub attention_chunk_size: i32,
    /// Positions that a query sees, itself included, plus one.
    pub attention_context_left: i32,
    /// Positions after it, plus one; or none.
    pub attention_context_right: i32,
    pub attention_logit_cap: f32,
    pub attention_invalid_logits_value: f32,
    #[serde(default)]
    pub use_clipped_linears: bool,
    pub rms_norm_eps: f32,
    pub gradient_clipping: f32,
    pub output_proj_dims: i32,
}

impl AudioConfig {
    /// Mel bins of a frame. The file does not say: transformers takes as many bins as the
    /// first convolution has channels, and a projection of another width fails.
    pub(crate) fn mel_bins(&self) -> i32 {
        self.subsampling_conv_channels[0]
    }
}

/// The embedder of sound of the unified model.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct UnifiedAudioConfig {
    pub audio_samples_per_token: i32,
    pub rms_norm_eps: f32,
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

    /// Key and value heads of a kind of layer.
    pub(crate) fn key_value_heads(&self, kind: LayerKind) -> i32 {
        match self.num_global_key_value_heads {
            Some(heads) if kind == LayerKind::Full && self.attention_k_eq_v => heads,
            _ => self.num_key_value_heads,
        }
    }

    /// The mixture of experts, if there is one.
    ///
    /// # Errors
    /// [`Error::Config`] if one of its sizes is not given.
    pub(crate) fn experts(&self) -> Result<Option<ExpertSizes>> {
        if !self.enable_moe_block {
            return Ok(None);
        }
        let required = |key, size: Option<i32>| {
            let size = size.ok_or_else(|| unsupported(key, "missing"))?;
            check_size(key, size).map(|()| size)
        };
        let sizes = ExpertSizes {
            experts: required("text_config.num_experts", self.num_experts)?,
            chosen: required("text_config.top_k_experts", self.top_k_experts)?,
            width: required(
                "text_config.moe_intermediate_size",
                self.moe_intermediate_size,
            )?,
        };
        if sizes.chosen > sizes.experts {
            let fact = format!("{} of {} experts", sizes.chosen, sizes.experts);
            let key = "text_config.top_k_experts";
            return Err(Error::Config { key, fact });
        }
        Ok(Some(sizes))
    }
}
