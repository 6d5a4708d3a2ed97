//! Qwen3.5's linear layers: gated delta networks.

use std::cell::RefCell;

use mlx_rs::fast::rms_norm;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, logaddexp, sigmoid, zeros_dtype};
use mlx_rs::{Array, Dtype};

use super::config::{DeltaSizes, QwenConfig};
use crate::Result;
use crate::cache::{State, StateCache};
use crate::checkpoint::weights::Weights;
use crate::nn::{DeltaInputs, Linear, SeveralSlot, fuse_several, gated_delta, silu};

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
    /// `[key size]`, f32: what makes unit vectors of normalised queries, scaled by
    /// `size^(-1/2)`, and of keys. As weights of the norm they are no kernels of their own.
    query_scale: Array,
    key_scale: Array,
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
        let scale = f64::from(sizes.key_size).powf(-0.5);
        let everywhere =
            |scale: f64| mlx_rs::ops::full::<f32>(&[sizes.key_size], Array::from_f32(scale as f32));
        Ok(Self {
            sizes,
            project,
            gate,
            beta,
            decay,
            out,
            rate,
            decay_bias: vector("dt_bias", heads)?,
            query_scale: everywhere(scale * scale)?,
            key_scale: everywhere(scale)?,
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
        let unit = |x: &Array, scale| rms_norm(x, Some(scale), LENGTH_EPS / key_size as f32);
        let queries = unit(&heads(&parts[0], key_heads, key_size)?, &self.query_scale)?;
        let keys = unit(&heads(&parts[1], key_heads, key_size)?, &self.key_scale)?;
        let slopes = [
            wide(self.decay.forward(x)?)?,
            self.decay_bias.clone(),
            self.rate.clone(),
            wide(self.beta.forward(x)?)?,
        ];
        thread_local!(static SLOPES: SeveralSlot = const { RefCell::new(None) });
        let [log_decay, beta] = SLOPES.with(|slot| fuse_several(slot, decay_and_beta, &slopes))?;
        let delta = DeltaInputs {
            queries,
            keys,
            values: heads(&parts[2], value_heads, value_size)?,
            log_decay,
            beta,
        };
        let (y, memory) = gated_delta(&delta, cache.get().map(|state| &state.memory))?;
        cache.set(State { inputs, memory });

        let gate = heads(&self.gate.forward(x)?, value_heads, value_size)?;
        let normed = rms_norm(&y, Some(&self.norm), self.eps)?;
        thread_local!(static GATED: SeveralSlot = const { RefCell::new(None) });
        let [gated] = GATED.with(|slot| fuse_several(slot, gated, &[gate, normed]))?;
        self.out.forward(&gated.reshape(&[1, tokens, -1])?)
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
        thread_local!(static SUMMED: SeveralSlot = const { RefCell::new(None) });
        let parts = [all, self.kernel.clone()];
        let [summed] = SUMMED.with(|slot| fuse_several(slot, shifted_sum, &parts))?;
        Ok((summed, inputs))
    }
}

/// `silu` of each channel's sum over so many rows as the kernel `[rows, channels]` has, weighted:
/// in f32, from rows `[1, rows - 1 + tokens, channels]`.
fn shifted_sum([rows, kernel]: &[Array; 2]) -> Result<[Array; 1]> {
    let tokens = rows.dim(1) - kernel.dim(0) + 1;
    // Slices are views, and everything after them is one kernel on a GPU.
    let weighted = |row: i32| -> Result<Array> {
        let shifted = rows.try_index((.., row..row + tokens, ..))?;
        let shifted = shifted.as_dtype(Dtype::Float32)?;
        Ok(shifted.multiply(kernel.try_index(row..row + 1)?)?)
    };
    let mut sum = weighted(0)?;
    for row in 1..kernel.dim(0) {
        sum = sum.add(weighted(row)?)?;
    }
    Ok([silu(&sum)?])
}

/// The logarithm of the decay, `softplus(slope + bias) rate`, and how much is overwritten, both
/// in f32.
fn decay_and_beta([slope, bias, rate, beta]: &[Array; 4]) -> Result<[Array; 2]> {
    let wide = |x: &Array| x.as_dtype(Dtype::Float32);
    let softplus = logaddexp(wide(slope)?.add(bias)?, Array::from_f32(0.0))?;
    Ok([softplus.multiply(rate)?, sigmoid(wide(beta)?)?])
}

/// `silu(gate) * x` in f32, in the type of the gate.
fn gated([gate, x]: &[Array; 2]) -> Result<[Array; 1]> {
    let wide = silu(&gate.as_dtype(Dtype::Float32)?)?;
    Ok([wide.multiply(x)?.as_dtype(gate.dtype())?])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::fuse_on_any_device;

    fn largest_difference(a: &Array, b: &Array) -> f32 {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
        let difference = a.subtract(b).unwrap().abs().unwrap();
        let difference = difference.as_dtype(Dtype::Float32).unwrap();
        difference.max(false).unwrap().item_exact()
    }

    fn ramp(shape: &[i32]) -> Array {
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|i: i32| (i as f32 * 0.7).sin())
            .collect();
        Array::from_slice(&values, shape)
    }

    #[test]
    fn the_convolution_sums_the_last_rows() {
        let (rows, kernel) = (ramp(&[1, 5, 2]), ramp(&[4, 2]));
        let [found] = shifted_sum(&[rows.clone(), kernel.clone()]).unwrap();
        let (rows, kernel) = (rows.as_slice::<f32>(), kernel.as_slice::<f32>());
        for (token, channel) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let sum: f32 = (0..4)
                .map(|row| rows[(token + row) * 2 + channel] * kernel[row * 2 + channel])
                .sum();
            let expected = sum / (1.0 + (-sum).exp());
            let found = found.as_slice::<f32>()[token * 2 + channel];
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
    }

    /// As on a GPU, where these are compiled.
    #[test]
    #[ignore = "MLX's CPU build compiles with a C++ compiler"]
    fn compiled_they_are_the_same() {
        let narrow = |x: Array| x.as_dtype(Dtype::Bfloat16).unwrap();
        for tokens in [1, 9] {
            let rows = [narrow(ramp(&[1, tokens + 3, 6])), ramp(&[4, 6])];
            let [expected] = shifted_sum(&rows).unwrap();
            let [found] = fuse_on_any_device(shifted_sum, &rows).unwrap();
            assert!(largest_difference(&found, &expected) < 1e-5);

            let heads = || narrow(ramp(&[tokens, 4]));
            let slopes = [heads(), ramp(&[4]), ramp(&[4]), heads()];
            let expected = decay_and_beta(&slopes).unwrap();
            let found = fuse_on_any_device(decay_and_beta, &slopes).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert!(largest_difference(found, expected) < 1e-5);
            }

            let outputs = [narrow(ramp(&[tokens, 4, 6])), ramp(&[tokens, 4, 6])];
            let [expected] = gated(&outputs).unwrap();
            let [found] = fuse_on_any_device(gated, &outputs).unwrap();
            assert!(largest_difference(&found, &expected) < 1e-2);
        }
    }
}
