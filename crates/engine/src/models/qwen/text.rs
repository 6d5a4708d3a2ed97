//! The text decoder: embeddings in, logits out.

use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype};

use super::attention::Attention;
use super::config::{LayerKind, QwenConfig};
use super::delta_net::DeltaNet;
use super::mlp::FeedForward;
use super::names::{self, NormStorage};
use crate::Result;
use crate::cache::Cache;
use crate::checkpoint::weights::Weights;
use crate::models::{Chunk, Placed};
use crate::nn::{Mask, Matrix, Mrope, RmsNorm};

/// The decoder.
#[derive(Debug)]
pub(super) struct TextModel {
    /// `[vocabulary, hidden]`.
    embedding: Matrix,
    /// `[vocabulary, hidden]`, where it is not the embedding.
    head: Option<Matrix>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    rope: Mrope,
    hidden: i32,
}

/// What mixes the tokens, and what follows, each after a norm.
#[derive(Debug)]
struct Layer {
    mixer: Mixer,
    feed_forward: FeedForward,
    input_norm: RmsNorm,
    second_norm: RmsNorm,
}

/// With the index of its entry in the cache, among those of its kind.
#[derive(Debug)]
enum Mixer {
    Attention(Attention, usize),
    Delta(DeltaNet, usize),
}

impl TextModel {
    pub(super) fn load(weights: &mut Weights, config: &QwenConfig) -> Result<Self> {
        let text = &config.text;
        let (hidden, eps) = (text.hidden_size, text.rms_norm_eps);
        let storage = NormStorage::of(weights, config);
        let table = [text.vocab_size, hidden];
        let rope = text.rope()?;
        let (mut attentions, mut deltas) = (0, 0);
        let mut layers = Vec::with_capacity(text.num_hidden_layers);
        for index in 0..text.num_hidden_layers {
            let path = format!("language_model.layers.{index}");
            let mixer = match text.kind(config.family, index) {
                LayerKind::Full => {
                    let path = format!("{path}.self_attn");
                    let attention = Attention::load(weights, &path, config, storage)?;
                    attentions += 1;
                    Mixer::Attention(attention, attentions - 1)
                }
                LayerKind::Linear => {
                    let path = format!("{path}.linear_attn");
                    deltas += 1;
                    Mixer::Delta(DeltaNet::load(weights, &path, config)?, deltas - 1)
                }
            };
            let mut norm =
                |name: &str| names::norm(weights, &format!("{path}.{name}"), hidden, eps, storage);
            layers.push(Layer {
                mixer,
                input_norm: norm("input_layernorm")?,
                second_norm: norm("post_attention_layernorm")?,
                feed_forward: FeedForward::load(weights, &format!("{path}.mlp"), config, index)?,
            });
        }
        Ok(Self {
            embedding: Matrix::load(weights, "language_model.embed_tokens", &table)?,
            head: if config.is_tied {
                None
            } else {
                Some(Matrix::load(weights, "lm_head", &table)?)
            },
            layers,
            norm: names::norm(weights, "language_model.norm", hidden, eps, storage)?,
            rope: Mrope::new(rope.dimensions, rope.base, rope.sections)?,
            hidden,
        })
    }

    /// Layers with keys and values, and layers with a state.
    pub(super) fn cache(&self) -> Cache {
        let is_delta = |layer: &&Layer| matches!(layer.mixer, Mixer::Delta(..));
        let deltas = self.layers.iter().filter(is_delta).count();
        Cache::new((deltas..self.layers.len()).map(|_| None)).with_states(deltas)
    }

    /// See [`LanguageModel::forward`](crate::models::LanguageModel::forward).
    pub(super) fn forward(
        &self,
        chunk: &Chunk<'_>,
        cache: &mut Cache,
        logits: bool,
    ) -> Result<Option<Array>> {
        let tokens = chunk.ids.dim(1);
        let (embedded, extra) = self.split_features(chunk.features)?;
        let mut h = insert(&self.embedding.rows(chunk.ids)?, &embedded)?;
        let mask = Mask::new(tokens, cache.layer(0).keys_after(tokens), None);
        let rotation = self.rope.at(chunk.positions, tokens, h.dtype())?;
        for (index, layer) in self.layers.iter().enumerate() {
            let x = layer.input_norm.forward(&h)?;
            let mixed = match &layer.mixer {
                Mixer::Attention(attention, entry) => {
                    attention.forward(&x, cache.layer(*entry), &mask, &rotation)?
                }
                Mixer::Delta(delta, entry) => delta.forward(&x, cache.state(*entry))?,
            };
            h = h.add(mixed)?;
            let x = layer.second_norm.forward(&h)?;
            h = h.add(layer.feed_forward.forward(&x)?)?;
            if let Some(extra) = extra.get(index) {
                h = add_to(&h, extra)?;
            }
        }
        if !logits {
            return Ok(None);
        }
        let last = self.norm.forward(&h.try_index((.., -1.., ..))?)?;
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        let logits = head.multiply(&last)?;
        Ok(Some(logits.reshape(&[-1])?.as_dtype(Dtype::Float32)?))
    }

    /// What replaces embeddings, and for each of the first layers what is added to its output.
    fn split_features(&self, features: &[Placed]) -> Result<(Vec<Placed>, Vec<Vec<Placed>>)> {
        let width = features
            .first()
            .map_or(self.hidden, |placed| placed.rows.dim(1));
        let part = |index: i32| -> Result<Vec<Placed>> {
            let columns = index * self.hidden..(index + 1) * self.hidden;
            let cut = |placed: &Placed| {
                Ok(Placed {
                    start: placed.start,
                    rows: placed.rows.try_index((.., columns.clone()))?,
                })
            };
            features.iter().map(cut).collect()
        };
        let extra = 1..width / self.hidden;
        Ok((part(0)?, extra.map(part).collect::<Result<_>>()?))
    }
}

/// `text` `[1, tokens, hidden]` with rows replaced.
fn insert(text: &Array, features: &[Placed]) -> Result<Array> {
    spliced(text, features, |_, rows| Ok(rows.as_dtype(text.dtype())?))
}

/// `h` `[1, tokens, hidden]` with rows added.
fn add_to(h: &Array, features: &[Placed]) -> Result<Array> {
    spliced(h, features, |old, rows| {
        Ok(old.add(rows.as_dtype(h.dtype())?)?)
    })
}

/// `h` `[1, tokens, hidden]`, where rows have features `with` what it makes of both.
fn spliced(
    h: &Array,
    features: &[Placed],
    with: impl Fn(&Array, &Array) -> Result<Array>,
) -> Result<Array> {
    if features.is_empty() {
        return Ok(h.clone());
    }
    let mut parts = Vec::with_capacity(2 * features.len() + 1);
    let mut next = 0;
    for placed in features {
        if placed.start > next {
            parts.push(h.try_index((.., next..placed.start, ..))?);
        }
        next = placed.start + placed.rows.dim(0);
        let old = h.try_index((.., placed.start..next, ..))?;
        parts.push(with(&old, &placed.rows.expand_dims(0)?)?);
    }
    if next < h.dim(1) {
        parts.push(h.try_index((.., next.., ..))?);
    }
    Ok(concatenate(&parts, 1)?)
}
