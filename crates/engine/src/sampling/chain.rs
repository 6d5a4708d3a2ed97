//! From logits to a token, all on the device.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use mlx_rs::ops::indexing::{TryIndexOp, take_along_axis};
use mlx_rs::ops::{argpartition, logsumexp};
use mlx_rs::random::{categorical, key, uniform};
use mlx_rs::{Array, Dtype};

use super::penalties::Penalties;
use super::{Sampling, filters};
use crate::Result;

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    penalties: Penalties,
    seed: u64,
    /// Tokens chosen so far.
    step: u64,
    /// How many of the most likely tokens are reported, if any are.
    top: Option<usize>,
}

/// What was chosen; nothing is computed yet.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// `[1, 1]`, i32.
    pub token: Array,
    pub logprobs: Option<LogProbs>,
}

/// Log-probabilities after bias and penalties, before filters and temperature.
#[derive(Debug, Clone)]
pub(crate) struct LogProbs {
    /// Of the token, `[1]`, f32.
    pub chosen: Array,
    /// The most likely tokens in no order, `[count]`, i32, and their log-probabilities.
    pub top: Option<(Array, Array)>,
}

impl Sampler {
    /// A sampler for a sequence that begins with `ids`. With `top`, log-probabilities are
    /// reported, and those of that many of the most likely tokens.
    pub(crate) fn new(sampling: &Sampling, ids: &[u32], top: Option<usize>) -> Self {
        Self {
            penalties: Penalties::new(sampling, ids),
            // Without one of its own, a random state of the standard library's is.
            seed: sampling
                .seed
                .unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            sampling: sampling.clone(),
            step: 0,
            top,
        }
    }

    /// Chooses by `logits`, `[vocabulary]` in f32, and counts the token as recent.
    pub(crate) fn choose(&mut self, logits: &Array) -> Result<Choice> {
        let logits = self.penalties.apply(logits)?;
        let is_plain = self.sampling.is_greedy() && self.top.is_none();
        // Normalising moves all logits by the same amount.
        let logprobs = if is_plain {
            logits
        } else {
            logits.subtract(logsumexp(&logits, true)?)?
        };
        let token = self
            .draw(&logprobs)?
            .as_dtype(Dtype::Int32)?
            .reshape(&[1, 1])?;
        let reported = match self.top {
            Some(top) => Some(report(&logprobs, &token, top)?),
            None => None,
        };
        self.penalties.push(&token)?;
        self.step += 1;
        Ok(Choice {
            token,
            logprobs: reported,
        })
    }

    /// `[]`.
    fn draw(&self, logprobs: &Array) -> Result<Array> {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            typical_p,
            xtc,
            ..
        } = self.sampling;
        if self.sampling.is_greedy() {
            return filters::most_likely(logprobs);
        }
        let mut logprobs = logprobs.clone();
        if let Some(p) = typical_p.filter(|&p| p < 1.0) {
            logprobs = filters::typical_p(&logprobs, p)?;
        }
        if let Some(p) = top_p.filter(|&p| p < 1.0) {
            logprobs = filters::top_p(&logprobs, p)?;
        }
        if let Some(p) = min_p.filter(|&p| p > 0.0) {
            logprobs = filters::min_p(&logprobs, p)?;
        }
        if let Some(xtc) = xtc.filter(|xtc| xtc.probability > 0.0) {
            let chance = uniform::<_, f32>(0.0, 1.0, None, &self.key(1)?)?;
            logprobs = filters::xtc(&logprobs, xtc, &chance)?;
        }
        if let Some(k) = top_k {
            logprobs = filters::top_k(&logprobs, k)?;
        }
        let scaled = logprobs.multiply(Array::from_f32(1.0 / temperature))?;
        Ok(categorical(scaled, None, None, &self.key(0)?)?)
    }

    /// The key of one of a step's draws: a function of the seed, the step and the draw, so
    /// that a sequence taken up again goes on as it would have.
    fn key(&self, draw: u64) -> Result<Array> {
        Ok(key(mix(self.seed ^ mix(2 * self.step + draw)))?)
    }
}

/// The output function of `SplitMix64` after one step (Steele, Lea and Flood 2014).
fn mix(state: u64) -> u64 {
    let x = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn report(logprobs: &Array, token: &Array, top: usize) -> Result<LogProbs> {
    let chosen = take_along_axis(logprobs, token.reshape(&[1])?, 0)?;
    let count = (top as i32).min(logprobs.dim(0));
    let top = if count > 0 {
        let ids = argpartition(logprobs.negative()?, count - 1)?.try_index(..count)?;
        let values = take_along_axis(logprobs, &ids, 0)?;
        Some((ids.as_dtype(Dtype::Int32)?, values))
    } else {
        None
    };
    Ok(LogProbs { chosen, top })
}
