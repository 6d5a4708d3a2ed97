//! Gemma 4: E2B and E4B (shared keys and values, per-layer embeddings), 26B-A4B (a mixture
//! of experts), 31B, and the unified 12B, whose pictures need no tower.
//!
//! The definition is transformers 5.24, `models/gemma4`.

mod attention;
mod config;
mod experts;
mod layer;
mod text;
mod unified;
mod vision;

use std::path::Path;

use mlx_rs::{Array, Dtype};

use self::config::{Gemma4Config, LayerKind, VisionPart};
use self::text::TextModel;
use self::unified::UnifiedEmbedder;
use self::vision::VisionTower;
use super::{Chunk, LanguageModel};
use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::weights::Weights;
use crate::prompt::{MediaKind, PreparedMedium};
use crate::{Error, Result};

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Gemma4 {
    text: TextModel,
    vision: Option<Vision>,
    pictures_are_bidirectional: bool,
    windows: Vec<Option<i32>>,
    max_positions: usize,
    vocabulary: usize,
}

/// What turns pictures into soft tokens.
#[derive(Debug)]
enum Vision {
    Tower(VisionTower),
    Unified(UnifiedEmbedder),
}

impl Gemma4 {
    /// Loads a checkpoint's weights in `dtype`, or as they are stored.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        dtype: Option<Dtype>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let config: Gemma4Config = checkpoint.config()?;
        config.check()?;
        let mut weights = open_weights(checkpoint.folder(), &config, dtype)?;
        let text = TextModel::load(&mut weights, &config)?;
        let text_config = &config.text_config;
        let vision = match &config.vision_config {
            Some(VisionPart::Tower(vision)) => {
                let tower = VisionTower::load(&mut weights, vision, text_config)?;
                Some(Vision::Tower(tower))
            }
            Some(VisionPart::Unified(vision)) => {
                let embedder = UnifiedEmbedder::load(&mut weights, vision, text_config)?;
                Some(Vision::Unified(embedder))
            }
            None => None,
        };
        weights.load(progress)?;
        let windows = (0..text_config.first_shared_layer())
            .map(|layer| match text_config.layer_types[layer] {
                LayerKind::Sliding => Some(text_config.sliding_window),
                LayerKind::Full => None,
            })
            .collect();
        Ok(Self {
            text,
            vision,
            pictures_are_bidirectional: text_config.pictures_are_bidirectional(),
            windows,
            max_positions: text_config.max_position_embeddings,
            vocabulary: text_config.vocab_size as usize,
        })
    }
}

impl LanguageModel for Gemma4 {
    fn new_cache(&self) -> Cache {
        Cache::new(self.windows.iter().copied())
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn is_bidirectional(&self, kind: MediaKind) -> bool {
        self.pictures_are_bidirectional && matches!(kind, MediaKind::Image | MediaKind::Video)
    }

    fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        match (medium, &self.vision) {
            (PreparedMedium::Image(image), Some(Vision::Tower(tower))) => tower.forward(image),
            (PreparedMedium::Image(image), Some(Vision::Unified(embedder))) => {
                embedder.forward(image)
            }
            _ => Err(Error::NoTower {
                kind: medium.kind(),
            }),
        }
    }

    fn forward(&self, chunk: &Chunk<'_>, cache: &mut Cache, logits: bool) -> Result<Option<Array>> {
        self.text.forward(chunk, cache, logits)
    }
}

/// The checkpoint's tensors under the names of this module: Hugging Face's without the
/// leading `model.`, `language_model.` before those of the text.
fn open_weights(folder: &Path, config: &Gemma4Config, dtype: Option<Dtype>) -> Result<Weights> {
    let first_shared = config.text_config.first_shared_layer();
    let has_vision = config.vision_config.is_some();
    Weights::open(folder, dtype, |name| {
        // mlx-community stores `language_model.model.X` for `model.language_model.X`.
        let name = name.strip_prefix("model.").unwrap_or(name);
        let name = match name.strip_prefix("language_model.model.") {
            Some(rest) => format!("language_model.{rest}"),
            None => name.to_owned(),
        };
        let ignored = name.contains("rotary_emb")
            // Tied to the embedding.
            || name.ends_with("lm_head.weight")
            // Sound is not served by this version.
            || name.starts_with("audio_tower.")
            || name.starts_with("embed_audio.")
            || (!has_vision && is_vision(&name))
            || is_unread(&name, first_shared);
        (!ignored).then_some(name)
    })
}

fn is_vision(name: &str) -> bool {
    ["vision_tower.", "vision_embedder.", "embed_vision."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Layers from `first_shared` on read the keys and values of an earlier one; some
/// checkpoints still carry theirs.
fn is_unread(name: &str, first_shared: usize) -> bool {
    let Some(rest) = name.strip_prefix("language_model.layers.") else {
        return false;
    };
    let Some((layer, part)) = rest.split_once('.') else {
        return false;
    };
    layer
        .parse()
        .is_ok_and(|layer: usize| layer >= first_shared)
        && [
            "self_attn.k_proj.",
            "self_attn.v_proj.",
            "self_attn.k_norm.",
            "self_attn.v_norm.",
        ]
        .iter()
        .any(|prefix| part.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_layers_lose_their_keys_and_values() {
        assert!(is_unread(
            "language_model.layers.4.self_attn.k_proj.weight",
            4
        ));
        assert!(!is_unread(
            "language_model.layers.3.self_attn.k_proj.weight",
            4
        ));
        assert!(!is_unread(
            "language_model.layers.4.self_attn.q_proj.weight",
            4
        ));
        assert!(!is_unread(
            "vision_tower.encoder.layers.9.self_attn.k_proj.linear.weight",
            4
        ));
    }
}
