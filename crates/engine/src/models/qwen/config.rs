//! `config.json` of the Qwen models. What decides the computation must be stated; only
//! settings whose absence transformers itself reads as "off" may be left out.

mod check;

use serde::Deserialize;

use self::check::unsupported;
use crate::checkpoint::Checkpoint;
use crate::{Error, Result};

/// Which of the models it is, as far as the computation differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Text alone.
    Qwen3,
    Qwen3Vl,
    /// Linear layers among those with attention.
    Qwen3_5,
}

/// The whole configuration, brought to one form.
#[derive(Debug, Clone)]
pub(super) struct QwenConfig {
    pub family: Family,
    pub text: TextConfig,
    pub vision: Option<VisionConfig>,
    /// Whether the head is the embedding.
    pub is_tied: bool,
}

/// The file, where the text decoder is a part of it.
#[derive(Debug, Deserialize)]
struct Nested {
    text_config: TextConfig,
    vision_config: Option<VisionConfig>,
}

/// What may stand at either level.
#[derive(Debug, Deserialize)]
struct Outer {
    tie_word_embeddings: Option<bool>,
    quantization_config: Option<serde_json::Value>,
}

/// The text decoder.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TextConfig {
    pub vocab_size: i32,
    pub hidden_size: i32,
    /// Width of a dense MLP; absent where every layer has experts.
    intermediate_size: Option<i32>,
    pub num_hidden_layers: usize,
    pub num_attention_heads: i32,
    pub num_key_value_heads: i32,
    pub head_dim: i32,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f32,
    hidden_act: String,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    tie_word_embeddings: Option<bool>,
    rope_theta: Option<f32>,
    rope_scaling: Option<RopeConfig>,
    rope_parameters: Option<RopeConfig>,
    partial_rotary_factor: Option<f32>,

    num_experts: Option<i32>,
    num_experts_per_tok: Option<i32>,
    moe_intermediate_size: Option<i32>,
    shared_expert_intermediate_size: Option<i32>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    norm_topk_prob: Option<bool>,

    layer_types: Option<Vec<LayerKind>>,
    full_attention_interval: Option<usize>,
    linear_conv_kernel_dim: Option<i32>,
    linear_key_head_dim: Option<i32>,
    linear_value_head_dim: Option<i32>,
    linear_num_key_heads: Option<i32>,
    linear_num_value_heads: Option<i32>,
    attn_output_gate: Option<bool>,
}

/// What a sequence takes of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemorySizes {
    /// Layers with keys and values.
    pub full: usize,
    /// The size of their heads.
    pub head: i32,
    /// Values of one token's keys and values, in all layers that have them.
    pub row: usize,
    /// Values of the states, f32.
    pub state: usize,
    /// Values that one token takes in the widest layer, its inputs and outputs together.
    pub widest: usize,
}

impl QwenConfig {
    pub(super) fn memory_sizes(&self) -> MemorySizes {
        let text = &self.text;
        let full = (0..text.num_hidden_layers)
            .filter(|&index| text.kind(self.family, index) == LayerKind::Full)
            .count();
        let size = |value: Option<i32>| value.unwrap_or(0) as usize;
        let memory = size(text.linear_num_value_heads)
            * size(text.linear_key_head_dim)
            * size(text.linear_value_head_dim);
        let width = size(text.intermediate_size)
            .max(size(text.moe_intermediate_size) * size(text.num_experts_per_tok));
        MemorySizes {
            full,
            head: text.head_dim,
            row: 2 * full * text.num_key_value_heads as usize * text.head_dim as usize,
            state: (text.num_hidden_layers - full) * memory,
            widest: 3 * width + 8 * text.hidden_size as usize,
        }
    }
}

/// What mixes the tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum LayerKind {
    #[serde(rename = "full_attention")]
    Full,
    #[serde(rename = "linear_attention")]
    Linear,
}

/// The rotary embedding, as older and newer files write it. A setting that is not known here
/// could change the result.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RopeConfig {
    rope_type: Option<String>,
    r#type: Option<String>,
    rope_theta: Option<f32>,
    mrope_section: Option<[i32; 3]>,
    mrope_interleaved: Option<bool>,
    partial_rotary_factor: Option<f32>,
}

/// The rotary embedding in one form.
#[derive(Debug, Clone, Copy)]
pub(super) struct RopeSizes {
    /// Dimensions of a head that turn.
    pub dimensions: i32,
    pub base: f32,
    /// Frequencies of time, row and column.
    pub sections: [i32; 3],
}

/// The sizes of a mixture of experts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpertSizes {
    pub experts: i32,
    /// Experts that a token goes through.
    pub chosen: i32,
    /// Width of one expert.
    pub width: i32,
    /// Width of the expert that every token goes through, where there is one.
    pub shared_width: Option<i32>,
    /// Whether the shares of the chosen experts sum to 1.
    pub is_normalised: bool,
}

/// The sizes of a linear layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaSizes {
    /// Rows that the convolution spans.
    pub kernel: i32,
    pub key_heads: i32,
    pub key_size: i32,
    pub value_heads: i32,
    pub value_size: i32,
}

/// The vision tower.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct VisionConfig {
    pub depth: usize,
    pub hidden_size: i32,
    pub intermediate_size: i32,
    pub num_heads: i32,
    in_channels: i32,
    pub patch_size: i32,
    pub spatial_merge_size: i32,
    pub temporal_patch_size: i32,
    pub out_hidden_size: i32,
    pub num_position_embeddings: i32,
    hidden_act: String,
    /// Layers whose output also goes into the first decoder layers.
    #[serde(default)]
    pub deepstack_visual_indexes: Vec<usize>,
    rope_parameters: Option<VisionRope>,
}

#[derive(Debug, Clone, Deserialize)]
struct VisionRope {
    rope_theta: Option<f32>,
}

impl Family {
    /// The family of a `model_type`, and whether its text decoder is a part of the file.
    pub(super) fn of(model_type: &str) -> Option<(Self, bool)> {
        Some(match model_type {
            "qwen3" | "qwen3_moe" => (Self::Qwen3, false),
            "qwen3_vl_text" | "qwen3_vl_moe_text" => (Self::Qwen3Vl, false),
            "qwen3_vl" | "qwen3_vl_moe" => (Self::Qwen3Vl, true),
            "qwen3_5_text" | "qwen3_5_moe_text" => (Self::Qwen3_5, false),
            "qwen3_5" | "qwen3_5_moe" => (Self::Qwen3_5, true),
            _ => return None,
        })
    }
}

impl QwenConfig {
    /// The checkpoint's configuration, checked.
    pub(super) fn read(checkpoint: &Checkpoint) -> Result<Self> {
        let model_type = checkpoint.model_type();
        let Some((family, is_nested)) = Family::of(model_type) else {
            return Err(Error::UnsupportedModel {
                model_type: model_type.to_owned(),
            });
        };
        let outer: Outer = checkpoint.config()?;
        let (text, vision) = if is_nested {
            let nested: Nested = checkpoint.config()?;
            (nested.text_config, nested.vision_config)
        } else {
            (checkpoint.config()?, None)
        };
        let config = Self {
            family,
            is_tied: outer
                .tie_word_embeddings
                .or(text.tie_word_embeddings)
                .unwrap_or(false),
            text,
            vision,
        };
        config.check(outer.quantization_config.as_ref())?;
        Ok(config)
    }
}

impl TextConfig {
    /// What a layer mixes its tokens with.
    pub(super) fn kind(&self, family: Family, layer: usize) -> LayerKind {
        let stated = self.layer_types.as_ref().and_then(|kinds| kinds.get(layer));
        match (family, stated, self.full_attention_interval) {
            (Family::Qwen3_5, Some(&kind), _) => kind,
            (Family::Qwen3_5, None, Some(interval)) if !(layer + 1).is_multiple_of(interval) => {
                LayerKind::Linear
            }
            _ => LayerKind::Full,
        }
    }

    /// The width of a dense MLP.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not given.
    pub(super) fn mlp_width(&self) -> Result<i32> {
        required("text_config.intermediate_size", self.intermediate_size)
    }

    /// The rotary embedding.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not served.
    pub(super) fn rope(&self) -> Result<RopeSizes> {
        let key = "text_config.rope_parameters";
        let none = RopeConfig::default();
        let stated = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let rope = stated.unwrap_or(&none);
        for kind in [&rope.rope_type, &rope.r#type].into_iter().flatten() {
            if !matches!(kind.as_str(), "default" | "mrope") {
                let fact = format!("rope_type {kind:?} is not supported");
                return Err(Error::Config { key, fact });
            }
        }
        let base = required(
            "text_config.rope_theta",
            rope.rope_theta.or(self.rope_theta),
        )?;
        if !(base > 0.0 && base.is_finite()) {
            return Err(unsupported(key, "a base that is not positive"));
        }
        let part = rope.partial_rotary_factor.or(self.partial_rotary_factor);
        let part = part.unwrap_or(1.0);
        let dimensions = (self.head_dim as f32 * part) as i32;
        if !(part > 0.0 && part <= 1.0) || dimensions < 2 || dimensions % 2 != 0 {
            let fact = format!("partial_rotary_factor {part} of head_dim {}", self.head_dim);
            return Err(Error::Config { key, fact });
        }
        let pairs = dimensions / 2;
        // Without sections, all axes have the same position.
        let sections = rope.mrope_section.unwrap_or([pairs, 0, 0]);
        let sum = sections
            .iter()
            .try_fold(0i32, |sum, &section| sum.checked_add(section));
        if sections.iter().any(|&section| section < 0) || sum != Some(pairs) {
            let fact = format!("mrope_section {sections:?} for {pairs} frequencies");
            return Err(Error::Config { key, fact });
        }
        if rope.mrope_section.is_some() && rope.mrope_interleaved == Some(false) {
            return Err(unsupported(key, "sections that are not interleaved"));
        }
        Ok(RopeSizes {
            dimensions,
            base,
            sections,
        })
    }

    /// The mixture of experts of a layer, if it has one.
    ///
    /// # Errors
    /// [`Error::Config`] if one of its sizes is missing or contradicts another.
    pub(super) fn experts(&self, family: Family, layer: usize) -> Result<Option<ExpertSizes>> {
        let step = self.decoder_sparse_step.unwrap_or(1);
        let is_dense = |layers: &Vec<usize>| layers.contains(&layer);
        let is_sparse = (layer + 1).is_multiple_of(step)
            // Qwen3.5 has experts in every layer, whatever the file says of others' settings.
            && (family == Family::Qwen3_5 || !self.mlp_only_layers.as_ref().is_some_and(is_dense));
        let Some(experts) = self.num_experts.filter(|&experts| experts > 0 && is_sparse) else {
            return Ok(None);
        };
        let sizes = ExpertSizes {
            experts,
            chosen: required("text_config.num_experts_per_tok", self.num_experts_per_tok)?,
            width: required(
                "text_config.moe_intermediate_size",
                self.moe_intermediate_size,
            )?,
            shared_width: match family {
                Family::Qwen3_5 => Some(required(
                    "text_config.shared_expert_intermediate_size",
                    self.shared_expert_intermediate_size,
                )?),
                Family::Qwen3 | Family::Qwen3Vl => None,
            },
            // transformers' Qwen3-VL and Qwen3.5 do so always.
            is_normalised: family != Family::Qwen3 || self.norm_topk_prob.unwrap_or(false),
        };
        sizes.check()?;
        Ok(Some(sizes))
    }

    /// The sizes of the linear layers.
    ///
    /// # Errors
    /// [`Error::Config`] if one is missing or contradicts another.
    pub(super) fn delta(&self) -> Result<DeltaSizes> {
        let sizes = DeltaSizes {
            kernel: required(
                "text_config.linear_conv_kernel_dim",
                self.linear_conv_kernel_dim,
            )?,
            key_heads: required(
                "text_config.linear_num_key_heads",
                self.linear_num_key_heads,
            )?,
            key_size: required("text_config.linear_key_head_dim", self.linear_key_head_dim)?,
            value_heads: required(
                "text_config.linear_num_value_heads",
                self.linear_num_value_heads,
            )?,
            value_size: required(
                "text_config.linear_value_head_dim",
                self.linear_value_head_dim,
            )?,
        };
        sizes.check()?;
        Ok(sizes)
    }
}

impl DeltaSizes {
    pub(super) fn keys(&self) -> i32 {
        self.key_heads * self.key_size
    }

    pub(super) fn values(&self) -> i32 {
        self.value_heads * self.value_size
    }

    /// Channels of the convolution: queries, keys and values.
    pub(super) fn channels(&self) -> i32 {
        2 * self.keys() + self.values()
    }
}

impl VisionConfig {
    /// Positions on a side of the table.
    pub(super) fn table_side(&self) -> i32 {
        f64::from(self.num_position_embeddings).sqrt() as i32
    }

    /// Values of one patch.
    pub(super) fn patch_values(&self) -> i32 {
        self.in_channels * self.temporal_patch_size * self.patch_size * self.patch_size
    }

    pub(super) fn head_size(&self) -> i32 {
        self.hidden_size / self.num_heads
    }

    pub(super) fn rope_base(&self) -> f32 {
        let stated = self.rope_parameters.as_ref();
        stated.and_then(|rope| rope.rope_theta).unwrap_or(1e4)
    }
}

fn required<T>(key: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| unsupported(key, "missing"))
}
