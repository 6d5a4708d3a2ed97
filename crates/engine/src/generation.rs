//! One answer: the events that come back from the runtime thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_channel::Receiver;
use futures_core::Stream;
use prefill_multimodal_prompt::ToolCall;

use crate::cancel::CancelToken;
use crate::engine::Loaded;
use crate::model::Progress;
use crate::reuse::Reused;
use crate::runtime;
use crate::sequence::TokenLogProbs;
use crate::{Error, Result};

/// What happens in the course of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Tokens of the prompt fed so far.
    Prefill(Progress),
    /// More of the answer; whole characters.
    Text(String),
    /// More of what the model thinks before it answers.
    Reasoning(String),
    /// A call of a tool, whole.
    ToolCall(ToolCall),
    /// What was written as a tool call and can't be read as one.
    BrokenToolCall {
        /// What stands between the call's tags.
        text: String,
        /// What is wrong with it.
        fact: String,
    },
    /// A token's log-probability, if the request asked for it; before the token's text.
    LogProbs(TokenLogProbs),
    /// The end.
    Finished(Finished),
}

/// How an answer ended, and what it took.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finished {
    /// Why it ended.
    pub reason: FinishReason,
    /// The stop string that ended it, if one did.
    pub stop_string: Option<String>,
    /// What it took.
    pub statistics: Statistics,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended it, or a stop string.
    Stop,
    /// The model ended it after calling tools, whose results it waits for.
    ToolCalls,
    /// It reached the tokens that the request or the model allows.
    Length,
    /// The request's time was up.
    Deadline,
    /// Somebody cancelled the request.
    Cancelled,
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
    /// Of the decoding, outside MLX: text, stop strings, events.
    pub host_time: Duration,
    /// What was found of earlier computations, and why not more.
    pub reused: Reused,
    /// Bytes that MLX had in use at the end.
    pub active_memory: usize,
    /// Bytes of freed buffers that MLX kept for later.
    pub cache_memory: usize,
    /// The most memory that MLX has had in use at once since the process began, in bytes.
    pub peak_memory: usize,
}

impl Statistics {
    /// Tokens of the prompt that were computed a second of prefill; 0 if none was measured.
    #[must_use]
    pub fn prefill_rate(&self) -> f64 {
        rate(self.computed_tokens(), self.prefill_time)
    }

    /// Tokens of the prompt that were fed, and not found.
    #[must_use]
    pub fn computed_tokens(&self) -> usize {
        self.prompt_tokens - self.reused.tokens().min(self.prompt_tokens)
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
    events: Pin<Box<Receiver<Result<Event>>>>,
    cancel: CancelToken,
    dropped: Arc<AtomicBool>,
    ended: bool,
    /// The model stays loaded as long as its answers are awaited.
    _loaded: Arc<Loaded>,
}

impl Generation {
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        events: Receiver<Result<Event>>,
        cancel: CancelToken,
    ) -> Self {
        Self {
            events: Box::pin(events),
            cancel,
            dropped: Arc::default(),
            ended: false,
            _loaded: loaded,
        }
    }

    /// Set when nobody listens any more.
    pub(crate) fn dropped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.dropped)
    }

    /// What ends this answer early, from another thread.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
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

    /// The same events for asynchronous programs; any executor will do.
    #[must_use]
    pub fn into_stream(self) -> EventStream {
        EventStream(self)
    }

    /// Notes whether an event is the last.
    fn watch(&mut self, event: Option<Result<Event>>) -> Result<Event> {
        let event = event.unwrap_or(Err(Error::RuntimeGone));
        self.ended = matches!(event, Err(_) | Ok(Event::Finished(_)));
        event
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if runtime::is_current() {
            self.ended = true;
            return Some(Err(Error::OnRuntimeThread));
        }
        let event = self.events.recv_blocking().ok();
        Some(self.watch(event))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

/// [`Generation`] as a [`Stream`]: nothing blocks, and dropping it cancels the work.
#[derive(Debug)]
pub struct EventStream(Generation);

impl Stream for EventStream {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.0.ended {
            return Poll::Ready(None);
        }
        match self.0.events.as_mut().poll_next(context) {
            Poll::Ready(event) => Poll::Ready(Some(self.0.watch(event))),
            Poll::Pending => Poll::Pending,
        }
    }
}
