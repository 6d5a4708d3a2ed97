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

    /// Counts another token than the one chosen last as recent.
    pub(crate) fn replace_last(&mut self, token: &Array) -> Result<()> {
        self.penalties.replace_last(token)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prefill_test_support::reference_dir;
    use serde::Deserialize;

    use super::*;
    use crate::sampling::Xtc;

    /// What mlx-lm made of fixed logits; see `tests/reference/make_sampler_goldens.py`.
    #[derive(Deserialize)]
    struct Goldens {
        recent: Vec<u32>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        logits: Vec<f32>,
        logprobs: Vec<f32>,
        filters: BTreeMap<String, Vec<Option<f32>>>,
        penalties: BTreeMap<String, Vec<Option<f32>>>,
    }

    fn goldens() -> Goldens {
        let path = reference_dir().join("goldens/sampling.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn assert_close(name: &str, found: &Array, expected: &[Option<f32>]) {
        let found = found.to_vec_exact::<f32>().unwrap();
        assert_eq!(found.len(), expected.len());
        for (id, (&found, expected)) in found.iter().zip(expected).enumerate() {
            match expected {
                Some(expected) => {
                    assert!(
                        (found - expected).abs() < 1e-5,
                        "{name} {id}: {found}, {expected}"
                    );
                }
                None => assert!(found.is_infinite() && found < 0.0, "{name}: {id}"),
            }
        }
    }

    #[test]
    fn filters_are_mlx_lms() {
        for case in goldens().cases {
            let logprobs = Array::from_slice(&case.logprobs, &[case.logprobs.len() as i32]);
            let always = Array::from_f32(0.5);
            let xtc = |threshold| {
                let settings = Xtc {
                    probability: 1.0,
                    threshold,
                };
                filters::xtc(&logprobs, settings, &always)
            };
            for (name, expected) in &case.filters {
                let found = match name.as_str() {
                    "top_p 0.3" => filters::top_p(&logprobs, 0.3),
                    "top_p 0.9" => filters::top_p(&logprobs, 0.9),
                    "min_p 0.05" => filters::min_p(&logprobs, 0.05),
                    "min_p 0.5" => filters::min_p(&logprobs, 0.5),
                    "top_k 1" => filters::top_k(&logprobs, 1),
                    "top_k 10" => filters::top_k(&logprobs, 10),
                    "typical_p 0.2" => filters::typical_p(&logprobs, 0.2),
                    "typical_p 0.8" => filters::typical_p(&logprobs, 0.8),
                    "xtc 0.02" => xtc(0.02),
                    "xtc 0.1" => xtc(0.1),
                    "top_p 0.9, min_p 0.05, top_k 5" => filters::top_p(&logprobs, 0.9)
                        .and_then(|logprobs| filters::min_p(&logprobs, 0.05))
                        .and_then(|logprobs| filters::top_k(&logprobs, 5)),
                    other => panic!("{other}"),
                };
                assert_close(name, &found.unwrap(), expected);
            }
        }
    }

    #[test]
    fn penalties_are_mlx_lms() {
        let Goldens { recent, cases } = goldens();
        for case in cases {
            let logits = Array::from_slice(&case.logits, &[case.logits.len() as i32]);
            let all = Sampling::greedy()
                .repetition_penalty(1.3)
                .presence_penalty(0.7)
                .frequency_penalty(0.4);
            for (name, expected) in &case.penalties {
                let sampling = match name.as_str() {
                    "repetition 1.3" => Sampling::greedy().repetition_penalty(1.3),
                    "presence 0.7" => Sampling::greedy().presence_penalty(0.7),
                    "frequency 0.4" => Sampling::greedy().frequency_penalty(0.4),
                    "context 4" => all.clone().penalty_context(4),
                    "bias and all" => all.clone().bias(3, 2.5).bias(17, -100.0),
                    other => panic!("{other}"),
                };
                // The last token arrives as one that was chosen.
                let (last, before) = recent.split_last().unwrap();
                let mut penalties = Penalties::new(&sampling, before);
                let last = Array::from_slice(&[*last as i32], &[1, 1]);
                penalties.push(&last).unwrap();
                assert_close(name, &penalties.apply(&logits).unwrap(), expected);
            }
        }
    }

    /// Pearson's statistic of draws against probabilities, and its degrees of freedom.
    fn chi_square(counts: &[u32], probabilities: &[f64]) -> (f64, usize) {
        let total = f64::from(counts.iter().sum::<u32>());
        let mut statistic = 0.0;
        let mut kept = 0;
        for (&count, &probability) in counts.iter().zip(probabilities) {
            if probability == 0.0 {
                assert_eq!(count, 0, "a dropped token was drawn");
                continue;
            }
            kept += 1;
            let expected = total * probability;
            statistic += (f64::from(count) - expected).powi(2) / expected;
        }
        (statistic, kept - 1)
    }

    /// The distribution by the definitions, in f64.
    fn expected(
        logits: &[f32],
        temperature: f64,
        keep: impl Fn(usize, &[f64]) -> bool,
    ) -> Vec<f64> {
        let softmax = |z: &[f64]| {
            let sum: f64 = z.iter().map(|z| z.exp()).sum();
            z.iter().map(|z| z.exp() / sum).collect::<Vec<_>>()
        };
        let z: Vec<f64> = logits.iter().map(|&z| f64::from(z)).collect();
        let plain = softmax(&z);
        let scaled: Vec<f64> = (0..z.len())
            .map(|id| {
                if keep(id, &plain) {
                    z[id] / temperature
                } else {
                    f64::NEG_INFINITY
                }
            })
            .collect();
        softmax(&scaled)
    }

    /// Whether a token is kept, by its id and all probabilities.
    type Keep = Box<dyn Fn(usize, &[f64]) -> bool>;

    #[test]
    fn draws_have_the_distribution_of_the_definitions() {
        let logits = [0.3f32, -0.4, 1.9, 0.9, -2.0, 1.2, 0.0, -0.8];
        let array = Array::from_slice(&logits, &[8]);
        let mass_before = |id: usize, p: &[f64]| p.iter().filter(|&&q| q > p[id]).sum::<f64>();
        let rank = |id: usize, p: &[f64]| p.iter().filter(|&&q| q > p[id]).count();
        let most = |p: &[f64]| p.iter().copied().fold(0.0, f64::max);
        let cases: [(Sampling, f64, Keep); 5] = [
            (
                Sampling::greedy().temperature(1.0),
                1.0,
                Box::new(|_, _| true),
            ),
            (
                Sampling::greedy().temperature(0.5),
                0.5,
                Box::new(|_, _| true),
            ),
            (
                Sampling::greedy().temperature(1.3).top_k(3),
                1.3,
                Box::new(move |id, p| rank(id, p) < 3),
            ),
            (
                Sampling::greedy().temperature(1.0).top_p(0.7),
                1.0,
                Box::new(move |id, p| mass_before(id, p) < 0.7),
            ),
            (
                Sampling::greedy().temperature(1.0).min_p(0.2),
                1.0,
                Box::new(move |id, p| p[id] >= 0.2 * most(p)),
            ),
        ];
        for (index, (sampling, temperature, keep)) in cases.into_iter().enumerate() {
            let mut sampler = Sampler::new(&sampling.seed(index as u64), &[], None);
            let mut counts = [0; 8];
            for _ in 0..4000 {
                let choice = sampler.choose(&array).unwrap();
                counts[choice.token.item_exact::<i32>() as usize] += 1;
            }
            let probabilities = expected(&logits, temperature, keep);
            let (statistic, freedom) = chi_square(&counts, &probabilities);
            // The 0.9999 quantile is below freedom + 4 sqrt(2 freedom) + 10.
            let bound = freedom as f64 + 4.0 * (2.0 * freedom as f64).sqrt() + 10.0;
            assert!(
                statistic < bound,
                "case {index}: {statistic} of {freedom}, {counts:?}"
            );
        }
    }

    #[test]
    fn xtc_acts_as_often_as_it_should() {
        let logits = Array::from_slice(&[2.0f32, 1.8, 0.5, -1.0], &[4]);
        let sampling = Sampling::greedy().temperature(1.0).xtc(0.3, 0.2).seed(5);
        let mut sampler = Sampler::new(&sampling, &[], None);
        let draws = 4000;
        let top = (0..draws)
            .filter(|_| sampler.choose(&logits).unwrap().token.item_exact::<i32>() == 0)
            .count();
        // P(0) = 0.474: it is dropped in three of ten steps, being above the threshold and not
        // the least likely of those.
        let p = 0.7 * (2f64.exp() / (2f64.exp() + 1.8f64.exp() + 0.5f64.exp() + (-1f64).exp()));
        let deviation = (f64::from(draws) * p * (1.0 - p)).sqrt();
        assert!(
            (top as f64 - f64::from(draws) * p).abs() < 4.5 * deviation,
            "{top}"
        );
    }
}
