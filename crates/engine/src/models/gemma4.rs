//! Gemma 4: E2B and E4B (shared keys and values, per-layer embeddings), 26B-A4B (a mixture
//! of experts), 31B, and the unified 12B, whose pictures need no tower. Gemma 3's text models
//! are served by the same decoder.
//!
//! The definition is transformers 5.24, `models/gemma4` and `models/gemma3`.

mod attention;
mod audio;
mod config;
mod experts;
mod layer;
mod patches;
mod text;
mod unified;
mod vision;

use mlx_rs::{Array, Dtype};
use prefill_media_preprocess::audio::Gemma4Audio;

use self::audio::{AudioTower, UnifiedSound};
use self::config::{AudioPart, Gemma3Config, Gemma4Config, LayerKind, TextConfig, VisionPart};
use self::patches::Patches;
use self::text::TextModel;
use self::unified::UnifiedEmbedder;
use self::vision::VisionTower;
use super::{Chunk, LanguageModel};
use crate::cache::{Cache, LayerCache};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::weights::Weights;
use crate::nn::RmsNorm;
use crate::prompt::{MediaKind, PreparedMedium};
use crate::{Error, Result};

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Gemma4 {
    text: TextModel,
    vision: Option<Vision>,
    audio: Option<Audio>,
    windows: Vec<Option<i32>>,
    /// Bytes of one token's keys and values in each of those layers.
    row_bytes: Vec<usize>,
    head_sizes: Vec<i32>,
    /// Values that one token takes in the widest layer, its inputs and outputs together.
    widest: usize,
    max_positions: usize,
    vocabulary: usize,
    hidden: i32,
    /// The working type of the text.
    dtype: Dtype,
    dtype_bytes: usize,
}

/// What turns pictures into soft tokens.
#[derive(Debug)]
enum Vision {
    Tower(VisionTower),
    Unified(UnifiedEmbedder),
}

/// What turns sound into soft tokens.
#[derive(Debug)]
enum Audio {
    Tower(Box<AudioTower>),
    Unified(UnifiedSound),
}

impl Vision {
    fn load(weights: &mut Weights, config: &Gemma4Config) -> Result<Option<Self>> {
        let text = &config.text_config;
        Ok(match &config.vision_config {
            Some(VisionPart::Tower(vision)) => {
                Some(Self::Tower(VisionTower::load(weights, vision, text)?))
            }
            Some(VisionPart::Unified(vision)) => {
                Some(Self::Unified(UnifiedEmbedder::load(weights, vision, text)?))
            }
            None => None,
        })
    }

    /// `[frames * soft tokens, text hidden]`.
    fn forward(&self, patches: Patches<'_>, kind: MediaKind) -> Result<Array> {
        let rows = match self {
            Self::Tower(tower) => tower.forward(&patches)?,
            Self::Unified(embedder) => embedder.forward(&patches)?,
        };
        let (expected, found) = (patches.frames * patches.soft_tokens, rows.dim(0) as usize);
        if expected != found {
            return Err(Error::FeatureRows {
                kind,
                expected,
                found,
            });
        }
        Ok(rows)
    }
}

impl Audio {
    fn load(weights: &mut Weights, config: &Gemma4Config) -> Result<Option<Self>> {
        let text = &config.text_config;
        Ok(match &config.audio_config {
            Some(AudioPart::Tower(audio)) => Some(Self::Tower(Box::new(AudioTower::load(
                weights, audio, text,
            )?))),
            Some(AudioPart::Unified(audio)) => {
                Some(Self::Unified(UnifiedSound::load(weights, audio, text)?))
            }
            None => None,
        })
    }
}

impl Audio {
    /// `[soft tokens, text hidden]`, which is none for a clip shorter than a frame.
    fn forward(&self, sound: &Gemma4Audio, hidden: i32) -> Result<Array> {
        let valid = sound.valid_rows() * sound.dim;
        if sound.input_features.len() != sound.rows * sound.dim
            || valid > sound.input_features.len()
        {
            let fact = format!(
                "{} values are not {} rows of {}",
                sound.input_features.len(),
                sound.rows,
                sound.dim
            );
            return Err(Error::Config {
                key: "audio_config",
                fact,
            });
        }
        let values = &sound.input_features[..valid];
        let rows = match self {
            _ if values.is_empty() => mlx_rs::ops::zeros::<f32>(&[0, hidden])?,
            Self::Tower(tower) => tower.forward(values, sound.dim)?,
            Self::Unified(embedder) => embedder.forward(values, sound.dim)?,
        };
        let (expected, found) = (sound.soft_tokens, rows.dim(0) as usize);
        if expected != found {
            return Err(Error::FeatureRows {
                kind: MediaKind::Audio,
                expected,
                found,
            });
        }
        Ok(rows)
    }
}

impl Gemma4 {
    /// Loads a checkpoint's weights in `dtype`, or as they are stored.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        dtype: Option<Dtype>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let config = read_config(checkpoint)?;
        config.check()?;
        let mut weights = open_weights(checkpoint, &config, dtype)?;
        let text_config = &config.text_config;
        let dtype = weights.working_dtype();
        let dtype_bytes = if dtype == Dtype::Float32 { 4 } else { 2 };
        let text = TextModel::load(&mut weights, &config)?;
        // The towers' residual streams leave the range of f16.
        let tower_dtype = match dtype {
            Dtype::Float16 => Dtype::Float32,
            other => other,
        };
        let (vision, audio) = weights.in_dtype(tower_dtype, |weights| {
            Ok((
                Vision::load(weights, &config)?,
                Audio::load(weights, &config)?,
            ))
        })?;
        weights.load(progress)?;
        let row_bytes = (0..text_config.first_shared_layer())
            .map(|layer| {
                let kind = text_config.layer_types[layer];
                let row = text_config.key_value_heads(kind) * text_config.head_size(kind);
                2 * row as usize * dtype_bytes
            })
            .collect();
        let windows = (0..text_config.first_shared_layer())
            .map(|layer| match text_config.layer_types[layer] {
                LayerKind::Sliding => Some(text_config.sliding_window),
                LayerKind::Full => None,
            })
            .collect();
        Ok(Self {
            text,
            vision,
            audio,
            windows,
            row_bytes,
            head_sizes: (0..text_config.first_shared_layer())
                .map(|layer| text_config.head_size(text_config.layer_types[layer]))
                .collect(),
            widest: (6 * text_config.intermediate_size + 6 * text_config.hidden_size) as usize,
            dtype_bytes,
            max_positions: text_config.max_position_embeddings,
            vocabulary: text_config.vocab_size as usize,
            hidden: text_config.hidden_size,
            dtype,
        })
    }
}

impl LanguageModel for Gemma4 {
    fn new_cache(&self) -> Cache {
        Cache::new(self.windows.iter().copied())
    }

    fn head_sizes(&self) -> Vec<i32> {
        self.head_sizes.clone()
    }

    fn value_bytes(&self) -> usize {
        self.dtype_bytes
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        let layer =
            |(&window, &row): (&Option<i32>, &usize)| row * LayerCache::capacity(window, tokens);
        self.windows.iter().zip(&self.row_bytes).map(layer).sum()
    }

    fn working_bytes(&self, chunk: usize, tokens: usize) -> usize {
        // A few copies of the residual stream, the MLP's inner width, a mask, and the logits.
        let values = chunk * self.widest + self.vocabulary;
        4 * values * self.dtype_bytes + chunk * tokens
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        let kind = medium.kind();
        let rows = match (medium, &self.vision, &self.audio) {
            (PreparedMedium::Image(image), Some(vision), _) => vision.forward(image.into(), kind),
            (PreparedMedium::Audio(sound), _, Some(audio)) => audio.forward(sound, self.hidden),
            (PreparedMedium::Video(video), Some(vision), _) => vision.forward(video.into(), kind),
            _ => Err(Error::NoTower { kind }),
        }?;
        Ok(rows.as_dtype(self.dtype)?)
    }

    fn forward(&self, chunk: &Chunk<'_>, cache: &mut Cache, logits: bool) -> Result<Option<Array>> {
        self.text.forward(chunk, cache, logits)
    }
}

fn read_config(checkpoint: &Checkpoint) -> Result<Gemma4Config> {
    match checkpoint.model_type() {
        "gemma3_text" => checkpoint.config::<Gemma3Config>()?.try_into(),
        "gemma4_text" | "gemma4_unified_text" => Ok(Gemma4Config::of_text(
            checkpoint.config()?,
            checkpoint.setting("quantization_config").cloned(),
        )),
        _ => checkpoint.config(),
    }
}

/// A norm of the text decoder.
fn load_norm(weights: &mut Weights, path: &str, size: i32, config: &TextConfig) -> Result<RmsNorm> {
    if config.dialect.norm_weights_are_offsets {
        RmsNorm::load_offset(weights, path, size, config.rms_norm_eps)
    } else {
        RmsNorm::load(weights, path, size, config.rms_norm_eps)
    }
}

/// The checkpoint's tensors under the names of this module: Hugging Face's without the
/// leading `model.`, `language_model.` before those of the text.
fn open_weights(
    checkpoint: &Checkpoint,
    config: &Gemma4Config,
    dtype: Option<Dtype>,
) -> Result<Weights> {
    let first_shared = config.text_config.first_shared_layer();
    let (has_vision, has_audio) = (
        config.vision_config.is_some(),
        config.audio_config.is_some(),
    );
    Weights::open(checkpoint, dtype, |name| {
        // mlx-community stores `language_model.model.X` for `model.language_model.X`.
        let name = name.strip_prefix("model.").unwrap_or(name);
        let name = match name.strip_prefix("language_model.model.") {
            Some(rest) => format!("language_model.{rest}"),
            // Checkpoints of text alone name the decoder's parts without it.
            None if is_text_part(name) => format!("language_model.{name}"),
            None => name.to_owned(),
        };
        let ignored = name.contains("rotary_emb")
            // Tied to the embedding.
            || name.ends_with("lm_head.weight")
            || (!has_vision && is_vision(&name))
            || (!has_audio && is_audio(&name))
            || is_unread(&name, first_shared);
        (!ignored).then_some(name)
    })
}

fn is_text_part(name: &str) -> bool {
    let part = name.split('.').next().unwrap_or(name);
    [
        "embed_tokens",
        "layers",
        "norm",
        "embed_tokens_per_layer",
        "per_layer_model_projection",
        "per_layer_projection_norm",
    ]
    .contains(&part)
}

fn is_vision(name: &str) -> bool {
    ["vision_tower.", "vision_embedder.", "embed_vision."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_audio(name: &str) -> bool {
    ["audio_tower.", "embed_audio."]
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
