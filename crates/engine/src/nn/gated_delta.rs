//! The gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024): a memory
//! that decays, and in which each token overwrites what its key finds.
//!
//! For a head with the memory `S` `[value size, key size]`, and for each token in turn
//!
//! ```text
//! S = exp(g) S
//! S = S + beta (v - S k) k^T
//! y = S q
//! ```
//!
//! One token is computed as it stands there. Several are taken in chunks of `C`, in which
//! everything that does not depend on `S` becomes products of matrices (section 3.3 and
//! appendix A of the paper; transformers 5.24, `torch_chunk_gated_delta_rule`). With
//! `G_i = g_1 + ... + g_i`, `D_ij = exp(G_i - G_j)`, rows `q_i`, `k_i`, `v_i`:
//!
//! ```text
//! A = strictly lower part of (beta_i D_ij k_i . k_j)
//! [U | W] = (I + A)^-1 [beta_i v_i | beta_i exp(G_i) k_i]
//! M = lower part of (D_ij q_i . k_j)
//! Y = M U + (exp(G_i) q_i - M W) S^T
//! S^T' = (exp(G_C) I - K^T W) S^T + K^T U        with the rows D_Ci k_i in K
//! ```
//!
//! so that from chunk to chunk only one small product is sequential. `A` is inverted by
//! blocks that double: nothing grows that the result does not have.

use std::cell::RefCell;

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{as_strided, concatenate, exp, pad, select, stack, zeros_like};
use mlx_rs::{Array, Dtype};

use super::{SeveralSlot, fuse_several};
use crate::Result;

/// Tokens of a chunk. Halving it halves what a chunk computes a token and doubles the steps
/// in sequence; see docs/performance/qwen.md.
const CHUNK: i32 = 64;

/// Rows of a block that is inverted whole: smaller ones would be too many.
const SMALL_BLOCK: i32 = 16;

/// What the rule takes of each token, all f32. There are as many or more value heads than
/// key heads; each key head serves a run of them.
#[derive(Debug)]
pub(crate) struct DeltaInputs {
    /// `[tokens, key heads, key size]`.
    pub queries: Array,
    /// `[tokens, key heads, key size]`.
    pub keys: Array,
    /// `[tokens, value heads, value size]`.
    pub values: Array,
    /// `g`, never positive: `[tokens, value heads]`.
    pub log_decay: Array,
    /// How much of the old value is overwritten: `[tokens, value heads]`.
    pub beta: Array,
}

impl DeltaInputs {
    /// These arrays, and the memory.
    fn with(&self, memory: &Array) -> [Array; 6] {
        [
            self.queries.clone(),
            self.keys.clone(),
            self.values.clone(),
            self.log_decay.clone(),
            self.beta.clone(),
            memory.clone(),
        ]
    }

    /// These, and after them tokens that neither decay nor write, to a multiple of `chunk`.
    fn filled(&self, chunk: i32) -> Result<Self> {
        let missing = (chunk - self.tokens() % chunk) % chunk;
        let filled = |x: &Array| -> Result<Array> {
            if missing == 0 {
                return Ok(x.clone());
            }
            let mut widths = vec![(0, 0); x.ndim()];
            widths[0].1 = missing;
            Ok(pad(x, &widths[..], None, None)?)
        };
        Ok(Self {
            queries: filled(&self.queries)?,
            keys: filled(&self.keys)?,
            values: filled(&self.values)?,
            log_decay: filled(&self.log_decay)?,
            beta: filled(&self.beta)?,
        })
    }

    fn tokens(&self) -> i32 {
        self.values.dim(0)
    }

    fn heads(&self) -> (i32, i32) {
        (self.keys.dim(1), self.values.dim(1))
    }

    fn sizes(&self) -> (i32, i32) {
        (self.keys.dim(2), self.values.dim(2))
    }

    /// The memory before the first token: `[1, value heads, value size, key size]`, f32.
    fn empty(&self) -> Result<Array> {
        let ((_, heads), (key_size, value_size)) = (self.heads(), self.sizes());
        let shape = [1, heads, value_size, key_size];
        Ok(mlx_rs::ops::zeros_dtype(&shape, Dtype::Float32)?)
    }
}

/// The outputs, `[tokens, value heads, value size]`, and the memory after the last token, given
/// that before the first; both f32.
pub(crate) fn gated_delta(inputs: &DeltaInputs, memory: Option<&Array>) -> Result<(Array, Array)> {
    let memory = match memory {
        Some(memory) => memory.clone(),
        None => inputs.empty()?,
    };
    thread_local!(static STEP: SeveralSlot = const { RefCell::new(None) });
    thread_local!(static CHUNKS: SeveralSlot = const { RefCell::new(None) });
    let tokens = inputs.tokens();
    if tokens == 1 {
        let all = inputs.with(&memory);
        let [outputs, memory] = STEP.with(|slot| fuse_several(slot, rule, &all))?;
        return Ok((outputs, memory));
    }
    // Few lengths, so that little is traced.
    let all = inputs.filled(chunk_of(tokens))?.with(&memory);
    let [outputs, memory] = CHUNKS.with(|slot| fuse_several(slot, rule, &all))?;
    Ok((outputs.try_index((0..tokens, .., ..))?, memory))
}

/// The size of the chunks in which so many tokens are taken.
fn chunk_of(tokens: i32) -> i32 {
    (tokens as u32).next_power_of_two().min(CHUNK as u32) as i32
}

/// The rule over the arrays of [`DeltaInputs::with`]: outputs and memory.
fn rule([queries, keys, values, log_decay, beta, memory]: &[Array; 6]) -> Result<[Array; 2]> {
    let inputs = DeltaInputs {
        queries: queries.clone(),
        keys: keys.clone(),
        values: values.clone(),
        log_decay: log_decay.clone(),
        beta: beta.clone(),
    };
    let (outputs, memory) = match inputs.tokens() {
        1 => recurrent(&inputs, memory)?,
        tokens => chunked(&inputs, memory, chunk_of(tokens))?,
    };
    Ok([outputs, memory])
}

/// Token by token, by the definition.
fn recurrent(inputs: &DeltaInputs, memory: &Array) -> Result<(Array, Array)> {
    let ((key_heads, value_heads), (key_size, value_size)) = (inputs.heads(), inputs.sizes());
    let group = value_heads / key_heads;
    let mut s = memory.reshape(&[key_heads, group, value_size, key_size])?;
    let mut outputs = Vec::with_capacity(inputs.tokens() as usize);
    for token in 0..inputs.tokens() {
        // Slices: a plain index would be a gather, a kernel of its own.
        let row = |x: &Array| x.try_index(token..token + 1);
        let key_row = |x: &Array| row(x)?.reshape(&[key_heads, 1, 1, key_size]);
        let value_row = |x: &Array| row(x)?.reshape(&[key_heads, group, -1, 1]);
        let (q, k) = (key_row(&inputs.queries)?, key_row(&inputs.keys)?);
        s = s.multiply(exp(value_row(&inputs.log_decay)?)?)?;
        let found = s.multiply(&k)?.sum_axis(-1, true)?;
        let beta = value_row(&inputs.beta)?;
        let change = value_row(&inputs.values)?.subtract(found)?.multiply(beta)?;
        s = s.add(k.multiply(change)?)?;
        let y = s.multiply(&q)?.sum_axis(-1, false)?;
        outputs.push(y.reshape(&[1, value_heads, value_size])?);
    }
    Ok((concatenate(&outputs, 0)?, s.reshape(memory.shape())?))
}

/// In chunks of `size` tokens, a power of two which divides their number.
fn chunked(inputs: &DeltaInputs, memory: &Array, size: i32) -> Result<(Array, Array)> {
    let ((key_heads, value_heads), (key_size, value_size)) = (inputs.heads(), inputs.sizes());
    let group = value_heads / key_heads;
    let chunks = inputs.tokens() / size;
    // [key heads, 1 or group, chunks, size, ...]
    let by_chunk = |x: &Array, group: i32| -> Result<Array> {
        let split = x.reshape(&[chunks, size, key_heads, group, -1])?;
        Ok(split.transpose_axes(&[2, 3, 0, 1, 4])?)
    };
    let q = by_chunk(&inputs.queries, 1)?;
    let k = by_chunk(&inputs.keys, 1)?;
    let v = by_chunk(&inputs.values, group)?;
    let beta = by_chunk(&inputs.beta, group)?;
    let log_decay = by_chunk(&inputs.log_decay, group)?;

    let lower = Array::tri::<f32>(size, None, None)?.as_dtype(Dtype::Bool)?;
    let strictly_lower = Array::tri::<f32>(size, None, Some(-1))?;
    // What decays from after token j up to token i: summed for each j rather than taken as a
    // difference of sums from the start, whose digits a strong decay would use up.
    let between = log_decay
        .multiply(&strictly_lower)?
        .cumsum(-2, None, None)?;
    let never = Array::from_f32(f32::NEG_INFINITY);
    let decay = exp(select(&lower, &between, &never)?)?;
    let keys_across = k.swap_axes(-1, -2)?;
    let a = k
        .matmul(&keys_across)?
        .multiply(&decay)?
        .multiply(&beta)?
        .multiply(&strictly_lower)?;
    let total = log_decay.cumsum(-2, None, None)?;
    let since_start = exp(&total)?;
    let right = concatenate(
        &[
            v.multiply(&beta)?,
            k.multiply(beta.multiply(&since_start)?)?,
        ],
        -1,
    )?;
    // [U | W]
    let solved = inverse(&a)?.matmul(&right)?;
    let m = q.matmul(&keys_across)?.multiply(&decay)?;
    let mixed = m.matmul(&solved)?;
    let parts = |x: &Array| x.split_at_indices(&[value_size], -1);
    let within = parts(&mixed)?;
    let reading = q.multiply(&since_start)?.subtract(&within[1])?;

    let last = |x: &Array| x.try_index((.., .., .., -1.., ..));
    let until_end = last(&decay)?.swap_axes(-1, -2)?;
    let writing = k.multiply(until_end)?;
    let written = writing.swap_axes(-1, -2)?.matmul(&solved)?;
    let written = parts(&written)?;
    let identity = Array::eye::<f32>(key_size, None, None)?;
    let kept = last(&since_start)?
        .multiply(identity)?
        .subtract(&written[1])?;

    // Transposed: [key heads, group, key size, value size].
    let mut s = memory
        .reshape(&[key_heads, group, value_size, key_size])?
        .swap_axes(-1, -2)?;
    let mut before = Vec::with_capacity(chunks as usize);
    for chunk in 0..chunks {
        before.push(s.clone());
        let of = |x: &Array| x.try_index((.., .., chunk, .., ..));
        s = of(&kept)?.matmul(&s)?.add(of(&written[0])?)?;
    }
    let y = within[0].add(reading.matmul(stack(&before, 2)?)?)?;
    let y =
        y.transpose_axes(&[2, 3, 0, 1, 4])?
            .reshape(&[chunks * size, value_heads, value_size])?;
    let memory = s.swap_axes(-1, -2)?.reshape(memory.shape())?;
    Ok((y, memory))
}

/// `(I + a)^-1` for strictly lower triangular matrices `a` `[..., size, size]`, `size` a power
/// of two.
///
/// Blocks on the diagonal are inverted first, then pairs of them: the inverse of
/// `[[P, 0], [B, Q]]` is `[[P^-1, 0], [-Q^-1 B P^-1, Q^-1]]`.
fn inverse(a: &Array) -> Result<Array> {
    let size = a.dim(-1);
    if size <= SMALL_BLOCK {
        return small_inverse(a);
    }
    let matrices = a.reshape(&[-1, size, size])?.contiguous()?;
    // The blocks of `block` rows that begin `below` rows under every `step`th place of the
    // diagonal: views.
    let blocks = |block: i32, step: i32, below: i32| -> Result<Array> {
        let wide = |extent: i32| i64::from(extent);
        let strides = [wide(size * size), wide(step * (size + 1)), wide(size), 1];
        let shape = [matrices.dim(0), size / step, block, block];
        Ok(as_strided(
            &matrices,
            &shape[..],
            &strides[..],
            (below * size) as usize,
        )?)
    };
    let mut block = SMALL_BLOCK;
    let mut x = small_inverse(&blocks(block, block, 0)?)?;
    while block < size {
        let pairs = x.reshape(&[-1, size / (2 * block), 2, block, block])?;
        let (p, q) = (pairs.try_index((.., .., 0))?, pairs.try_index((.., .., 1))?);
        let between = blocks(block, 2 * block, block)?;
        let corner = q.matmul(&between)?.matmul(&p)?.negative()?;
        let above = concatenate(&[&p, &zeros_like(&p)?], -1)?;
        let below = concatenate(&[&corner, &q], -1)?;
        x = concatenate(&[above, below], -2)?;
        block *= 2;
    }
    Ok(x.reshape(a.shape())?)
}

/// [`inverse`] of small matrices, all pairs of blocks at once: with `X` the inverses of all
/// blocks of one size and `B` what lies between their pairs, the next is `X - X B X`.
fn small_inverse(a: &Array) -> Result<Array> {
    let size = a.dim(-1);
    let mut x = Array::eye::<f32>(size, None, None)?;
    let mut block = 1;
    while block < size {
        let between = a.multiply(between_pairs(size, block))?;
        // The inverses of single rows are ones.
        let change = if block == 1 {
            between
        } else {
            x.matmul(&between)?.matmul(&x)?
        };
        x = x.subtract(change)?;
        block *= 2;
    }
    Ok(x)
}

/// Ones where a row lies in the second and a column in the first block of a pair.
fn between_pairs(size: i32, block: i32) -> Array {
    let values: Vec<f32> = (0..size)
        .flat_map(|row| {
            let of = move |at: i32| at / block;
            (0..size).map(move |column| {
                let is_between = of(row) % 2 == 1 && of(column) == of(row) - 1;
                f32::from(u8::from(is_between))
            })
        })
        .collect();
    Array::from_slice(&values, &[size, size])
}

#[cfg(test)]
mod tests;
