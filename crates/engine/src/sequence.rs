//! A sequence that a model works on: what was fed, and what comes next.

mod snapshot;

use std::time::Duration;

use mlx_rs::ops::indexing::argmax;
use mlx_rs::transforms::{async_eval, eval};
use mlx_rs::{Array, Dtype};

use crate::cache::Cache;
use crate::model::Model;
use crate::{Error, Result};
pub use snapshot::Snapshot;

/// Tokens fed so far, and what the model says of the next.
#[derive(Debug)]
pub struct Sequence<'m> {
    model: &'m Model,
    cache: Cache,
    /// `[vocabulary]`, f32.
    logits: Array,
    encode_time: Duration,
}

impl<'m> Sequence<'m> {
    pub(crate) fn new(
        model: &'m Model,
        cache: Cache,
        logits: Array,
        encode_time: Duration,
    ) -> Self {
        Self {
            model,
            cache,
            logits,
            encode_time,
        }
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
        self.logits
            .to_vec_exact()
            .map_err(|error| Error::Conversion(error.to_string()))
    }

    /// Feeds one token.
    ///
    /// # Errors
    /// [`Error::TokenId`] and [`Error::ContextLength`], [`Error::Mlx`].
    pub fn feed(&mut self, id: u32) -> Result<()> {
        self.model.check_id(id)?;
        self.check_room()?;
        self.feed_array(&Array::from_slice(&[id as i32], &[1, 1]))?;
        Ok(eval([&self.logits])?)
    }

    /// The most likely tokens, one after the other.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn greedy(&mut self) -> Result<Greedy<'_, 'm>> {
        let next = self.most_likely()?;
        async_eval([&next])?;
        Ok(Greedy {
            sequence: self,
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

    /// `[1, 1]`, i32.
    fn most_likely(&self) -> Result<Array> {
        Ok(argmax(&self.logits, false)?
            .as_dtype(Dtype::Int32)?
            .reshape(&[1, 1])?)
    }
}

/// Greedy decoding. The step after a token is queued before the token is read, so that
/// the device never waits for the host.
#[derive(Debug)]
pub struct Greedy<'s, 'm> {
    sequence: &'s mut Sequence<'m>,
    next: Array,
}

impl Greedy<'_, '_> {
    /// The next token. With `last`, the step after it is not begun.
    ///
    /// # Errors
    /// [`Error::ContextLength`] if there is no room for the token, [`Error::Mlx`].
    pub fn step(&mut self, last: bool) -> Result<u32> {
        let current = self.next.clone();
        if !last {
            self.sequence.check_room()?;
            self.sequence.feed_array(&current)?;
            self.next = self.sequence.most_likely()?;
            async_eval([&self.next])?;
        }
        let id = current
            .try_item_exact::<i32>()
            .map_err(|error| Error::Conversion(error.to_string()))?;
        Ok(id as u32)
    }
}
