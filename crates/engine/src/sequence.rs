//! A sequence that a model works on: what was fed, and what comes next.

mod snapshot;

use std::time::Duration;

use mlx_rs::transforms::{async_eval, eval};
use mlx_rs::{Array, Dtype};

use crate::cache::Cache;
use crate::model::Model;
use crate::sampling::{Choice, LogProbs, Sampler, Sampling};
use crate::{Error, Result};
pub use snapshot::Snapshot;

/// Tokens fed so far, and what the model says of the next.
#[derive(Debug)]
pub struct Sequence<'m> {
    model: &'m Model,
    cache: Cache,
    /// What was fed.
    ids: Vec<u32>,
    /// `[vocabulary]`, f32.
    logits: Array,
    encode_time: Duration,
}

impl<'m> Sequence<'m> {
    pub(crate) fn new(
        model: &'m Model,
        cache: Cache,
        ids: Vec<u32>,
        logits: Array,
        encode_time: Duration,
    ) -> Self {
        Self {
            model,
            cache,
            ids,
            logits,
            encode_time,
        }
    }

    /// What was fed, and what the model keeps of it.
    pub(crate) fn into_parts(self) -> (Cache, Vec<u32>) {
        (self.cache, self.ids)
    }

    pub(crate) fn model(&self) -> &'m Model {
        self.model
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The tokens fed so far.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens fed so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.cache.offset()
    }

    /// How long the prompt's media took in their towers.
    #[must_use]
    pub fn encode_time(&self) -> Duration {
        self.encode_time
    }

    /// The logits of the next token, one an entry of the vocabulary.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn logits(&self) -> Result<Vec<f32>> {
        read(&self.logits)
    }

    /// Feeds one token.
    ///
    /// # Errors
    /// [`Error::TokenId`] and [`Error::ContextLength`], [`Error::Mlx`].
    pub fn feed(&mut self, id: u32) -> Result<()> {
        self.model.limits().check_id(id)?;
        self.check_room()?;
        self.feed_array(&Array::from_slice(&[id as i32], &[1, 1]))?;
        eval([&self.logits])?;
        self.ids.push(id);
        Ok(())
    }

    /// The most likely tokens, one after the other.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn greedy(&mut self) -> Result<Decoder<'_, 'm>> {
        self.decode(&Sampling::greedy(), None)
    }

    /// Tokens chosen as `sampling` says, one after the other. With `top_logprobs`, each
    /// comes with its log-probability and those of that many of the most likely tokens.
    ///
    /// # Errors
    /// [`Error::Sampling`], [`Error::Mlx`].
    pub fn decode(
        &mut self,
        sampling: &Sampling,
        top_logprobs: Option<usize>,
    ) -> Result<Decoder<'_, 'm>> {
        sampling.check()?;
        if let Some((&id, _)) = sampling.bias.last_key_value() {
            self.model.limits().check_id(id)?;
        }
        let mut sampler = Sampler::new(sampling, &self.ids, top_logprobs);
        let next = sampler.choose(&self.logits)?;
        begin(&next)?;
        Ok(Decoder {
            sequence: self,
            sampler,
            next,
        })
    }

    fn check_room(&self) -> Result<()> {
        let (tokens, limit) = (self.position() + 1, self.model.max_positions());
        if tokens > limit {
            return Err(Error::ContextLength { tokens, limit });
        }
        Ok(())
    }

    /// `id` is `[1, 1]`.
    fn feed_array(&mut self, id: &Array) -> Result<()> {
        self.logits = self.model.step(id, &mut self.cache)?;
        Ok(())
    }
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its log-probability and its rivals', if they were asked for.
    pub logprobs: Option<TokenLogProbs>,
}

/// Log-probabilities (natural logarithm) of a step, after bias and penalties, before
/// filters and temperature.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenLogProbs {
    /// The chosen token.
    pub id: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely tokens, the first first, each with its log-probability.
    pub top: Vec<(u32, f32)>,
}

/// Decoding. The step after a token is queued before the token is read, so that the device
/// never waits for the host.
#[derive(Debug)]
pub struct Decoder<'s, 'm> {
    sequence: &'s mut Sequence<'m>,
    sampler: Sampler,
    next: Choice,
}

impl Decoder<'_, '_> {
    /// The next token. With `last`, the step after it is not begun.
    ///
    /// # Errors
    /// [`Error::ContextLength`] if there is no room for the token, [`Error::Mlx`].
    pub fn step(&mut self, last: bool) -> Result<Token> {
        let current = self.next.clone();
        if !last {
            self.sequence.check_room()?;
            self.sequence.feed_array(&current.token)?;
            self.next = self.sampler.choose(&self.sequence.logits)?;
            begin(&self.next)?;
        }
        let id = current
            .token
            .try_item_exact::<i32>()
            .map_err(|error| Error::Conversion(error.to_string()))? as u32;
        if !last {
            self.sequence.ids.push(id);
        }
        let logprobs = match &current.logprobs {
            Some(logprobs) => Some(read_logprobs(id, logprobs)?),
            None => None,
        };
        Ok(Token { id, logprobs })
    }
}

impl Decoder<'_, '_> {
    /// Makes `id` the next token, whatever was chosen.
    ///
    /// # Errors
    /// [`Error::TokenId`], [`Error::Mlx`].
    pub fn force(&mut self, id: u32) -> Result<()> {
        self.sequence.model.limits().check_id(id)?;
        let token = Array::from_slice(&[id as i32], &[1, 1]);
        self.sampler.replace_last(&token)?;
        self.next = Choice {
            token,
            logprobs: None,
        };
        Ok(())
    }
}

/// Queues the computation of a choice.
fn begin(choice: &Choice) -> Result<()> {
    let logprobs = choice.logprobs.iter().flat_map(|logprobs| {
        let top = logprobs.top.iter().flat_map(|(ids, values)| [ids, values]);
        std::iter::once(&logprobs.chosen).chain(top)
    });
    Ok(async_eval(std::iter::once(&choice.token).chain(logprobs))?)
}

fn read_logprobs(id: u32, logprobs: &LogProbs) -> Result<TokenLogProbs> {
    let logprob = read(&logprobs.chosen)?.first().copied().unwrap_or(f32::NAN);
    let mut top: Vec<(u32, f32)> = match &logprobs.top {
        Some((ids, values)) => {
            let ids = ids
                .as_dtype(Dtype::Int32)?
                .to_vec_exact::<i32>()
                .map_err(|error| Error::Conversion(error.to_string()))?;
            let ids = ids.into_iter().map(|id| id as u32);
            ids.zip(read(values)?).collect()
        }
        None => Vec::new(),
    };
    top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    Ok(TokenLogProbs { id, logprob, top })
}

fn read(array: &Array) -> Result<Vec<f32>> {
    array
        .to_vec_exact()
        .map_err(|error| Error::Conversion(error.to_string()))
}
