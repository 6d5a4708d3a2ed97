//! Tokens that are not to be drawn: each filter takes log-probabilities `[vocabulary]`, f32,
//! and sets those of the dropped tokens to negative infinity.

use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexOp, argmax, put_along_axis, take_along_axis};
use mlx_rs::ops::{arange, argpartition, argsort, gt, lt, max, min, select, softmax, sort};

use super::Xtc;
use crate::Result;

fn dropped() -> Array {
    Array::from_f32(f32::NEG_INFINITY)
}

/// Keeps the most likely tokens whose mass before them is less than `p` of the whole. Equals
/// of the last one are kept.
pub(super) fn top_p(logprobs: &Array, p: f32) -> Result<Array> {
    let ascending = sort(logprobs)?;
    let probabilities = ascending.exp()?;
    let above = probabilities.cumsum(0, true, false)?;
    let total = above.try_index(0)?.add(probabilities.try_index(0)?)?;
    let enough = total.multiply(Array::from_f32(p))?;
    let count = above.ge(&enough)?.sum(None)?.reshape(&[1])?;
    let threshold = take_along_axis(&ascending, count, 0)?;
    Ok(select(lt(logprobs, threshold)?, dropped(), logprobs)?)
}

/// Keeps tokens at least `p` times as likely as the most likely.
pub(super) fn min_p(logprobs: &Array, p: f32) -> Result<Array> {
    let least = max(logprobs, true)?.add(Array::from_f32(p.ln()))?;
    Ok(select(lt(logprobs, least)?, dropped(), logprobs)?)
}

/// Keeps the `k` most likely tokens.
pub(super) fn top_k(logprobs: &Array, k: u32) -> Result<Array> {
    let size = logprobs.dim(0);
    // A vocabulary, and so `size`, is an i32.
    let k = k.min(size as u32) as i32;
    if k == size {
        return Ok(logprobs.clone());
    }
    let order = argpartition(logprobs.negative()?, k - 1)?;
    Ok(put_along_axis(
        logprobs,
        order.try_index(k..)?,
        dropped(),
        0,
    )?)
}

/// Keeps the tokens whose surprise is nearest to the entropy, as long as those before them
/// have less than `p` of the mass.
pub(super) fn typical_p(logprobs: &Array, p: f32) -> Result<Array> {
    let probabilities = logprobs.exp()?;
    let zero = Array::from_f32(0.0);
    // What is dropped already has no part in the entropy: 0 log 0 is 0.
    let terms = select(
        gt(&probabilities, &zero)?,
        probabilities.multiply(logprobs)?,
        &zero,
    )?;
    let entropy = terms.sum(None)?.negative()?;
    let distance = logprobs.negative()?.subtract(entropy)?.abs()?;
    let order = argsort(distance)?;
    let mass = take_along_axis(&probabilities, &order, 0)?.cumsum(0, None, None)?;
    let ranks = put_along_axis(
        order.subtract(&order)?,
        &order,
        arange::<_, u32>(0, order.dim(0), 1)?,
        0,
    )?;
    let before = take_along_axis(&mass, ranks, 0)?.subtract(&probabilities)?;
    Ok(select(
        lt(before, Array::from_f32(p))?,
        logprobs,
        dropped(),
    )?)
}

/// Drops, if `chance` (uniform in 0 to 1) is not above the probability, all tokens above the
/// threshold but the least likely of them.
pub(super) fn xtc(logprobs: &Array, settings: Xtc, chance: &Array) -> Result<Array> {
    let probabilities = softmax(logprobs, true)?;
    let is_top = gt(&probabilities, Array::from_f32(settings.threshold))?;
    let infinity = Array::from_f32(f32::INFINITY);
    let least = min(select(is_top, &probabilities, infinity)?, true)?;
    let without_top = select(gt(&probabilities, least)?, dropped(), logprobs)?;
    let keep = gt(chance, Array::from_f32(settings.probability))?;
    Ok(select(keep, logprobs, without_top)?)
}

/// The most likely token, `[]`.
pub(super) fn most_likely(logprobs: &Array) -> Result<Array> {
    Ok(argmax(logprobs, false)?)
}
