//! One answer: the work on the runtime thread, and the events that come back.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use prefill_multimodal_prompt::TextStream;

use crate::engine::Loaded;
use crate::model::{Model, Progress};
use crate::prompt::PreparedPrompt;
use crate::runtime;
use crate::sampling::Sampling;
use crate::{Error, Result};

/// Tokens after which MLX's cache of freed buffers is emptied, as mlx-lm has it.
const CLEAR_CACHE_EVERY: usize = 256;

/// What happens in the course of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Tokens of the prompt fed so far.
    Prefill(Progress),
    /// More of the answer; whole characters.
    Text(String),
    /// The end.
    Finished(Finished),
}

/// How an answer ended, and what it took.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finished {
    /// Why it ended.
    pub reason: FinishReason,
    /// What it took.
    pub statistics: Statistics,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended it.
    Stop,
    /// It reached the tokens that the request or the model allows.
    Length,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Tokens of the prompt, media included.
    pub prompt_tokens: usize,
    /// Tokens of the answer, the one that ended it included.
    pub generated_tokens: usize,
    /// From the request to the runtime's turning to it: preparation, then waiting.
    pub queue_time: Duration,
    /// In the towers of media.
    pub encode_time: Duration,
    /// In feeding the prompt, towers included.
    pub prefill_time: Duration,
    /// From the request to the answer's first token.
    pub time_to_first_token: Duration,
    /// From the first token to the last.
    pub decode_time: Duration,
    /// The most memory that MLX has had in use at once since the process began, in bytes.
    pub peak_memory: usize,
}

impl Statistics {
    /// Tokens of the prompt a second of prefill; 0 if none was measured.
    #[must_use]
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill_time)
    }

    /// Tokens a second after the first; 0 if there is only one.
    #[must_use]
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.decode_time)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// An answer under way: an iterator of [`Event`]s, the last of which is
/// [`Event::Finished`] or an error. Dropping it cancels the work, also during prefill.
#[derive(Debug)]
pub struct Generation {
    loaded: Arc<Loaded>,
    tokens: Receiver<Result<Step>>,
    cancelled: Arc<AtomicBool>,
    text: TextStream,
    /// Held while the last text goes before it.
    finish: Option<Finished>,
    ended: bool,
}

impl Generation {
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        tokens: Receiver<Result<Step>>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        Self {
            loaded,
            tokens,
            cancelled,
            text: TextStream::default(),
            finish: None,
            ended: false,
        }
    }

    /// Waits for the end, and gives the whole text.
    ///
    /// # Errors
    /// The first error of the computation.
    pub fn text(self) -> Result<String> {
        let mut text = String::new();
        for event in self {
            if let Event::Text(more) = event? {
                text += &more;
            }
        }
        Ok(text)
    }

    /// The next event, or nothing if this step gives none.
    fn advance(&mut self) -> Result<Option<Event>> {
        let tokens = self.loaded.preparer.tokens();
        if runtime::is_current() {
            return Err(Error::OnRuntimeThread);
        }
        let text = match self.tokens.recv().map_err(|_| Error::RuntimeGone)?? {
            Step::Prefill(progress) => return Ok(Some(Event::Prefill(progress))),
            Step::Token(id) => self.text.push(tokens, id)?,
            Step::Finished(finished) => {
                let rest = self.text.finish(tokens)?;
                if rest.is_empty() {
                    self.ended = true;
                    return Ok(Some(Event::Finished(finished)));
                }
                self.finish = Some(finished);
                rest
            }
        };
        Ok((!text.is_empty()).then_some(Event::Text(text)))
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(finished) = self.finish.take() {
            self.ended = true;
            return Some(Ok(Event::Finished(finished)));
        }
        while !self.ended {
            match self.advance() {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// What the runtime thread sends: ids become text on the other side.
#[derive(Debug)]
pub(crate) enum Step {
    Prefill(Progress),
    Token(u32),
    Finished(Finished),
}

/// A prepared request, on its way to the runtime thread.
pub(crate) struct Work {
    pub prepared: PreparedPrompt,
    pub max_tokens: usize,
    pub sampling: Sampling,
    pub stop_ids: BTreeSet<u32>,
    pub asked: Instant,
    pub cancelled: Arc<AtomicBool>,
    pub events: Sender<Result<Step>>,
}

impl Work {
    /// Generates on the runtime thread.
    pub(crate) fn run(self, model: Option<&Model>) {
        let span = tracing::info_span!("generate", prompt_tokens = self.prepared.prompt.ids.len());
        let _entered = span.enter();
        let generate = || {
            let model = model.ok_or(Error::RuntimeGone)?;
            self.generate(model)
        };
        let result = catch_unwind(AssertUnwindSafe(generate))
            .unwrap_or_else(|panic| Err(Error::Panicked(runtime::message(&*panic))));
        match result {
            // Whoever cancelled is no longer listening.
            Err(Error::Cancelled) => tracing::debug!("cancelled"),
            Ok(finished) => self.send(Ok(Step::Finished(finished))),
            Err(error) => self.send(Err(error)),
        }
    }

    fn send(&self, step: Result<Step>) {
        // A receiver that is gone has set `cancelled`, which the next step sees.
        let _ = self.events.send(step);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn generate(&self, model: &Model) -> Result<Finished> {
        let mut statistics = Statistics {
            prompt_tokens: self.prepared.prompt.ids.len(),
            queue_time: self.asked.elapsed(),
            ..Statistics::default()
        };
        let started = Instant::now();
        let mut sequence = model.prefill(&self.prepared, &mut |progress| {
            self.send(Ok(Step::Prefill(progress)));
            if self.is_cancelled() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        statistics.encode_time = sequence.encode_time();
        statistics.prefill_time = started.elapsed();

        // The answer's last token is never fed, so one fits beyond the positions.
        let room = model.max_positions() - self.prepared.prompt.ids.len() + 1;
        let limit = self.max_tokens.min(room);
        let mut reason = FinishReason::Length;
        let mut first_token = None;
        let mut decoder = sequence.decode(&self.sampling, None)?;
        while statistics.generated_tokens < limit {
            if self.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let token = decoder.step(statistics.generated_tokens + 1 == limit)?;
            let id = token.id;
            statistics.generated_tokens += 1;
            first_token.get_or_insert_with(Instant::now);
            if self.stop_ids.contains(&id) {
                reason = FinishReason::Stop;
                break;
            }
            self.send(Ok(Step::Token(id)));
            if statistics
                .generated_tokens
                .is_multiple_of(CLEAR_CACHE_EVERY)
            {
                mlx_rs::memory::clear_cache()?;
            }
        }
        if let Some(first) = first_token {
            statistics.time_to_first_token = first.duration_since(self.asked);
            statistics.decode_time = first.elapsed();
        }
        statistics.peak_memory = mlx_rs::memory::peak_memory()?;
        Ok(Finished { reason, statistics })
    }
}
