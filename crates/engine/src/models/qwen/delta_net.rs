//! Qwen3.5's linear layers: gated delta networks.

use mlx_rs::fast::rms_norm;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, logaddexp, sigmoid, zeros_dtype};
use mlx_rs::{Array, Dtype};

use super::config::{DeltaSizes, QwenConfig};
use crate::Result;
use crate::cache::{State, StateCache};
use crate::checkpoint::weights::Weights;
use crate::nn::{DeltaInputs, Linear, gated_delta, silu};

/// What is added to the squared length of queries and keys (transformers 5.24, `l2norm`).
const LENGTH_EPS: f32 = 1e-6;

/// One layer.
#[derive(Debug)]
pub(super) struct DeltaNet {
    sizes: DeltaSizes,
    /// Queries, keys and values.
    project: Linear,
    gate: Linear,
    beta: Linear,
    decay: Linear,
    out: Linear,
    /// `[kernel, channels]`, f32: the weight of each of the last inputs, oldest first.
    kernel: Array,
    /// `[value heads]`, f32: `-exp(A_log)`.
    rate: Array,
    /// `[value heads]`, f32.
    decay_bias: Array,
    /// `[value size]`, f32.
    norm: Array,
    eps: f32,
}

impl DeltaNet {
    pub(super) fn load(weights: &mut Weights, path: &str, config: &QwenConfig) -> Result<Self> {
        let sizes = config.text.delta()?;
        let (hidden, heads) = (config.text.hidden_size, sizes.value_heads);
        let mut linear =
            |name: &str, input, out| Linear::load(weights, &format!("{path}.{name}"), input, out);
        let [project, gate, beta, decay, out] = [
            linear("in_proj_qkv", hidden, sizes.channels())?,
            linear("in_proj_z", hidden, sizes.values())?,
            linear("in_proj_b", hidden, heads)?,
            linear("in_proj_a", hidden, heads)?,
            linear("out_proj", sizes.values(), hidden)?,
        ];
        let mut vector = |name: &str, size| weights.take_f32(&format!("{path}.{name}"), &[size]);
        let rate = vector("A_log", heads)?.exp()?.negative()?;
        Ok(Self {
            sizes,
            project,
            gate,
            beta,
            decay,
            out,
            rate,
            decay_bias: vector("dt_bias", heads)?,
            norm: vector("norm.weight", sizes.value_size)?,
            kernel: kernel(weights, &format!("{path}.conv1d.weight"), sizes)?,
            eps: config.text.rms_norm_eps,
        })
    }

    /// `[1, tokens, hidden]`.
    pub(super) fn forward(&self, x: &Array, cache: &mut StateCache) -> Result<Array> {
        let tokens = x.dim(1);
        let DeltaSizes {
            key_heads,
            key_size,
            value_heads,
            value_size,
            ..
        } = self.sizes;
        let (mixed, inputs) = self.convolve(&self.project.forward(x)?, cache.get())?;
        let parts = mixed.split_at_indices(&[self.sizes.keys(), 2 * self.sizes.keys()], -1)?;
        let heads = |x: &Array, heads: i32, size: i32| x.reshape(&[tokens, heads, size]);
        let wide = |x: Array| -> Result<Array> {
            Ok(x.as_dtype(Dtype::Float32)?
                .reshape(&[tokens, value_heads])?)
        };
        // The mean of squares, times the size, is the squared length.
        let unit = |x: &Array| rms_norm(x, None, LENGTH_EPS / key_size as f32);
        let scale = f64::from(key_size).powf(-0.5);
        let queries = unit(&heads(&parts[0], key_heads, key_size)?)?;
        let keys = unit(&heads(&parts[1], key_heads, key_size)?)?;
        let steepness = wide(self.decay.forward(x)?)?.add(&self.decay_bias)?;
        let delta = DeltaInputs {
            queries: queries.multiply(Array::from_f32((scale * scale) as f32))?,
            keys: keys.multiply(Array::from_f32(scale as f32))?,
            values: heads(&parts[2], value_heads, value_size)?,
            // softplus
            log_decay: logaddexp(&steepness, Array::from_f32(0.0))?.multiply(&self.rate)?,
            beta: sigmoid(wide(self.beta.forward(x)?)?)?,
        };
        let (y, memory) = gated_delta(&delta, cache.get().map(|state| &state.memory))?;
        cache.set(State { inputs, memory });

        let gate = self.gate.forward(x)?.as_dtype(Dtype::Float32)?;
        let gate = silu(&gate)?.reshape(&[tokens, value_heads, value_size])?;
        let gated = gate.multiply(rms_norm(&y, Some(&self.norm), self.eps)?)?;
        let gated = gated.reshape(&[1, tokens, -1])?.as_dtype(x.dtype())?;
        self.out.forward(&gated)
    }

    /// Each channel's sum over its last inputs, weighted, and `silu`: `[1, tokens, channels]`
    /// in f32; and the inputs that the next token will want.
    fn convolve(&self, x: &Array, state: Option<&State>) -> Result<(Array, Array)> {
        let (tokens, older) = (x.dim(1), self.sizes.kernel - 1);
        let before = match state {
            Some(state) => state.inputs.clone(),
            None => zeros_dtype(&[1, older, self.sizes.channels()], x.dtype())?,
        };
        let all = concatenate(&[&before, x], 1)?;
        // A copy: a view would keep the whole chunk in memory.
        let inputs = all.try_index((.., tokens.., ..))?.contiguous()?;
        let all = all.as_dtype(Dtype::Float32)?;
        let mut sum: Option<Array> = None;
        for row in 0..self.sizes.kernel {
            let shifted = all.try_index((.., row..row + tokens, ..))?;
            let weighted = shifted.multiply(self.kernel.try_index(row)?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(weighted)?,
                None => weighted,
            });
        }
        Ok((silu(&sum.unwrap_or(all))?, inputs))
    }
}

/// Takes a depthwise kernel, `[channels, 1, kernel]` in Hugging Face's files and `[channels,
/// kernel, 1]` in MLX's, as `[kernel, channels]`.
fn kernel(weights: &mut Weights, name: &str, sizes: DeltaSizes) -> Result<Array> {
    let (channels, rows) = (sizes.channels(), sizes.kernel);
    let mlx = [channels, rows, 1];
    let shape = match weights.stored(name) {
        Some((_, shape)) if *shape == mlx => mlx,
        _ => [channels, 1, rows],
    };
    let taken = weights.take_f32(name, &shape)?;
    Ok(taken
        .reshape(&[channels, rows])?
        .transpose()?
        .contiguous()?)
}
