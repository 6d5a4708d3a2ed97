//! The vision tower: patches to soft tokens.

use mlx_rs::ops::{concatenate, mean_axes};
use mlx_rs::{Array, Dtype};

use super::config::{TextConfig, VisionConfig};
use super::patches::Patches;
use crate::checkpoint::weights::Weights;
use crate::nn::{ClippedLinear, Linear, Mask, RmsNorm, attention, gated_gelu, scalar_like};
use crate::{Error, Result};

/// Keys are normalised, so logits need no scale.
const SCALE: f32 = 1.0;

/// The tower and the projection into the text's embedding space.
#[derive(Debug)]
pub(super) struct VisionTower {
    config: VisionConfig,
    input: Linear,
    /// `[position_embedding_size, hidden]` for columns, then for rows.
    positions: [Array; 2],
    layers: Vec<VisionLayer>,
    standardize: Option<Standardize>,
    output_norm: RmsNorm,
    projection: Linear,
    dtype: Dtype,
}

/// `(x - bias) * scale`, of statistics recorded in training; `[hidden]` each.
#[derive(Debug)]
struct Standardize {
    bias: Array,
    scale: Array,
}

impl VisionTower {
    pub(super) fn load(
        weights: &mut Weights,
        config: &VisionConfig,
        text: &TextConfig,
    ) -> Result<Self> {
        let (hidden, size) = (config.hidden_size, config.position_embedding_size);
        let embedder = "vision_tower.patch_embedder";
        let patch = config.patch_size * config.patch_size * 3;
        let input = Linear::load(weights, &format!("{embedder}.input_proj"), patch, hidden)?;
        let table = weights.take(
            &format!("{embedder}.position_embedding_table"),
            &[2, size, hidden],
        )?;
        let halves = table.split_equal(2, 0)?;
        let [columns, rows] = [halves[0].squeeze_axes(&[0])?, halves[1].squeeze_axes(&[0])?];
        Ok(Self {
            config: config.clone(),
            input,
            dtype: table.dtype(),
            positions: [columns, rows],
            layers: (0..config.num_hidden_layers)
                .map(|index| VisionLayer::load(weights, config, index))
                .collect::<Result<_>>()?,
            standardize: if config.standardize {
                Some(Standardize {
                    bias: weights.take("vision_tower.std_bias", &[hidden])?,
                    scale: weights.take("vision_tower.std_scale", &[hidden])?,
                })
            } else {
                None
            },
            output_norm: RmsNorm::without_weight(config.rms_norm_eps),
            projection: Linear::load(
                weights,
                "embed_vision.embedding_projection",
                hidden,
                text.hidden_size,
            )?,
        })
    }

    /// `[frames * soft tokens, text hidden]`, in the working type.
    pub(super) fn forward(&self, patches: &Patches<'_>) -> Result<Array> {
        let (rows, columns) = (patches.rows as i32, patches.columns as i32);
        let pool = self.config.pooling_kernel_size;
        let fits = patches.is_consistent()
            && patches.side == self.config.patch_size as usize
            && rows % pool == 0
            && columns % pool == 0
            && rows.max(columns) <= self.config.position_embedding_size;
        if !fits {
            let fact = format!(
                "a grid of {rows} x {columns} patches of {} pixels does not fit patch_size {}, \
                 pooling_kernel_size {pool} and position_embedding_size {}",
                patches.side, self.config.patch_size, self.config.position_embedding_size
            );
            return Err(Error::Config {
                key: "vision_config",
                fact,
            });
        }

        let mut h = self.embed(patches)?;
        let rotation = Rotation::new(patches, &self.config, self.dtype)?;
        for layer in &self.layers {
            h = layer.forward(&h, &rotation)?;
        }
        let pooled = self.pool(&h, rows, columns)?;
        self.projection.forward(&self.output_norm.forward(&pooled)?)
    }

    /// `[frames, patches, hidden]`: the projected pixels, moved to -1..1, and their places.
    fn embed(&self, patches: &Patches<'_>) -> Result<Array> {
        let pixels = Array::from_slice(patches.pixels, &patches.shape());
        let centred = pixels
            .subtract(Array::from_f32(0.5))?
            .multiply(Array::from_f32(2.0))?;
        let projected = self.input.forward(&centred.as_dtype(self.dtype)?)?;
        let place = |axis: usize| -> Result<Array> {
            let at: Vec<i32> = patches
                .positions
                .iter()
                .map(|position| position[axis])
                .collect();
            let at = Array::from_slice(&at, &[at.len() as i32]);
            Ok(self.positions[axis].take_axis(at, 0)?)
        };
        Ok(projected.add(place(0)?.add(place(1)?)?)?)
    }

    /// The mean of each square of patches, times the root of the width, standardised, in f32
    /// and then in the working type: `[frames, patches, hidden]` to `[frames * soft tokens,
    /// hidden]`.
    fn pool(&self, h: &Array, rows: i32, columns: i32) -> Result<Array> {
        let (pool, hidden) = (self.config.pooling_kernel_size, self.config.hidden_size);
        let squares = h.as_dtype(Dtype::Float32)?.reshape(&[
            -1,
            rows / pool,
            pool,
            columns / pool,
            pool,
            hidden,
        ])?;
        let pooled = mean_axes(&squares, &[2, 4], false)?.reshape(&[-1, hidden])?;
        let mut scaled = pooled.multiply(Array::from_f32((hidden as f32).sqrt()))?;
        if let Some(Standardize { bias, scale }) = &self.standardize {
            let f32 = |array: &Array| array.as_dtype(Dtype::Float32);
            scaled = scaled.subtract(f32(bias)?)?.multiply(f32(scale)?)?;
        }
        Ok(scaled.as_dtype(self.dtype)?)
    }
}

#[derive(Debug)]
struct VisionLayer {
    heads: i32,
    key_value_heads: i32,
    head_size: i32,
    query: ClippedLinear,
    key: ClippedLinear,
    value: ClippedLinear,
    out: ClippedLinear,
    query_norm: RmsNorm,
    key_norm: RmsNorm,
    value_norm: RmsNorm,
    gate: ClippedLinear,
    up: ClippedLinear,
    down: ClippedLinear,
    input_norm: RmsNorm,
    post_attention_norm: RmsNorm,
    pre_mlp_norm: RmsNorm,
    post_mlp_norm: RmsNorm,
}

impl VisionLayer {
    fn load(weights: &mut Weights, config: &VisionConfig, index: usize) -> Result<Self> {
        let path = format!("vision_tower.encoder.layers.{index}");
        let (hidden, width, eps) = (
            config.hidden_size,
            config.intermediate_size,
            config.rms_norm_eps,
        );
        let head_size = config.head_dim;
        let (heads, key_value_heads) = (config.num_attention_heads, config.num_key_value_heads);
        let queries = heads * head_size;
        let keys = key_value_heads * head_size;
        let mut linear = |name: &str, input, out| {
            let clipped = config.use_clipped_linears;
            ClippedLinear::load(weights, &format!("{path}.{name}"), (input, out), clipped)
        };
        let [query, key, value, out, gate, up, down] = [
            linear("self_attn.q_proj", hidden, queries)?,
            linear("self_attn.k_proj", hidden, keys)?,
            linear("self_attn.v_proj", hidden, keys)?,
            linear("self_attn.o_proj", queries, hidden)?,
            linear("mlp.gate_proj", hidden, width)?,
            linear("mlp.up_proj", hidden, width)?,
            linear("mlp.down_proj", width, hidden)?,
        ];
        let mut norm = |name, size| RmsNorm::load(weights, &format!("{path}.{name}"), size, eps);
        Ok(Self {
            heads,
            key_value_heads,
            head_size,
            query,
            key,
            value,
            out,
            query_norm: norm("self_attn.q_norm", head_size)?,
            key_norm: norm("self_attn.k_norm", head_size)?,
            value_norm: RmsNorm::without_weight(eps),
            gate,
            up,
            down,
            input_norm: norm("input_layernorm", hidden)?,
            post_attention_norm: norm("post_attention_layernorm", hidden)?,
            pre_mlp_norm: norm("pre_feedforward_layernorm", hidden)?,
            post_mlp_norm: norm("post_feedforward_layernorm", hidden)?,
        })
    }

    /// `[frames, patches, hidden]`; every patch sees every other of its frame.
    fn forward(&self, h: &Array, rotation: &Rotation) -> Result<Array> {
        let attended = self.attend(&self.input_norm.forward(h)?, rotation)?;
        let h = h.add(self.post_attention_norm.forward(&attended)?)?;
        let x = self.pre_mlp_norm.forward(&h)?;
        let gated = gated_gelu(&self.gate.forward(&x)?, &self.up.forward(&x)?)?;
        let mlp = self.down.forward(&gated)?;
        Ok(h.add(self.post_mlp_norm.forward(&mlp)?)?)
    }

    fn attend(&self, x: &Array, rotation: &Rotation) -> Result<Array> {
        let (frames, patches) = (x.dim(0), x.dim(1));
        // Norm and rotation act on [frames, patches, heads, D]; attention wants heads outside.
        let split = |x: Array, heads| x.reshape(&[frames, patches, heads, self.head_size]);
        let outside = |x: Array| x.transpose_axes(&[0, 2, 1, 3]);
        let queries = split(self.query.forward(x)?, self.heads)?;
        let queries = rotation.apply(&self.query_norm.forward(&queries)?)?;
        let keys = split(self.key.forward(x)?, self.key_value_heads)?;
        let keys = rotation.apply(&self.key_norm.forward(&keys)?)?;
        let values = self
            .value_norm
            .forward(&split(self.value.forward(x)?, self.key_value_heads)?)?;
        let seen = attention(
            &outside(queries)?,
            &outside(keys)?,
            &outside(values)?,
            SCALE,
            &Mask::None,
        )?;
        let merged = outside(seen)?.reshape(&[frames, patches, self.heads * self.head_size])?;
        self.out.forward(&merged)
    }
}

/// The rotary embedding in two dimensions: the first half of a head turns with the
/// column, the second with the row, each in the rotate-half pairing within itself.
struct Rotation {
    /// `[patches, 1, D]`.
    cos: Array,
    sin: Array,
}

impl Rotation {
    fn new(patches: &Patches<'_>, config: &VisionConfig, dtype: Dtype) -> Result<Self> {
        let (size, theta) = (
            config.head_dim,
            f64::from(config.rope_parameters.rope_theta),
        );
        let half = size / 2;
        let frequencies: Vec<f64> = (0..half / 2)
            .map(|j| theta.powf(-2.0 * f64::from(j) / f64::from(half)))
            .collect();
        let angles: Vec<f64> = patches
            .positions
            .iter()
            .flat_map(|position| position.iter().map(|&at| f64::from(at)))
            // Both members of a pair have the same angle.
            .flat_map(|at| frequencies.iter().chain(&frequencies).map(move |f| at * f))
            .collect();
        let table = |function: fn(f64) -> f64| -> Result<Array> {
            let values: Vec<f32> = angles.iter().map(|&angle| function(angle) as f32).collect();
            let table = Array::from_slice(&values, &[patches.count() as i32, 1, size]);
            Ok(table.as_dtype(dtype)?)
        };
        Ok(Self {
            cos: table(f64::cos)?,
            sin: table(f64::sin)?,
        })
    }

    /// `x` is `[frames, patches, heads, D]`.
    fn apply(&self, x: &Array) -> Result<Array> {
        // Quarters: the pair of the columns, the pair of the rows.
        let quarters = x.split_equal(4, -1)?;
        let minus =
            |array: &Array| -> Result<Array> { Ok(array.multiply(scalar_like(-1.0, array)?)?) };
        let turned = concatenate(
            &[
                &minus(&quarters[1])?,
                &quarters[0],
                &minus(&quarters[3])?,
                &quarters[2],
            ],
            -1,
        )?;
        Ok(x.multiply(&self.cos)?.add(turned.multiply(&self.sin)?)?)
    }
}
