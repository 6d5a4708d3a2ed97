//! The text decoder: embeddings in, logits out.

use mlx_rs::Array;
use mlx_rs::Dtype;
use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;

use super::attention::rope;
use super::config::{Gemma4Config, LayerKind, TextConfig};
use super::layer::DecoderLayer;
use super::load_norm;
use crate::Result;
use crate::cache::{Cache, KeysValues};
use crate::checkpoint::weights::Weights;
use crate::models::{Chunk, Placed};
use crate::nn::{Linear, Mask, Matrix, RmsNorm, Rope, scalar_like, soft_cap};

/// In the order of what there is one of a kind.
const KINDS: [LayerKind; 2] = [LayerKind::Sliding, LayerKind::Full];

/// The decoder.
#[derive(Debug)]
pub(super) struct TextModel {
    /// `[vocabulary, hidden]`; the head is its transpose.
    embedding: Matrix,
    layers: Vec<DecoderLayer>,
    /// Of each layer, the one whose keys and values it reads.
    key_value_layers: Vec<usize>,
    kinds: Vec<LayerKind>,
    /// Of sliding and of full layers.
    ropes: [Rope; 2],
    window: i32,
    norm: RmsNorm,
    per_layer: Option<PerLayerEmbedding>,
    softcap: Option<f32>,
    hidden: i32,
}

impl TextModel {
    pub(super) fn load(weights: &mut Weights, config: &Gemma4Config) -> Result<Self> {
        let text = &config.text_config;
        let path = "language_model";
        let hidden = text.hidden_size;
        let count = text.num_hidden_layers;
        Ok(Self {
            embedding: Matrix::load(
                weights,
                &format!("{path}.embed_tokens"),
                &[text.vocab_size, hidden],
            )?,
            layers: (0..count)
                .map(|index| DecoderLayer::load(weights, text, index))
                .collect::<Result<_>>()?,
            key_value_layers: (0..count)
                .map(|index| text.key_value_layer(index))
                .collect(),
            kinds: text.layer_types.clone(),
            ropes: KINDS.map(|kind| rope(text, kind)),
            window: text.sliding_window,
            norm: load_norm(weights, &format!("{path}.norm"), hidden, text)?,
            per_layer: match text.hidden_size_per_layer_input {
                0 => None,
                _ => Some(PerLayerEmbedding::load(weights, path, config)?),
            },
            softcap: text.final_logit_softcapping,
            hidden,
        })
    }

    /// See [`LanguageModel::forward`](crate::models::LanguageModel::forward).
    ///
    /// Layers that share keys and values add nothing to the cache, so only the last token
    /// goes through them, and none where no logits are wanted.
    pub(super) fn forward(
        &self,
        chunk: &Chunk<'_>,
        cache: &mut Cache,
        logits: bool,
    ) -> Result<Option<Array>> {
        let tokens = chunk.ids.dim(1);
        let first = cache.layer(0).offset();
        let mut h = self.embed(chunk)?;
        let rotations = |first, tokens| -> Result<[_; 2]> {
            let [sliding, full] = &self.ropes;
            Ok([
                sliding.at(first, tokens, h.dtype())?,
                full.at(first, tokens, h.dtype())?,
            ])
        };
        let of_all = rotations(first, tokens)?;
        let of_last = match tokens {
            1 => None,
            _ => Some(rotations(first + tokens - 1, 1)?),
        };
        let mut per_layer = match &self.per_layer {
            Some(embedding) => Some(embedding.forward(chunk.ids, &h)?),
            None => None,
        };
        let masks = KINDS.map(|kind| self.mask(kind, chunk, cache));
        let mut shared: Vec<Option<KeysValues>> = vec![None; self.layers.len()];
        let last = (.., -1.., ..);

        for (index, layer) in self.layers.iter().enumerate() {
            let source = self.key_value_layers[index];
            let input = |per_layer: &Option<Array>| per_layer_input(per_layer.as_ref(), index);
            let kind = usize::from(self.kinds[index] == KINDS[1]);
            if source == index {
                (h, shared[index]) = layer.forward(
                    &h,
                    input(&per_layer)?.as_ref(),
                    cache.layer(index),
                    &masks[kind],
                    &of_all[kind],
                )?;
                continue;
            }
            let Some(keys_values) = shared[source].as_ref().filter(|_| logits) else {
                return Ok(None);
            };
            if h.dim(1) > 1 {
                h = h.try_index(last.clone())?;
                per_layer = match per_layer {
                    Some(all) => Some(all.try_index((.., -1.., .., ..))?),
                    None => None,
                };
            }
            let per_layer = input(&per_layer)?;
            let of_last = of_last.as_ref().unwrap_or(&of_all);
            h = layer.forward_shared(&h, per_layer.as_ref(), &of_last[kind], keys_values)?;
        }
        if !logits {
            return Ok(None);
        }
        self.head(&h.try_index(last)?).map(Some)
    }

    /// Scaled embeddings, with the features of media in their places.
    fn embed(&self, chunk: &Chunk<'_>) -> Result<Array> {
        let rows = self.embedding.rows(chunk.ids)?;
        // The root is rounded to the working type, as transformers rounds it.
        let text = rows.multiply(scalar_like((self.hidden as f32).sqrt(), &rows)?)?;
        insert(&text, chunk.features)
    }

    fn mask(&self, kind: LayerKind, chunk: &Chunk<'_>, cache: &mut Cache) -> Mask {
        let tokens = chunk.ids.dim(1);
        let producer = self
            .kinds
            .iter()
            .zip(&self.key_value_layers)
            .enumerate()
            .position(|(index, (&found, &source))| found == kind && source == index);
        let Some(layer) = producer else {
            return Mask::None;
        };
        let keys = cache.layer(layer).keys_after(tokens);
        match kind {
            // Pictures that see themselves do so in sliding layers only.
            LayerKind::Sliding => Mask::with_groups(tokens, keys, Some(self.window), chunk.groups),
            LayerKind::Full => Mask::new(tokens, keys, None),
        }
    }

    /// Logits, `[vocabulary]` in f32, of `[1, 1, hidden]`.
    fn head(&self, h: &Array) -> Result<Array> {
        let logits = self.embedding.multiply(&self.norm.forward(h)?)?;
        let logits = match self.softcap {
            Some(cap) => soft_cap(&logits, cap)?,
            None => logits,
        };
        Ok(logits.reshape(&[-1])?.as_dtype(Dtype::Float32)?)
    }
}

/// `text` `[1, tokens, hidden]` with rows replaced.
fn insert(text: &Array, features: &[Placed]) -> Result<Array> {
    if features.is_empty() {
        return Ok(text.clone());
    }
    let mut parts = Vec::with_capacity(2 * features.len() + 1);
    let mut next = 0;
    for placed in features {
        if placed.start > next {
            parts.push(text.try_index((.., next..placed.start, ..))?);
        }
        parts.push(placed.rows.expand_dims(0)?.as_dtype(text.dtype())?);
        next = placed.start + placed.rows.dim(0);
    }
    if next < text.dim(1) {
        parts.push(text.try_index((.., next.., ..))?);
    }
    Ok(concatenate(&parts, 1)?)
}

/// Layer `index`'s slice of `[1, tokens, layers, size]`.
fn per_layer_input(per_layer: Option<&Array>, index: usize) -> Result<Option<Array>> {
    match per_layer {
        Some(all) => Ok(Some(all.try_index((.., .., index as i32, ..))?)),
        None => Ok(None),
    }
}

/// Embeddings that enter every layer anew: one from the token, one from its first hidden
/// state.
#[derive(Debug)]
struct PerLayerEmbedding {
    /// `[vocabulary, layers * size]`.
    embedding: Matrix,
    projection: Linear,
    norm: RmsNorm,
    layers: i32,
    size: i32,
    hidden: i32,
    /// The row of `embedding` that each id looks up.
    row_of: Array,
}

impl PerLayerEmbedding {
    fn load(weights: &mut Weights, path: &str, config: &Gemma4Config) -> Result<Self> {
        let text: &TextConfig = &config.text_config;
        let (layers, size) = (
            text.num_hidden_layers as i32,
            text.hidden_size_per_layer_input,
        );
        let shape = [text.vocab_size_per_layer_input, layers * size];
        Ok(Self {
            embedding: Matrix::load(weights, &format!("{path}.embed_tokens_per_layer"), &shape)?,
            projection: Linear::load(
                weights,
                &format!("{path}.per_layer_model_projection"),
                text.hidden_size,
                layers * size,
            )?,
            norm: RmsNorm::load(
                weights,
                &format!("{path}.per_layer_projection_norm"),
                size,
                text.rms_norm_eps,
            )?,
            layers,
            size,
            hidden: text.hidden_size,
            row_of: row_of(config),
        })
    }

    /// `[1, tokens, layers, size]` for `ids` `[1, tokens]` and merged embeddings `h`.
    fn forward(&self, ids: &Array, h: &Array) -> Result<Array> {
        let shape = [1, ids.dim(1), self.layers, self.size];
        let rows = self.embedding.rows(&self.row_of.take_axis(ids, 0)?)?;
        let token = rows
            .multiply(scalar_like((self.size as f32).sqrt(), &rows)?)?
            .reshape(&shape)?;
        let context = self.projection.forward(h)?;
        let context = context
            .multiply(scalar_like(
                f64::from(self.hidden).powf(-0.5) as f32,
                &context,
            )?)?
            .reshape(&shape)?;
        let sum = self.norm.forward(&context)?.add(&token)?;
        Ok(sum.multiply(scalar_like(std::f32::consts::FRAC_1_SQRT_2, &sum)?)?)
    }
}

/// Media places look up the padding's row. transformers fails on an id beyond the table, which a
/// model may still generate, and MLX checks no index: here it takes the last row.
fn row_of(config: &Gemma4Config) -> Array {
    let text = &config.text_config;
    let (rows, ids) = (text.vocab_size_per_layer_input, text.vocab_size.max(0));
    let media = [
        config.image_token_id,
        config.audio_token_id,
        config.video_token_id,
    ];
    let of = |id: i32| {
        let is_media = media.contains(&Some(id as u32));
        if is_media { text.pad_token_id } else { id }
    };
    let rows: Vec<i32> = (0..ids).map(|id| of(id).min(rows - 1)).collect();
    Array::from_slice(&rows, &[ids])
}
