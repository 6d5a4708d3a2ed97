//! Attention of the text decoder.

use mlx_rs::Array;

use super::config::{LayerKind, RopeConfig, RopeType, TextConfig};
use super::load_norm;
use crate::Result;
use crate::cache::{KeysValues, LayerCache};
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, Mask, RmsNorm, Rope, Rotation, attend};

/// One layer's attention.
#[derive(Debug)]
pub(super) struct Attention {
    heads: i32,
    head_size: i32,
    window: Option<i32>,
    query: Linear,
    query_norm: RmsNorm,
    scale: f32,
    /// None where an earlier layer's keys and values are read.
    own: Option<KeyValueProjection>,
    out: Linear,
}

#[derive(Debug)]
struct KeyValueProjection {
    heads: i32,
    key: Linear,
    /// None where values are the projected keys.
    value: Option<Linear>,
    key_norm: RmsNorm,
    value_norm: Option<RmsNorm>,
}

impl Attention {
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        config: &TextConfig,
        layer: usize,
    ) -> Result<Self> {
        let kind = config.layer_types[layer];
        let head_size = config.head_size(kind);
        let (heads, hidden) = (config.num_attention_heads, config.hidden_size);
        let own = if config.key_value_layer(layer) == layer {
            let heads = config.key_value_heads(kind);
            let keys_are_values = kind == LayerKind::Full && config.attention_k_eq_v;
            let mut linear = |name| {
                Linear::load(
                    weights,
                    &format!("{path}.{name}"),
                    hidden,
                    heads * head_size,
                )
            };
            Some(KeyValueProjection {
                heads,
                key: linear("k_proj")?,
                value: if keys_are_values {
                    None
                } else {
                    Some(linear("v_proj")?)
                },
                key_norm: load_norm(weights, &format!("{path}.k_norm"), head_size, config)?,
                value_norm: config
                    .dialect
                    .has_value_norm
                    .then(|| RmsNorm::without_weight(config.rms_norm_eps)),
            })
        } else {
            None
        };
        let window = match kind {
            LayerKind::Sliding => Some(config.sliding_window),
            LayerKind::Full => None,
        };
        Ok(Self {
            heads,
            head_size,
            window,
            query: Linear::load(
                weights,
                &format!("{path}.q_proj"),
                hidden,
                heads * head_size,
            )?,
            query_norm: load_norm(weights, &format!("{path}.q_norm"), head_size, config)?,
            scale: config.dialect.attention_scale,
            own,
            out: Linear::load(
                weights,
                &format!("{path}.o_proj"),
                heads * head_size,
                hidden,
            )?,
        })
    }

    /// A layer with keys and values of its own: `x` is `[1, tokens, hidden]`. Gives the
    /// output, and what later layers may share.
    pub(super) fn forward(
        &self,
        x: &Array,
        cache: &mut LayerCache,
        mask: &Mask,
        rotation: &Rotation<'_>,
    ) -> Result<(Array, Option<KeysValues>)> {
        let Some(own) = &self.own else {
            return Ok((x.clone(), None));
        };
        let queries = self.queries(x, rotation)?;
        let projected = own.key.forward(x)?;
        let keys = split_heads(&projected, own.heads, self.head_size)?;
        let values = match &own.value {
            Some(value) => split_heads(&value.forward(x)?, own.heads, self.head_size)?,
            None => keys.clone(),
        };
        let keys = rotation.apply(&own.key_norm.forward(&keys)?)?;
        let values = match &own.value_norm {
            Some(norm) => norm.forward(&values)?,
            None => values,
        };
        let kept = cache.update(&keys, &values)?;
        let seen = attend(&queries, &kept, self.scale, mask)?;
        Ok((self.merge(&seen)?, Some(kept)))
    }

    /// A layer that reads `shared` keys and values, whose last row belongs to the last
    /// token of `x`. Only one token is fed.
    pub(super) fn forward_shared(
        &self,
        x: &Array,
        rotation: &Rotation<'_>,
        kept: &KeysValues,
    ) -> Result<Array> {
        let queries = self.queries(x, rotation)?;
        let hidden = |window: i32| (kept.count() - window).max(0);
        let visible = kept.rows_from(self.window.map_or(0, hidden))?;
        self.merge(&attend(&queries, &visible, self.scale, &Mask::None)?)
    }

    fn queries(&self, x: &Array, rotation: &Rotation<'_>) -> Result<Array> {
        let queries = split_heads(&self.query.forward(x)?, self.heads, self.head_size)?;
        rotation.apply(&self.query_norm.forward(&queries)?)
    }

    fn merge(&self, heads: &Array) -> Result<Array> {
        let tokens = heads.dim(2);
        let merged = heads.transpose_axes(&[0, 2, 1, 3])?.reshape(&[
            1,
            tokens,
            self.heads * self.head_size,
        ])?;
        self.out.forward(&merged)
    }
}

/// `[1, tokens, heads * D]` to `[1, heads, tokens, D]`.
fn split_heads(x: &Array, heads: i32, head_size: i32) -> Result<Array> {
    let tokens = x.dim(1);
    Ok(x.reshape(&[1, tokens, heads, head_size])?
        .transpose_axes(&[0, 2, 1, 3])?)
}

/// The rotation of a kind's layers.
pub(super) fn rope(config: &TextConfig, kind: LayerKind) -> Rope {
    let parameters: &RopeConfig = match kind {
        LayerKind::Sliding => &config.rope_parameters.sliding_attention,
        LayerKind::Full => &config.rope_parameters.full_attention,
    };
    let head_size = config.head_size(kind);
    match parameters.rope_type {
        RopeType::Default => Rope::new(head_size, parameters.rope_theta),
        RopeType::Linear | RopeType::Proportional => Rope::proportional(
            head_size,
            parameters.rope_theta,
            parameters.partial_rotary_factor.unwrap_or(1.0),
            parameters.factor.unwrap_or(1.0),
        ),
    }
}
