//! Attention of the text decoder.

use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::sigmoid;

use super::config::{Family, QwenConfig};
use super::names::{self, NormStorage};
use crate::Result;
use crate::cache::LayerCache;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, Mask, RmsNorm, Rotation, attend};

/// One layer's attention. Queries and keys are normalised a head at a time before they turn.
#[derive(Debug)]
pub(super) struct Attention {
    heads: i32,
    key_value_heads: i32,
    head_size: i32,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    query_norm: RmsNorm,
    key_norm: RmsNorm,
    /// Whether each head's output is gated by the second half of its query's projection
    /// (Qwen3.5).
    is_gated: bool,
}

impl Attention {
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        config: &QwenConfig,
        storage: NormStorage,
    ) -> Result<Self> {
        let text = &config.text;
        let (hidden, head_size, eps) = (text.hidden_size, text.head_dim, text.rms_norm_eps);
        let (heads, key_value_heads) = (text.num_attention_heads, text.num_key_value_heads);
        let is_gated = config.family == Family::Qwen3_5;
        let queries = heads * head_size * if is_gated { 2 } else { 1 };
        let keys = key_value_heads * head_size;
        let mut linear =
            |name: &str, input, out| Linear::load(weights, &format!("{path}.{name}"), input, out);
        let [query, key, value, out] = [
            linear("q_proj", hidden, queries)?,
            linear("k_proj", hidden, keys)?,
            linear("v_proj", hidden, keys)?,
            linear("o_proj", heads * head_size, hidden)?,
        ];
        let mut norm =
            |name: &str| names::norm(weights, &format!("{path}.{name}"), head_size, eps, storage);
        Ok(Self {
            heads,
            key_value_heads,
            head_size,
            query,
            key,
            value,
            out,
            query_norm: norm("q_norm")?,
            key_norm: norm("k_norm")?,
            is_gated,
        })
    }

    /// `[1, tokens, hidden]`.
    pub(super) fn forward(
        &self,
        x: &Array,
        cache: &mut LayerCache,
        mask: &Mask,
        rotation: &Rotation<'_>,
    ) -> Result<Array> {
        let tokens = x.dim(1);
        let outside = |x: Array| x.transpose_axes(&[0, 2, 1, 3]);
        let split = |x: Array, heads| x.reshape(&[1, tokens, heads, -1]);
        let mut queries = split(self.query.forward(x)?, self.heads)?;
        let mut gate = None;
        if self.is_gated {
            let size = self.head_size;
            gate = Some(queries.try_index((.., .., .., size..))?);
            queries = queries.try_index((.., .., .., 0..size))?;
        }
        let queries = outside(self.query_norm.forward(&queries)?)?;
        let keys = split(self.key.forward(x)?, self.key_value_heads)?;
        let keys = outside(self.key_norm.forward(&keys)?)?;
        let values = outside(split(self.value.forward(x)?, self.key_value_heads)?)?;
        let (queries, keys) = (rotation.apply(&queries)?, rotation.apply(&keys)?);
        let kept = cache.update(&keys, &values)?;
        let scale = (self.head_size as f32).powf(-0.5);
        let seen = attend(&queries, &kept, scale, mask)?;
        let mut merged = outside(seen)?.reshape(&[1, tokens, -1])?;
        if let Some(gate) = gate {
            merged = merged.multiply(sigmoid(gate.reshape(&[1, tokens, -1])?)?)?;
        }
        self.out.forward(&merged)
    }
}
