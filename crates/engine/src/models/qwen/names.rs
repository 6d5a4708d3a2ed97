//! The names and layouts that checkpoints come in.

use mlx_rs::Dtype;

use super::config::{Family, QwenConfig};
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::weights::Weights;
use crate::nn::RmsNorm;

/// How norms of the text decoder are stored (Qwen3.5 only; the others store factors).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NormStorage {
    /// What is multiplied with: MLX's files.
    Factor,
    /// That less one: Hugging Face's files.
    LessOne,
}

/// The checkpoint's tensors under the names of this module: `language_model.X`, `vision.X` and
/// `lm_head.X`.
pub(super) fn open(
    checkpoint: &Checkpoint,
    config: &QwenConfig,
    dtype: Option<Dtype>,
) -> Result<Weights> {
    let has_vision = config.vision.is_some();
    let is_tied = config.is_tied;
    Weights::open(checkpoint, dtype, |name| {
        // Qwen3.5's draft head, which may stand under either prefix.
        if name.contains("mtp.") || name.contains("rotary_emb") {
            return None;
        }
        let name = canonical(name);
        let ignored = (is_tied && name.starts_with("lm_head."))
            || (!has_vision && name.starts_with("vision."));
        (!ignored).then_some(name)
    })
}

/// Hugging Face writes `model.language_model.X`, `model.visual.X` and `lm_head.X`, and
/// `model.X` for text alone; MLX's files have `language_model.model.X`, `vision_tower.X` and
/// `language_model.lm_head.X`.
fn canonical(name: &str) -> String {
    const PREFIXES: [(&str, &str); 8] = [
        ("model.language_model.visual.", "vision."),
        ("model.language_model.", "language_model."),
        ("model.visual.", "vision."),
        ("visual.", "vision."),
        ("vision_tower.", "vision."),
        ("language_model.model.", "language_model."),
        ("language_model.lm_head.", "lm_head."),
        ("model.", "language_model."),
    ];
    let renamed = PREFIXES.iter().find_map(|(prefix, to)| {
        let rest = name.strip_prefix(prefix)?;
        Some(format!("{to}{rest}"))
    });
    renamed.unwrap_or_else(|| name.to_owned())
}

impl NormStorage {
    /// By the layout of the convolutions, `[channels, 1, kernel]` in Hugging Face's files and
    /// `[channels, kernel, 1]` in MLX's, or by the names. Values say nothing: either form
    /// may lie near 1.
    pub(super) fn of(weights: &Weights, config: &QwenConfig) -> Self {
        if config.family != Family::Qwen3_5 {
            return Self::Factor;
        }
        let is_less_one = (0..config.text.num_hidden_layers)
            .filter_map(|layer| {
                let path = format!("language_model.layers.{layer}.linear_attn");
                weights.stored(&format!("{path}.conv1d.weight"))
            })
            .any(|(_, shape)| shape.last() != Some(&1))
            || weights
                .stored("language_model.norm.weight")
                .is_some_and(|(name, _)| name.starts_with("model.language_model."));
        if is_less_one {
            Self::LessOne
        } else {
            Self::Factor
        }
    }
}

/// Takes the norm `{path}.weight` of shape `[size]`.
pub(super) fn norm(
    weights: &mut Weights,
    path: &str,
    size: i32,
    eps: f32,
    storage: NormStorage,
) -> Result<RmsNorm> {
    match storage {
        NormStorage::Factor => RmsNorm::load(weights, path, size, eps),
        NormStorage::LessOne => RmsNorm::load_offset(weights, path, size, eps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_leads_to_one_name() {
        for (name, expected) in [
            (
                "model.language_model.layers.0.x",
                "language_model.layers.0.x",
            ),
            (
                "language_model.model.layers.0.x",
                "language_model.layers.0.x",
            ),
            ("model.layers.0.x", "language_model.layers.0.x"),
            ("model.visual.blocks.0.x", "vision.blocks.0.x"),
            (
                "model.language_model.visual.blocks.0.x",
                "vision.blocks.0.x",
            ),
            ("vision_tower.blocks.0.x", "vision.blocks.0.x"),
            ("lm_head.weight", "lm_head.weight"),
            ("language_model.lm_head.weight", "lm_head.weight"),
        ] {
            assert_eq!(canonical(name), expected);
        }
    }
}
