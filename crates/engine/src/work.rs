//! One request on the runtime thread.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_channel::Sender;

use crate::cancel::CancelToken;
use crate::generation::{Event, FinishReason, Finished, Statistics};
use crate::model::Model;
use crate::output::Output;
use crate::prompt::PreparedPrompt;
use crate::reuse::{self, Lookup};
use crate::runtime::{self, ModelId, Models};
use crate::sampling::Sampling;
use crate::sequence::Sequence;
use crate::{Error, Result};

/// Tokens after which MLX's cache of freed buffers is emptied, as mlx-lm has it.
const CLEAR_CACHE_EVERY: usize = 256;

/// A prepared request, on its way to the runtime thread.
pub(crate) struct Work {
    pub model: ModelId,
    pub prepared: PreparedPrompt,
    pub lookup: Lookup,
    pub max_tokens: usize,
    pub sampling: Sampling,
    pub top_logprobs: Option<usize>,
    pub stop_ids: BTreeSet<u32>,
    pub output: Output,
    pub asked: Instant,
    pub signals: Signals,
    pub events: Sender<Result<Event>>,
}

/// What may end work before it is done.
#[derive(Debug)]
pub(crate) struct Signals {
    pub deadline: Option<Instant>,
    pub cancel: CancelToken,
    /// Nobody listens any more.
    pub dropped: Arc<AtomicBool>,
}

impl Signals {
    /// Why the work is to end now, if it is.
    fn interruption(&self) -> Option<FinishReason> {
        let is_over = |deadline| Instant::now() >= deadline;
        if self.dropped.load(Ordering::Relaxed) || self.cancel.is_cancelled() {
            Some(FinishReason::Cancelled)
        } else if self.deadline.is_some_and(is_over) {
            Some(FinishReason::Deadline)
        } else {
            None
        }
    }
}

impl Work {
    /// Generates on the runtime thread.
    pub(crate) fn run(mut self, models: &mut Models) {
        let span = tracing::info_span!("generate", prompt_tokens = self.prepared.prompt.ids.len());
        let _entered = span.enter();
        let result = catch_unwind(AssertUnwindSafe(|| self.generate(models)))
            .unwrap_or_else(|panic| Err(Error::Panicked(runtime::message(&*panic))));
        self.send(result.map(Event::Finished));
    }

    fn send(&self, event: Result<Event>) {
        // A receiver that is gone has set `dropped`, which the next step sees.
        let _ = self.events.force_send(event);
    }

    fn send_all(&self, events: Vec<Event>) {
        for event in events {
            self.send(Ok(event));
        }
    }

    fn generate(&mut self, models: &mut Models) -> Result<Finished> {
        let model = models.loaded.get(&self.model).cloned();
        let model = model.ok_or(Error::Unloaded)?;
        let prompt_tokens = self.prepared.prompt.ids.len();
        let mut statistics = Statistics {
            prompt_tokens,
            queue_time: self.asked.elapsed(),
            ..Statistics::default()
        };
        // The answer's last token is never fed, so one fits beyond the positions.
        let room = model.limits().positions - prompt_tokens + 1;
        let limit = self.max_tokens.min(room);
        let needed = model.request_bytes(prompt_tokens + limit);
        models.make_room(needed)?;
        let end = match self.prefill(&model, &mut statistics)? {
            Prefilled::Done(mut sequence) => {
                let end = self.decode(&mut sequence, limit, models, &mut statistics)?;
                reuse::keep_answer(&sequence, &mut self.lookup);
                statistics.reused = self.lookup.reused();
                end
            }
            Prefilled::Interrupted(reason) => reason.into(),
        };
        statistics.active_memory = mlx_rs::memory::active_memory()?;
        statistics.cache_memory = mlx_rs::memory::cache_memory()?;
        statistics.peak_memory = mlx_rs::memory::peak_memory()?;
        Ok(Finished {
            reason: end.reason,
            stop_string: end.stop_string,
            statistics,
        })
    }

    fn prefill<'m>(
        &mut self,
        model: &'m Model,
        statistics: &mut Statistics,
    ) -> Result<Prefilled<'m>> {
        let started = Instant::now();
        let mut interruption = None;
        let (events, signals) = (&self.events, &self.signals);
        let prefilled = reuse::prefill(model, &self.prepared, &mut self.lookup, &mut |progress| {
            // A receiver that is gone has set `dropped`, which is seen here.
            let _ = events.force_send(Ok(Event::Prefill(progress)));
            interruption = signals.interruption();
            match interruption {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        statistics.prefill_time = started.elapsed();
        statistics.reused = self.lookup.reused();
        match (prefilled, interruption) {
            (Err(Error::Cancelled), Some(reason)) => Ok(Prefilled::Interrupted(reason)),
            (prefilled, _) => {
                let sequence = prefilled?;
                statistics.encode_time = sequence.encode_time();
                Ok(Prefilled::Done(sequence))
            }
        }
    }

    /// Decodes at most `limit` tokens; says why no more.
    fn decode(
        &mut self,
        sequence: &mut Sequence<'_>,
        limit: usize,
        models: &mut Models,
        statistics: &mut Statistics,
    ) -> Result<End> {
        let mut decoder = sequence.decode(&self.sampling, self.top_logprobs)?;
        let mut first_token = None;
        let mut end = End::from(FinishReason::Length);
        while statistics.generated_tokens < limit {
            if let Some(reason) = self.signals.interruption() {
                end = reason.into();
                break;
            }
            let token = decoder.step(statistics.generated_tokens + 1 == limit)?;
            statistics.generated_tokens += 1;
            first_token.get_or_insert_with(Instant::now);
            let host = Instant::now();
            if let Some(logprobs) = token.logprobs {
                self.send(Ok(Event::LogProbs(logprobs)));
            }
            if self.stop_ids.contains(&token.id) {
                end = FinishReason::Stop.into();
                break;
            }
            let added = self.output.take(token.id)?;
            self.send_all(added.events);
            statistics.host_time += host.elapsed();
            if let Some(stop_string) = added.stop_string {
                end.stop_string = Some(stop_string);
                break;
            }
            if let Some(id) = added.forced {
                decoder.force(id)?;
            }
            models.run_urgent();
            let tokens = statistics.generated_tokens;
            if tokens.is_multiple_of(CLEAR_CACHE_EVERY) {
                mlx_rs::memory::clear_cache()?;
            }
        }
        if let Some(first) = first_token {
            statistics.time_to_first_token = first.duration_since(self.asked);
            statistics.decode_time = first.elapsed();
        }
        self.conclude(end)
    }

    /// Sends what is held back, which may still hold a stop string.
    fn conclude(&mut self, mut end: End) -> Result<End> {
        if end.stop_string.is_none() {
            let rest = self.output.finish()?;
            self.send_all(rest.events);
            end.stop_string = rest.stop_string;
        }
        if end.stop_string.is_some() {
            end.reason = FinishReason::Stop;
        }
        if end.reason == FinishReason::Stop && self.output.has_calls() {
            end.reason = FinishReason::ToolCalls;
        }
        Ok(end)
    }
}

/// What a prefill comes to.
enum Prefilled<'m> {
    Done(Sequence<'m>),
    Interrupted(FinishReason),
}

/// Why an answer ends.
struct End {
    reason: FinishReason,
    stop_string: Option<String>,
}

impl From<FinishReason> for End {
    fn from(reason: FinishReason) -> Self {
        Self {
            reason,
            stop_string: None,
        }
    }
}
