//! What a configuration must satisfy before anything is loaded.

use serde_json::Value;

use super::{DeltaSizes, ExpertSizes, Family, LayerKind, QwenConfig, TextConfig, VisionConfig};
pub(super) use crate::models::limits::unsupported;
use crate::models::limits::{LARGEST_SIZE, MOST_HEADS, check_layers, check_range};
use crate::{Error, Result};

/// Limits of the same purpose as the shared ones.
const LARGEST_HEAD: i32 = 1 << 10;
const LARGEST_PATCH: i32 = 1 << 8;
const LARGEST_KERNEL: i32 = 1 << 6;

impl QwenConfig {
    /// Refuses what contradicts itself and what is not served.
    pub(super) fn check(&self, quantization: Option<&Value>) -> Result<()> {
        // MLX's own form states what the tensors show anyway; others store them otherwise.
        if let Some(method) = quantization.and_then(|config| config.get("quant_method")) {
            let fact = format!("quant_method {method} is not supported, only MLX's own form");
            let key = "quantization_config";
            return Err(Error::Config { key, fact });
        }
        self.text.check(self.family)?;
        let Some(vision) = &self.vision else {
            return Ok(());
        };
        vision.check()?;
        if vision.out_hidden_size != self.text.hidden_size {
            let fact = format!(
                "{} for a text of hidden_size {}",
                vision.out_hidden_size, self.text.hidden_size
            );
            let key = "vision_config.out_hidden_size";
            return Err(Error::Config { key, fact });
        }
        let deepstack = vision.deepstack_visual_indexes.len();
        let key = "vision_config.deepstack_visual_indexes";
        if deepstack > self.text.num_hidden_layers {
            let layers = self.text.num_hidden_layers;
            let fact = format!("{deepstack} for {layers} decoder layers");
            return Err(Error::Config { key, fact });
        }
        if deepstack > 0 && self.family != Family::Qwen3Vl {
            return Err(unsupported(key, "only Qwen3-VL has such layers"));
        }
        Ok(())
    }
}

impl TextConfig {
    fn check(&self, family: Family) -> Result<()> {
        check_range("text_config.vocab_size", self.vocab_size, LARGEST_SIZE)?;
        check_range("text_config.hidden_size", self.hidden_size, LARGEST_SIZE)?;
        check_range(
            "text_config.num_attention_heads",
            self.num_attention_heads,
            MOST_HEADS,
        )?;
        check_range("text_config.head_dim", self.head_dim, LARGEST_HEAD)?;
        check_multiple(
            "text_config.num_key_value_heads",
            self.num_attention_heads,
            self.num_key_value_heads,
        )?;
        check_layers("text_config.num_hidden_layers", self.num_hidden_layers)?;
        check_activation("text_config.hidden_act", &self.hidden_act, "silu")?;
        if self.attention_bias {
            return Err(unsupported("text_config.attention_bias", "not supported"));
        }
        if self.use_sliding_window {
            let key = "text_config.use_sliding_window";
            return Err(unsupported(key, "not supported"));
        }
        if self.decoder_sparse_step == Some(0) {
            return Err(unsupported("text_config.decoder_sparse_step", "0"));
        }
        self.rope()?;
        let is_dense = |layer| Ok(self.experts(family, layer)?.is_none());
        let dense = (0..self.num_hidden_layers).map(is_dense);
        if dense.collect::<Result<Vec<_>>>()?.contains(&true) {
            check_range(
                "text_config.intermediate_size",
                self.mlp_width()?,
                LARGEST_SIZE,
            )?;
        }
        if family == Family::Qwen3_5 {
            self.check_hybrid()?;
        }
        Ok(())
    }

    fn check_hybrid(&self) -> Result<()> {
        let layers = self.num_hidden_layers;
        match (&self.layer_types, self.full_attention_interval) {
            (Some(kinds), _) if kinds.len() != layers => {
                let fact = format!("{} entries for {layers} layers", kinds.len());
                let key = "text_config.layer_types";
                return Err(Error::Config { key, fact });
            }
            (None, None | Some(0)) => {
                let key = "text_config.full_attention_interval";
                return Err(unsupported(key, "missing, and there are no layer_types"));
            }
            _ => {}
        }
        let kinds = || (0..layers).map(|layer| self.kind(Family::Qwen3_5, layer));
        if !kinds().any(|kind| kind == LayerKind::Full) {
            let key = "text_config.layer_types";
            return Err(unsupported(key, "no layer with full attention"));
        }
        if self.attn_output_gate == Some(false) {
            let key = "text_config.attn_output_gate";
            return Err(unsupported(key, "false is not supported"));
        }
        self.delta().map(drop)
    }
}

impl ExpertSizes {
    pub(super) fn check(&self) -> Result<()> {
        check_range("text_config.num_experts", self.experts, LARGEST_SIZE)?;
        check_range(
            "text_config.moe_intermediate_size",
            self.width,
            LARGEST_SIZE,
        )?;
        if let Some(width) = self.shared_width {
            let key = "text_config.shared_expert_intermediate_size";
            check_range(key, width, LARGEST_SIZE)?;
        }
        check_range("text_config.num_experts_per_tok", self.chosen, self.experts)
    }
}

impl DeltaSizes {
    pub(super) fn check(&self) -> Result<()> {
        // A kernel of one row would keep nothing, and could not be told from MLX's layout.
        if self.kernel < 2 {
            let fact = format!("{} is not in 2..={LARGEST_KERNEL}", self.kernel);
            let key = "text_config.linear_conv_kernel_dim";
            return Err(Error::Config { key, fact });
        }
        for (key, size, largest) in [
            (
                "text_config.linear_conv_kernel_dim",
                self.kernel,
                LARGEST_KERNEL,
            ),
            (
                "text_config.linear_key_head_dim",
                self.key_size,
                LARGEST_HEAD,
            ),
            (
                "text_config.linear_value_head_dim",
                self.value_size,
                LARGEST_HEAD,
            ),
            (
                "text_config.linear_num_value_heads",
                self.value_heads,
                MOST_HEADS,
            ),
        ] {
            check_range(key, size, largest)?;
        }
        check_multiple(
            "text_config.linear_num_key_heads",
            self.value_heads,
            self.key_heads,
        )
    }
}

impl VisionConfig {
    fn check(&self) -> Result<()> {
        for (key, size, largest) in [
            (
                "vision_config.hidden_size",
                self.hidden_size,
                LARGEST_SIZE >> 4,
            ),
            (
                "vision_config.intermediate_size",
                self.intermediate_size,
                LARGEST_SIZE,
            ),
            ("vision_config.num_heads", self.num_heads, MOST_HEADS),
            ("vision_config.patch_size", self.patch_size, LARGEST_PATCH),
            (
                "vision_config.spatial_merge_size",
                self.spatial_merge_size,
                4,
            ),
            (
                "vision_config.temporal_patch_size",
                self.temporal_patch_size,
                16,
            ),
            (
                "vision_config.num_position_embeddings",
                self.num_position_embeddings,
                LARGEST_SIZE,
            ),
        ] {
            check_range(key, size, largest)?;
        }
        check_layers("vision_config.depth", self.depth)?;
        check_multiple("vision_config.num_heads", self.hidden_size, self.num_heads)?;
        check_activation(
            "vision_config.hidden_act",
            &self.hidden_act,
            "gelu_pytorch_tanh",
        )?;
        if self.in_channels != 3 {
            let fact = format!("{}: pictures have 3", self.in_channels);
            let key = "vision_config.in_channels";
            return Err(Error::Config { key, fact });
        }
        if self.head_size() % 4 != 0 {
            let fact = format!(
                "heads of {}, and a rotary embedding in two dimensions needs a multiple of 4",
                self.head_size()
            );
            let key = "vision_config.num_heads";
            return Err(Error::Config { key, fact });
        }
        if self.table_side() * self.table_side() != self.num_position_embeddings {
            let fact = format!("{} is not a square", self.num_position_embeddings);
            let key = "vision_config.num_position_embeddings";
            return Err(Error::Config { key, fact });
        }
        let layers = &self.deepstack_visual_indexes;
        let is_ascending = layers.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ascending || layers.last().is_some_and(|&last| last >= self.depth) {
            let fact = format!("{layers:?} of {} layers", self.depth);
            let key = "vision_config.deepstack_visual_indexes";
            return Err(Error::Config { key, fact });
        }
        if !(self.rope_base() > 0.0 && self.rope_base().is_finite()) {
            let key = "vision_config.rope_parameters";
            return Err(unsupported(key, "a base that is not positive"));
        }
        Ok(())
    }
}

/// `part` of them must divide `whole`.
fn check_multiple(key: &'static str, whole: i32, part: i32) -> Result<()> {
    check_range(key, part, MOST_HEADS)?;
    if whole % part != 0 {
        let fact = format!("{whole} is no multiple of {part}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}

fn check_activation(key: &'static str, name: &str, served: &str) -> Result<()> {
    if name != served {
        let fact = format!("{name:?} is not supported, only {served:?}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}
