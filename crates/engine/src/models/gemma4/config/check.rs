//! What a configuration must satisfy before anything is loaded.

use super::{
    AudioConfig, AudioPart, Bidirectional, Gemma4Config, LayerKind, RopeConfig, RopeType,
    TextConfig, UnifiedVisionConfig, VisionConfig, VisionPart,
};
pub(super) use crate::models::limits::unsupported;
use crate::models::limits::{LARGEST_SIZE, MOST_HEADS, check_layers, check_range};
use crate::{Error, Result};

/// The only activation of the family's text and vision parts.
const GELU_TANH: &str = "gelu_pytorch_tanh";

/// Limits of the same purpose as the shared ones.
const LARGEST_HEAD: i32 = 1 << 14;
const LARGEST_PATCH: i32 = 1 << 10;

impl Gemma4Config {
    /// Refuses what contradicts itself and what is not served.
    pub(crate) fn check(&self) -> Result<()> {
        // MLX's own form states what the tensors show anyway; others store them otherwise.
        let method = self
            .quantization_config
            .as_ref()
            .and_then(|config| config.get("quant_method"));
        if let Some(method) = method {
            let fact = format!("quant_method {method} is not supported, only MLX's own form");
            let key = "quantization_config";
            return Err(Error::Config { key, fact });
        }
        if self.tie_word_embeddings == Some(false) {
            let fact = "a head of its own is not supported yet";
            return Err(unsupported("tie_word_embeddings", fact));
        }
        self.text_config.check()?;
        match &self.vision_config {
            None => {}
            Some(VisionPart::Tower(tower)) => tower.check()?,
            Some(VisionPart::Unified(unified)) => unified.check()?,
        }
        match &self.audio_config {
            None => Ok(()),
            Some(AudioPart::Tower(tower)) => tower.check(),
            Some(AudioPart::Unified(unified)) => check_size(
                "audio_config.audio_samples_per_token",
                unified.audio_samples_per_token,
            ),
        }
    }
}

impl TextConfig {
    fn check(&self) -> Result<()> {
        for (key, size) in [
            ("text_config.vocab_size", self.vocab_size),
            ("text_config.hidden_size", self.hidden_size),
            ("text_config.intermediate_size", self.intermediate_size),
            ("text_config.sliding_window", self.sliding_window),
        ] {
            check_size(key, size)?;
        }
        check_range(
            "text_config.num_attention_heads",
            self.num_attention_heads,
            MOST_HEADS,
        )?;
        check_range("text_config.head_dim", self.head_dim, LARGEST_HEAD)?;
        check_range(
            "text_config.global_head_dim",
            self.global_head_dim,
            LARGEST_HEAD,
        )?;
        check_layers("text_config.num_hidden_layers", self.num_hidden_layers)?;
        if self.tie_word_embeddings == Some(false) {
            let fact = "a head of its own is not supported yet";
            return Err(unsupported("text_config.tie_word_embeddings", fact));
        }
        self.rope_parameters.sliding_attention.check()?;
        self.rope_parameters.full_attention.check()?;
        if self.attention_bias {
            return Err(unsupported(
                "text_config.attention_bias",
                "not supported yet",
            ));
        }
        if let Bidirectional::Scope(scope) = &self.use_bidirectional_attention
            && scope != "vision"
        {
            let fact = format!("{scope:?} is not supported yet");
            let key = "text_config.use_bidirectional_attention";
            return Err(Error::Config { key, fact });
        }
        self.experts()?;
        check_activation("text_config.hidden_activation", &self.hidden_activation)?;
        for kind in [LayerKind::Sliding, LayerKind::Full] {
            let (heads, of) = (self.key_value_heads(kind), self.num_attention_heads);
            check_size("text_config.num_global_key_value_heads", heads)?;
            check_heads("text_config.num_key_value_heads", of, heads)?;
        }
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
            if !(0..self.vocab_size_per_layer_input).contains(&self.pad_token_id) {
                let (id, size) = (self.pad_token_id, self.vocab_size_per_layer_input);
                let fact = format!("{id} is not in the per-layer vocabulary of {size}");
                let key = "text_config.pad_token_id";
                return Err(Error::Config { key, fact });
            }
            check_size(
                "text_config.vocab_size_per_layer_input",
                self.vocab_size_per_layer_input,
            )?;
        }
        Ok(())
    }
}

impl RopeConfig {
    /// Settings that this kind of rotation does not have are refused rather than dropped.
    fn check(&self) -> Result<()> {
        let is_partial = self.partial_rotary_factor.is_some_and(|part| part < 1.0);
        let fits = match self.rope_type {
            RopeType::Default => !is_partial && self.factor.is_none(),
            RopeType::Linear => !is_partial && self.factor.is_some(),
            RopeType::Proportional => true,
        };
        if !fits {
            let fact = "partial_rotary_factor and factor do not fit the type";
            return Err(unsupported("rope_parameters", fact));
        }
        if let Some(part) = self
            .partial_rotary_factor
            .filter(|part| !(0.0..=1.0).contains(part))
        {
            let (key, fact) = ("rope_parameters", format!("partial_rotary_factor {part}"));
            return Err(Error::Config { key, fact });
        }
        let is_positive = |value: f32| value > 0.0 && value.is_finite();
        if !is_positive(self.rope_theta) || !self.factor.is_none_or(is_positive) {
            return Err(unsupported(
                "rope_parameters",
                "a base or factor that is not positive",
            ));
        }
        Ok(())
    }
}

impl AudioConfig {
    fn check(&self) -> Result<()> {
        let [first, second] = self.subsampling_conv_channels;
        for (key, size, limit) in [
            (
                "audio_config.hidden_size",
                self.hidden_size,
                LARGEST_SIZE / 4,
            ),
            (
                "audio_config.num_attention_heads",
                self.num_attention_heads,
                MOST_HEADS,
            ),
            (
                "audio_config.subsampling_conv_channels",
                first,
                LARGEST_PATCH,
            ),
            (
                "audio_config.subsampling_conv_channels",
                second,
                LARGEST_PATCH,
            ),
            (
                "audio_config.conv_kernel_size",
                self.conv_kernel_size,
                LARGEST_PATCH,
            ),
            (
                "audio_config.attention_chunk_size",
                self.attention_chunk_size,
                LARGEST_PATCH,
            ),
            (
                "audio_config.attention_context_left",
                self.attention_context_left,
                LARGEST_PATCH,
            ),
            (
                "audio_config.attention_context_right",
                self.attention_context_right + 1,
                LARGEST_PATCH,
            ),
            (
                "audio_config.output_proj_dims",
                self.output_proj_dims,
                LARGEST_SIZE,
            ),
        ] {
            check_range(key, size, limit)?;
        }
        check_layers("audio_config.num_hidden_layers", self.num_hidden_layers)?;
        if self.hidden_size % (2 * self.num_attention_heads) != 0 {
            let (key, fact) = (
                "audio_config.hidden_size",
                "heads of an even size do not fill it",
            );
            return Err(unsupported(key, fact));
        }
        if self.hidden_act != "silu" {
            let (key, fact) = (
                "audio_config.hidden_act",
                format!("{:?} is not supported", self.hidden_act),
            );
            return Err(Error::Config { key, fact });
        }
        Ok(())
    }
}

impl UnifiedVisionConfig {
    fn check(&self) -> Result<()> {
        check_range(
            "vision_config.model_patch_size",
            self.model_patch_size,
            LARGEST_PATCH,
        )?;
        check_size("vision_config.mm_embed_dim", self.mm_embed_dim)?;
        check_size("vision_config.mm_posemb_size", self.mm_posemb_size)
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
        check_range(
            "vision_config.num_attention_heads",
            self.num_attention_heads,
            MOST_HEADS,
        )?;
        check_range("vision_config.head_dim", self.head_dim, LARGEST_HEAD)?;
        check_range("vision_config.patch_size", self.patch_size, LARGEST_PATCH)?;
        check_layers("vision_config.num_hidden_layers", self.num_hidden_layers)?;
        self.rope_parameters.check()?;
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
        Ok(())
    }
}

pub(super) fn check_size(key: &'static str, size: i32) -> Result<()> {
    check_range(key, size, LARGEST_SIZE)
}

fn check_heads(key: &'static str, heads: i32, key_value_heads: i32) -> Result<()> {
    check_range(key, key_value_heads, MOST_HEADS)?;
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
