//! Qwen3-VL and Qwen3.5, dense and with experts, and their text decoders alone, Qwen3 among
//! them.
//!
//! The definition is transformers 5.24, `models/qwen3_vl`, `models/qwen3_5`, their `_moe`
//! forms and `models/qwen3`.

mod attention;
mod config;
mod delta_net;
mod experts;
mod mlp;
mod names;
mod text;
mod vision;

use mlx_rs::{Array, Dtype};

use self::config::{Family, MemorySizes, QwenConfig};
use self::text::TextModel;
use self::vision::{Patches, VisionTower};
use super::{Chunk, LanguageModel};
use crate::cache::{Cache, LayerCache};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::weights::Weights;
use crate::prompt::PreparedMedium;
use crate::{Error, Result};

/// A loaded model.
#[derive(Debug)]
pub(crate) struct Qwen {
    text: TextModel,
    vision: Option<VisionTower>,
    max_positions: usize,
    vocabulary: usize,
    memory: MemorySizes,
    dtype: Dtype,
}

impl Qwen {
    /// Whether a `model_type` is one of these.
    pub(crate) fn serves(model_type: &str) -> bool {
        Family::of(model_type).is_some()
    }

    /// Loads a checkpoint's weights in `dtype`, or as they are stored.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        dtype: Option<Dtype>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let config = QwenConfig::read(checkpoint)?;
        let mut weights = names::open(checkpoint, &config, dtype)?;
        let dtype = weights.working_dtype();
        let text = TextModel::load(&mut weights, &config)?;
        // A tower's residual stream may leave the range of f16.
        let tower_dtype = match dtype {
            Dtype::Float16 => Dtype::Float32,
            other => other,
        };
        let vision = match &config.vision {
            Some(vision) => {
                let load = |weights: &mut Weights| VisionTower::load(weights, vision, tower_dtype);
                Some(weights.in_dtype(tower_dtype, load)?)
            }
            None => None,
        };
        weights.load(progress)?;
        Ok(Self {
            text,
            vision,
            max_positions: config.text.max_position_embeddings,
            vocabulary: config.text.vocab_size as usize,
            memory: config.memory_sizes(),
            dtype,
        })
    }
}

impl LanguageModel for Qwen {
    fn new_cache(&self) -> Cache {
        self.text.cache()
    }

    fn head_sizes(&self) -> Vec<i32> {
        vec![self.memory.head; self.memory.full]
    }

    fn value_bytes(&self) -> usize {
        if self.dtype == Dtype::Float32 { 4 } else { 2 }
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        let rows = self.memory.row * self.value_bytes() * LayerCache::capacity(None, tokens);
        rows + self.memory.state * size_of::<f32>()
    }

    fn working_bytes(&self, chunk: usize, tokens: usize) -> usize {
        let values = chunk * self.memory.widest + self.vocabulary;
        4 * values * self.value_bytes() + chunk * tokens
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        let kind = medium.kind();
        let soft_tokens = medium.soft_tokens();
        let (values, grid_thw) = match medium {
            PreparedMedium::QwenImage(image) => (&image.pixel_values, image.grid_thw),
            PreparedMedium::QwenVideo(video) => (&video.pixel_values, video.grid_thw),
            _ => return Err(Error::NoTower { kind }),
        };
        let tower = self.vision.as_ref().ok_or(Error::NoTower { kind })?;
        let rows = tower.forward(Patches {
            values,
            grid_thw,
            soft_tokens,
        })?;
        Ok(rows.as_dtype(self.dtype)?)
    }

    fn forward(&self, chunk: &Chunk<'_>, cache: &mut Cache, logits: bool) -> Result<Option<Array>> {
        self.text.forward(chunk, cache, logits)
    }
}
