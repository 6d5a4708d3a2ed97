//! Attention to the last few positions, in blocks, with relative positions.

use std::f64::consts::{E, LN_2};

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{logaddexp, pad, select, softmax_axis, tanh};
use mlx_rs::{Array, Dtype};

use super::super::config::AudioConfig;
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{ClippedLinear, Linear, scalar_like};

/// One layer's attention.
#[derive(Debug)]
pub(super) struct AudioAttention {
    query: ClippedLinear,
    key: ClippedLinear,
    value: ClippedLinear,
    out: ClippedLinear,
    relative_key: Linear,
    /// `[D]`; its softplus scales the queries.
    per_dim_scale: Array,
    blocks: Blocks,
    heads: i32,
    hidden: i32,
    logit_cap: f32,
    invalid_logit: f32,
}

/// How positions are cut into blocks of queries, each with the keys around it.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    /// Queries of a block.
    size: i32,
    /// Keys before the block.
    past: i32,
    /// Keys after it.
    future: i32,
}

impl Blocks {
    /// Keys that a block sees.
    fn context(self) -> i32 {
        self.size + self.past + self.future
    }
}

impl AudioAttention {
    pub(super) fn load(weights: &mut Weights, path: &str, config: &AudioConfig) -> Result<Self> {
        let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
        let mut linear = |name| {
            ClippedLinear::load(
                weights,
                &format!("{path}.{name}"),
                (hidden, hidden),
                config.use_clipped_linears,
            )
        };
        let [query, key, value, out] = [
            linear("q_proj")?,
            linear("k_proj")?,
            linear("v_proj")?,
            linear("post")?,
        ];
        let per_dim_scale = weights.take(&format!("{path}.per_dim_scale"), &[hidden / heads])?;
        Ok(Self {
            query,
            key,
            value,
            out,
            relative_key: Linear::load(
                weights,
                &format!("{path}.relative_k_proj"),
                hidden,
                hidden,
            )?,
            per_dim_scale,
            blocks: Blocks {
                size: config.attention_chunk_size,
                past: config.attention_context_left - 1,
                future: config.attention_context_right,
            },
            heads,
            hidden,
            logit_cap: config.attention_logit_cap,
            invalid_logit: config.attention_invalid_logits_value,
        })
    }

    /// `[1, positions, hidden]`. Logits, weights and sums are f32.
    pub(super) fn forward(&self, x: &Array) -> Result<Array> {
        let Blocks { size, past, future } = self.blocks;
        let (positions, head_size) = (x.dim(1), self.hidden / self.heads);
        let count = (positions + size - 1) / size;
        let context = self.blocks.context();

        // transformers' constants: 1 / (sqrt(D) ln 2), and ln(1 + e) / ln 2.
        let query_scale = (f64::from(head_size).powf(-0.5) / LN_2) as f32;
        let key_scale = ((1.0 + E).ln() / LN_2) as f32;
        let dimension_scale =
            logaddexp(&self.per_dim_scale, scalar_like(0.0, &self.per_dim_scale)?)?;
        let wide = |rows: Array| -> Result<Array> {
            let shape = [positions, self.heads, head_size];
            Ok(rows.as_dtype(Dtype::Float32)?.reshape(&shape)?)
        };
        let queries = wide(self.query.forward(x)?)?
            .multiply(Array::from_f32(query_scale))?
            .multiply(dimension_scale.as_dtype(Dtype::Float32)?)?;
        let keys = wide(self.key.forward(x)?)?.multiply(Array::from_f32(key_scale))?;
        let values = wide(self.value.forward(x)?)?;

        // [heads, blocks, size, D] and [heads, blocks, context, D].
        let queries = pad(
            &queries,
            &[(0, count * size - positions), (0, 0), (0, 0)],
            None,
            None,
        )?
        .reshape(&[count, size, self.heads, head_size])?
        .transpose_axes(&[2, 0, 1, 3])?;
        let around = |rows: &Array| -> Result<Array> {
            let after = count * size - positions + future;
            let padded = pad(rows, &[(past, after), (0, 0), (0, 0)], None, None)?;
            let windows: Vec<i32> = (0..count)
                .flat_map(|block| (0..context).map(move |at| block * size + at))
                .collect();
            let windows = Array::from_slice(&windows, &[count, context]);
            Ok(padded
                .take_axis(windows, 0)?
                .transpose_axes(&[2, 0, 1, 3])?)
        };
        let (keys, values) = (around(&keys)?, around(&values)?);

        let by_content = queries.matmul(keys.swap_axes(-1, -2)?)?;
        let logits = by_content.add(self.by_distance(&queries, x.dtype())?)?;
        let cap = Array::from_f32(self.logit_cap);
        let capped = tanh(logits.divide(&cap)?)?.multiply(&cap)?;
        let masked = select(
            self.visible(positions),
            capped,
            Array::from_f32(self.invalid_logit),
        )?;
        let seen = softmax_axis(&masked, -1, true)?.matmul(&values)?;
        let merged = seen
            .transpose_axes(&[1, 2, 0, 3])?
            .reshape(&[1, count * size, self.hidden])?
            .try_index((.., ..positions, ..))?;
        self.out.forward(&merged.as_dtype(x.dtype())?)
    }

    /// What the distance between query and key adds to their logit: `[heads, blocks, size,
    /// context]`. The shift is that of Dai et al. 2019, appendix B.
    fn by_distance(&self, queries: &Array, dtype: Dtype) -> Result<Array> {
        let (count, size, context) = (queries.dim(1), self.blocks.size, self.blocks.context());
        let distances = context / 2 + 1;
        let relative = self
            .relative_key
            .forward(&self.sinusoids(distances).as_dtype(dtype)?)?
            .as_dtype(Dtype::Float32)?
            .reshape(&[distances, self.heads, -1])?
            .transpose_axes(&[1, 2, 0])?
            .expand_dims(1)?;
        let logits = queries.matmul(&relative)?;
        let widened = pad(
            &logits,
            &[(0, 0), (0, 0), (0, 0), (0, context + 1 - distances)],
            None,
            None,
        )?;
        let shifted = widened
            .reshape(&[self.heads, count, size * (context + 1)])?
            .try_index((.., .., ..size * context))?;
        Ok(shifted.reshape(&[self.heads, count, size, context])?)
    }

    /// `[count, hidden]` for the distances `count - 1` down to 0: sines, then cosines, of
    /// wavelengths from 1 to 10,000 in geometric steps.
    fn sinusoids(&self, count: i32) -> Array {
        let half = self.hidden / 2;
        let step = 10_000f32.ln() / (half - 1).max(1) as f32;
        let frequencies: Vec<f32> = (0..half).map(|i| (i as f32 * -step).exp()).collect();
        let values: Vec<f32> = (0..count)
            .rev()
            .flat_map(|distance| {
                let angles = frequencies.iter().map(move |f| distance as f32 * f);
                angles.clone().map(f32::sin).chain(angles.map(f32::cos))
            })
            .collect();
        Array::from_slice(&values, &[count, self.hidden])
    }

    /// `[blocks, size, context]`: whether a query sees a key, which is one of the `positions`
    /// and nearer than `past` before it, or than `future` after it (transformers'
    /// `sliding_window_mask_function`).
    fn visible(&self, positions: i32) -> Array {
        let Blocks { size, past, future } = self.blocks;
        let count = (positions + size - 1) / size;
        let context = self.blocks.context();
        let visible: Vec<bool> = (0..count * size)
            .flat_map(|query| {
                let first = query / size * size - past;
                (first..first + context).map(move |key| {
                    let distance = query - key;
                    let near = if distance >= 0 {
                        distance < past
                    } else {
                        -distance < future
                    };
                    near && (0..positions).contains(&key)
                })
            })
            .collect();
        Array::from_slice(&visible, &[count, size, context])
    }
}
