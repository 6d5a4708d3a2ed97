//! Attention to what a cache keeps.

use std::sync::OnceLock;

use mlx_rs::ops::{arange, select, softmax_axis};
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::{Backend, Quantization, Quantized, dequantize, quantized_matmul};

use super::{Mask, attention, scalar_like};
use crate::Result;
use crate::cache::{KeysValues, Stored};

/// [`attention`] of queries `[1, heads, tokens, D]` to kept rows, quantised or not.
pub(crate) fn attend(queries: &Array, kept: &KeysValues, scale: f32, mask: &Mask) -> Result<Array> {
    match (&kept.keys, &kept.values, kept.quantization) {
        (Stored::Quantized(keys), Stored::Quantized(values), Some(quantization)) => {
            if multiplies_stacks() {
                return attend_quantized(queries, keys, values, quantization, scale, mask);
            }
            let plain = |rows: &Quantized| dequantize(rows, quantization, Some(queries.dtype()));
            attention(queries, &plain(keys)?, &plain(values)?, scale, mask)
        }
        (Stored::Plain(keys), Stored::Plain(values), _) => {
            attention(queries, keys, values, scale, mask)
        }
        _ => Err(crate::Error::Conversion(
            "plain rows beside quantised ones".to_owned(),
        )),
    }
}

/// Whether MLX multiplies with stacks of quantised matrices. Its CUDA build does not: 0.32.2
/// gives wrong products for some shapes and none for others.
fn multiplies_stacks() -> bool {
    static MULTIPLIES: OnceLock<bool> = OnceLock::new();
    *MULTIPLIES.get_or_init(|| Backend::current().is_ok_and(|backend| backend != Backend::Cuda))
}

/// In the order of mlx-lm's `quantized_scaled_dot_product_attention`: scale, scores, mask,
/// softmax in f32, sum.
fn attend_quantized(
    queries: &Array,
    keys: &Quantized,
    values: &Quantized,
    quantization: Quantization,
    scale: f32,
    mask: &Mask,
) -> Result<Array> {
    let (heads, tokens) = (queries.dim(1), queries.dim(2));
    let key_heads = keys.weight.dim(1);
    let scaled = queries.multiply(scalar_like(scale, queries)?)?;
    // [1, key heads, queries a key head, tokens, D]
    let grouped = scaled.reshape(&[1, key_heads, heads / key_heads, tokens, -1])?;
    let scores = quantized_matmul(&grouped, &beside(keys)?, quantization, true)?;
    let visible = match mask {
        Mask::None => None,
        Mask::Causal => Some(causal(tokens, scores.dim(-1))?),
        Mask::Explicit(visible) => Some(visible.clone()),
    };
    let scores = match visible {
        Some(visible) => {
            let hidden = scalar_like(lowest(scores.dtype()), &scores)?;
            select(visible, &scores, hidden)?
        }
        None => scores,
    };
    let weights = softmax_axis(&scores, -1, true)?;
    let seen = quantized_matmul(&weights, &beside(values)?, quantization, false)?;
    Ok(seen.reshape(&[1, heads, tokens, -1])?)
}

/// `[1, key heads, 1, rows, ...]`.
fn beside(rows: &Quantized) -> Result<Quantized> {
    let expand = |array: &Array| array.expand_dims(2);
    Ok(Quantized {
        weight: expand(&rows.weight)?,
        scales: expand(&rows.scales)?,
        biases: rows.biases.as_ref().map(expand).transpose()?,
    })
}

/// `[queries, keys]`: each query sees up to its own key; the last is at the last key.
fn causal(queries: i32, keys: i32) -> Result<Array> {
    let own = arange::<_, i32>(keys - queries, keys, 1)?.expand_dims(1)?;
    Ok(own.ge(arange::<_, i32>(0, keys, 1)?)?)
}

/// The lowest value of a type of floats.
fn lowest(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::Float16 => half::f16::MIN.to_f32(),
        Dtype::Bfloat16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    }
}

#[cfg(test)]
mod tests {
    use mlx_sys_ext::quantize;

    use super::*;

    fn noise(shape: &[i32], seed: u64) -> Array {
        let key = mlx_rs::random::key(seed).unwrap();
        mlx_rs::random::normal::<f32>(shape, None, None, &key).unwrap()
    }

    /// Attention to quantised rows is attention to what they stand for.
    #[test]
    fn equals_attention_to_the_dequantised_rows() {
        let quantization = Quantization::affine(32, 8).unwrap();
        let (keys, values) = (noise(&[1, 2, 9, 64], 1), noise(&[1, 2, 9, 64], 2));
        let keys = quantize(&keys, quantization).unwrap();
        let values = quantize(&values, quantization).unwrap();
        let plain = |rows: &Quantized| {
            Stored::Plain(dequantize(rows, quantization, Some(Dtype::Float32)).unwrap())
        };
        let plain = KeysValues {
            keys: plain(&keys),
            values: plain(&values),
            quantization: None,
        };
        let kept = KeysValues {
            keys: Stored::Quantized(keys),
            values: Stored::Quantized(values),
            quantization: Some(quantization),
        };
        for (tokens, mask) in [
            (1, Mask::None),
            (4, Mask::Causal),
            (4, Mask::new(4, 9, Some(3))),
        ] {
            let queries = noise(&[1, 6, tokens, 64], 3);
            let found = attend(&queries, &kept, 0.125, &mask).unwrap();
            let expected = attend(&queries, &plain, 0.125, &mask).unwrap();
            let difference = found.subtract(&expected).unwrap().abs().unwrap();
            let largest: f32 = difference.max(false).unwrap().item_exact();
            assert!(largest < 2e-6, "{tokens} tokens, {mask:?}: {largest}");
        }
    }
}
