//! How the next token is chosen.

mod chain;
mod filters;
mod penalties;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

pub(crate) use self::chain::{Choice, LogProbs, Sampler};
use crate::checkpoint::read_json;
use crate::{Error, Result};

/// How the next token is chosen from the logits; by default the most likely.
///
/// The steps, their order and their definitions are mlx-lm's (0.32.2, `sample_utils.py`):
/// logit bias, then repetition, presence and frequency penalties; then, of the
/// log-probabilities, typical (where mlx-vlm has it), top-p, min-p, XTC and top-k; then a
/// draw at the temperature. Equal seeds give equal draws, whatever else the process computes.
///
/// ```
/// use prefill_engine::Sampling;
///
/// let sampling = Sampling::greedy().temperature(0.7).top_p(0.9).seed(7);
/// sampling.check()?;
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    pub(crate) temperature: f32,
    pub(crate) top_k: Option<u32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) xtc: Option<Xtc>,
    pub(crate) repetition: Option<Penalty>,
    pub(crate) presence: Option<Penalty>,
    pub(crate) frequency: Option<Penalty>,
    pub(crate) bias: BTreeMap<u32, f32>,
    pub(crate) seed: Option<u64>,
}

/// A penalty, and how many of the last tokens it looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Penalty {
    pub strength: f32,
    pub context: u32,
}

/// Exclude top choices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Xtc {
    pub probability: f32,
    pub threshold: f32,
}

impl Sampling {
    /// Tokens that penalties look back at, as mlx-lm has it.
    pub const PENALTY_CONTEXT: u32 = 20;

    /// The most likely token, always.
    #[must_use]
    pub fn greedy() -> Self {
        Self::default()
    }

    /// Divides the logits before the draw; 0, the default, takes the most likely token.
    /// From 0 to 100.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = temperature;
        self
    }

    /// Keeps the `k` most likely tokens; at least 1.
    #[must_use]
    pub fn top_k(mut self, k: u32) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Keeps the most likely tokens whose probabilities together first reach `p`, above 0
    /// and up to 1 (Holtzman et al. 2019).
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Self {
        self.top_p = Some(p);
        self
    }

    /// Keeps tokens at least `p` times as likely as the most likely, from 0 to 1 (Nguyen et
    /// al. 2024).
    #[must_use]
    pub fn min_p(mut self, p: f32) -> Self {
        self.min_p = Some(p);
        self
    }

    /// Keeps the tokens whose surprise is nearest to the distribution's entropy, until
    /// their probabilities reach `p`, above 0 and up to 1 (Meister et al. 2022).
    #[must_use]
    pub fn typical_p(mut self, p: f32) -> Self {
        self.typical_p = Some(p);
        self
    }

    /// With `probability` (0 to 1) at each step, drops all tokens above `threshold` (0 to
    /// 0.5) but the least likely of them. Line breaks and ends of text are not spared.
    #[must_use]
    pub fn xtc(mut self, probability: f32, threshold: f32) -> Self {
        self.xtc = Some(Xtc {
            probability,
            threshold,
        });
        self
    }

    /// Divides positive logits of recent tokens by `penalty`, and multiplies negative ones
    /// (Keskar et al. 2019); above 0, and 1 does nothing. The prompt counts as recent.
    #[must_use]
    pub fn repetition_penalty(mut self, penalty: f32) -> Self {
        self.repetition = Some(Penalty {
            strength: penalty,
            context: Self::PENALTY_CONTEXT,
        });
        self
    }

    /// Subtracts `penalty`, from -100 to 100, from the logits of recent tokens.
    #[must_use]
    pub fn presence_penalty(mut self, penalty: f32) -> Self {
        self.presence = Some(Penalty {
            strength: penalty,
            context: Self::PENALTY_CONTEXT,
        });
        self
    }

    /// Subtracts `penalty`, from -100 to 100, from a token's logit for each of its recent
    /// occurrences.
    #[must_use]
    pub fn frequency_penalty(mut self, penalty: f32) -> Self {
        self.frequency = Some(Penalty {
            strength: penalty,
            context: Self::PENALTY_CONTEXT,
        });
        self
    }

    /// How many of the last tokens every penalty set so far looks at, instead of
    /// [`PENALTY_CONTEXT`](Self::PENALTY_CONTEXT); from 1 to 65,536.
    #[must_use]
    pub fn penalty_context(mut self, tokens: u32) -> Self {
        let penalties = [
            &mut self.repetition,
            &mut self.presence,
            &mut self.frequency,
        ];
        for penalty in penalties.into_iter().flatten() {
            penalty.context = tokens;
        }
        self
    }

    /// Adds `bias` to the logit of the token `id`; negative infinity forbids it.
    #[must_use]
    pub fn bias(mut self, id: u32, bias: f32) -> Self {
        self.bias.insert(id, bias);
        self
    }

    /// Makes the draws reproducible. Without a seed each answer has one of its own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether the most likely token is taken.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether every setting is in its range, and none contradicts another.
    ///
    /// # Errors
    /// [`Error::Sampling`] names the first that is not.
    pub fn check(&self) -> Result<()> {
        let in_range = |setting, value: f32, range: std::ops::RangeInclusive<f32>| {
            if range.contains(&value) {
                return Ok(());
            }
            let fact = format!("{value} is not in {} to {}", range.start(), range.end());
            Err(Error::Sampling { setting, fact })
        };
        let above_zero = |setting, value: f32| {
            if value > 0.0 {
                return Ok(());
            }
            let fact = format!("{value} is not above 0");
            Err(Error::Sampling { setting, fact })
        };
        in_range("temperature", self.temperature, 0.0..=100.0)?;
        for (setting, p) in [("top_p", self.top_p), ("typical_p", self.typical_p)] {
            if let Some(p) = p {
                in_range(setting, p, 0.0..=1.0)?;
                above_zero(setting, p)?;
            }
        }
        if let Some(p) = self.min_p {
            in_range("min_p", p, 0.0..=1.0)?;
        }
        if self.top_k == Some(0) {
            let fact = "0 tokens are none to choose from".to_owned();
            let setting = "top_k";
            return Err(Error::Sampling { setting, fact });
        }
        if let Some(xtc) = self.xtc {
            in_range("xtc probability", xtc.probability, 0.0..=1.0)?;
            in_range("xtc threshold", xtc.threshold, 0.0..=0.5)?;
            if self.is_greedy() && xtc.probability > 0.0 {
                let fact = "drops the most likely tokens, which a temperature of 0 asks for";
                return Err(Error::Sampling {
                    setting: "xtc",
                    fact: fact.to_owned(),
                });
            }
        }
        if let Some(penalty) = self.repetition {
            in_range("repetition_penalty", penalty.strength, 0.0..=100.0)?;
            above_zero("repetition_penalty", penalty.strength)?;
        }
        for (setting, penalty) in [
            ("presence_penalty", self.presence),
            ("frequency_penalty", self.frequency),
        ] {
            if let Some(penalty) = penalty {
                in_range(setting, penalty.strength, -100.0..=100.0)?;
            }
        }
        for penalty in [self.repetition, self.presence, self.frequency] {
            let context = penalty.map_or(1, |penalty| penalty.context);
            in_range("penalty_context", context as f32, 1.0..=65_536.0)?;
        }
        match self.bias.iter().find(|(_, bias)| bias.is_nan()) {
            None => Ok(()),
            Some((id, _)) => Err(Error::Sampling {
                setting: "bias",
                fact: format!("that of token {id} is not a number"),
            }),
        }
    }

    /// What a checkpoint's `generation_config.json` asks for; greedy where there is none, or
    /// where it does not say `do_sample`.
    pub(crate) fn from_folder(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct GenerationConfig {
            do_sample: Option<bool>,
            temperature: Option<f32>,
            top_k: Option<u32>,
            top_p: Option<f32>,
            min_p: Option<f32>,
            typical_p: Option<f32>,
            repetition_penalty: Option<f32>,
        }
        let path = folder.join("generation_config.json");
        if !path.is_file() {
            return Ok(Self::greedy());
        }
        let config: GenerationConfig = read_json(&path)?;
        let mut sampling = Self::greedy();
        if let Some(penalty) = config.repetition_penalty {
            sampling = sampling.repetition_penalty(penalty);
        }
        if config.do_sample == Some(true) {
            // transformers' defaults, which such files leave out: no top-k of 50, though, which
            // it applies by itself and no other engine does.
            sampling.temperature = config.temperature.unwrap_or(1.0);
            sampling.top_k = config.top_k.filter(|&k| k > 0);
            sampling.top_p = config.top_p.filter(|&p| p < 1.0);
            sampling.min_p = config.min_p;
            sampling.typical_p = config.typical_p.filter(|&p| p < 1.0);
        }
        sampling
            .check()
            .map_err(|error| Error::bad_file(&path, error.to_string()))?;
        Ok(sampling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        for (sampling, setting) in [
            (Sampling::greedy().temperature(-0.1), "temperature"),
            (Sampling::greedy().temperature(f32::NAN), "temperature"),
            (Sampling::greedy().top_p(0.0), "top_p"),
            (Sampling::greedy().top_p(1.1), "top_p"),
            (Sampling::greedy().top_k(0), "top_k"),
            (Sampling::greedy().min_p(-1.0), "min_p"),
            (Sampling::greedy().typical_p(2.0), "typical_p"),
            (
                Sampling::greedy().temperature(1.0).xtc(2.0, 0.1),
                "xtc probability",
            ),
            (
                Sampling::greedy().temperature(1.0).xtc(0.5, 0.6),
                "xtc threshold",
            ),
            (Sampling::greedy().xtc(0.5, 0.1), "xtc"),
            (
                Sampling::greedy().repetition_penalty(0.0),
                "repetition_penalty",
            ),
            (
                Sampling::greedy().presence_penalty(101.0),
                "presence_penalty",
            ),
            (
                Sampling::greedy().frequency_penalty(f32::INFINITY),
                "frequency_penalty",
            ),
            (
                Sampling::greedy().presence_penalty(1.0).penalty_context(0),
                "penalty_context",
            ),
            (Sampling::greedy().bias(3, f32::NAN), "bias"),
        ] {
            match sampling.check() {
                Err(Error::Sampling { setting: found, .. }) => assert_eq!(found, setting),
                other => panic!("{setting}: {other:?}"),
            }
        }
        let all = Sampling::greedy()
            .temperature(1.5)
            .top_k(40)
            .top_p(1.0)
            .min_p(0.05)
            .typical_p(0.9)
            .xtc(0.5, 0.1)
            .repetition_penalty(1.1)
            .presence_penalty(0.5)
            .frequency_penalty(-0.5)
            .penalty_context(64)
            .bias(3, f32::NEG_INFINITY);
        all.check().unwrap();
    }

    #[test]
    fn checkpoints_say_how_they_want_to_be_sampled() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join("generation_config.json"), text).unwrap();
            Sampling::from_folder(folder.path())
        };
        assert_eq!(
            read(r#"{"do_sample": true, "temperature": 0.6, "top_k": 64, "top_p": 0.95}"#).unwrap(),
            Sampling::greedy().temperature(0.6).top_k(64).top_p(0.95)
        );
        assert_eq!(
            read(r#"{"do_sample": false, "temperature": 0.6, "top_k": 64}"#).unwrap(),
            Sampling::greedy()
        );
        assert_eq!(
            read(r#"{"repetition_penalty": 1.1}"#).unwrap(),
            Sampling::greedy().repetition_penalty(1.1)
        );
        let error = read(r#"{"do_sample": true, "temperature": -1}"#).unwrap_err();
        assert!(error.to_string().contains("temperature: -1"), "{error}");
        std::fs::remove_file(folder.path().join("generation_config.json")).unwrap();
        assert_eq!(
            Sampling::from_folder(folder.path()).unwrap(),
            Sampling::greedy()
        );
    }
}
