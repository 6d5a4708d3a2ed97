//! What is asked of an engine.

use std::collections::BTreeSet;
use std::time::Duration;

use prefill_multimodal_prompt::{Conversation, TemplateOptions};

use crate::cancel::CancelToken;
use crate::prompt::PreparedPrompt;
use crate::reuse::CachePolicy;
use crate::sampling::Sampling;
use crate::{Error, Result};

/// What to generate, and how.
///
/// ```
/// use std::time::Duration;
/// use prefill_engine::{Conversation, Request, Sampling};
///
/// let request = Request::new(Conversation::user("Name three rivers.", []))
///     .max_tokens(64)
///     .sampling(Sampling::greedy().temperature(0.7).seed(1))
///     .stop("\n\n")
///     .deadline(Duration::from_secs(10));
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) input: Input,
    pub(crate) template: TemplateOptions,
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_ids: BTreeSet<u32>,
    pub(crate) ignores_ends: bool,
    pub(crate) deadline: Option<Duration>,
    pub(crate) cancel: CancelToken,
    pub(crate) top_logprobs: Option<usize>,
    pub(crate) thinking_budget: Option<usize>,
    pub(crate) is_plain: bool,
    pub(crate) cache: CachePolicy,
    pub(crate) salt: Option<Vec<u8>>,
}

/// What a prompt is made from.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Conversation(Conversation),
    Ids(Vec<u32>),
    Prepared(Box<PreparedPrompt>),
}

impl Request {
    /// Tokens that an answer has at most, unless the request says otherwise.
    pub const DEFAULT_MAX_TOKENS: usize = 1024;
    /// Stop strings that a request may have.
    pub const MAX_STOPS: usize = 64;
    /// Bytes that a stop string may have.
    pub const MAX_STOP_LENGTH: usize = 4096;
    /// Of how many tokens a request may ask log-probabilities at each step.
    pub const MAX_TOP_LOGPROBS: usize = 1000;

    /// A request to continue `conversation`.
    #[must_use]
    pub fn new(conversation: Conversation) -> Self {
        Self::of(Input::Conversation(conversation))
    }

    /// A request to continue these token ids, as they are: no template is rendered, and
    /// nothing is put before them.
    #[must_use]
    pub fn from_ids(ids: Vec<u32>) -> Self {
        Self::of(Input::Ids(ids))
    }

    /// A request to continue a prompt that [`Preparer::prepare`](crate::Preparer::prepare) of
    /// the same checkpoint made.
    #[must_use]
    pub fn from_prepared(prompt: PreparedPrompt) -> Self {
        Self::of(Input::Prepared(Box::new(prompt)))
    }

    fn of(input: Input) -> Self {
        Self {
            input,
            template: TemplateOptions::default(),
            max_tokens: Self::DEFAULT_MAX_TOKENS,
            sampling: None,
            stop: Vec::new(),
            stop_ids: BTreeSet::new(),
            ignores_ends: false,
            deadline: None,
            cancel: CancelToken::new(),
            top_logprobs: None,
            thinking_budget: None,
            is_plain: false,
            cache: CachePolicy::default(),
            salt: None,
        }
    }

    /// Ends the answer after this many tokens. 0 fills the caches with the prompt, and
    /// answers nothing.
    #[must_use]
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// Tools and variables for the chat template.
    #[must_use]
    pub fn template(mut self, template: TemplateOptions) -> Self {
        self.template = template;
        self
    }

    /// How tokens are chosen; otherwise as the checkpoint's `generation_config.json` asks.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// Ends the answer before this string, which is not part of it. May be called several
    /// times.
    #[must_use]
    pub fn stop(mut self, string: impl Into<String>) -> Self {
        self.stop.push(string.into());
        self
    }

    /// Ends the answer at this token too. May be called several times.
    #[must_use]
    pub fn stop_id(mut self, id: u32) -> Self {
        self.stop_ids.insert(id);
        self
    }

    /// Goes on after the tokens by which the checkpoint ends an answer.
    #[must_use]
    pub fn ignore_ends(mut self) -> Self {
        self.ignores_ends = true;
        self
    }

    /// Ends the answer when this time has passed since the request was made, waiting and
    /// prefill included.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// A token that cancels this request; one may serve several.
    #[must_use]
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Reports each token's log-probability, and those of the `top` most likely.
    #[must_use]
    pub fn logprobs(mut self, top: usize) -> Self {
        self.top_logprobs = Some(top);
        self
    }

    /// Ends the model's thoughts after this many tokens; it then goes on with its answer.
    #[must_use]
    pub fn thinking_budget(mut self, tokens: usize) -> Self {
        self.thinking_budget = Some(tokens);
        self
    }

    /// Gives the answer as it is written, thoughts and tool calls as text. Answers to
    /// [`from_ids`](Self::from_ids) come so in any case.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// What it does with what the engine keeps.
    #[must_use]
    pub fn cache(mut self, policy: CachePolicy) -> Self {
        self.cache = policy;
        self
    }

    /// A name for who asks. Requests with different names (or one without) never find what
    /// was kept for the other, not even features of media: neither content nor time tells
    /// one tenant of a program what another asked.
    #[must_use]
    pub fn tenant(mut self, salt: impl Into<Vec<u8>>) -> Self {
        self.salt = Some(salt.into());
        self
    }

    /// Whether every setting can be followed.
    ///
    /// # Errors
    /// [`Error::Sampling`], [`Error::Request`].
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |setting, fact| Err(Error::Request { setting, fact });
        if let Some(sampling) = &self.sampling {
            sampling.check()?;
        }
        if self.stop.len() > Self::MAX_STOPS {
            let fact = format!("{} strings, at most {}", self.stop.len(), Self::MAX_STOPS);
            return refused("stop", fact);
        }
        for string in &self.stop {
            if string.is_empty() {
                return refused("stop", "an empty string is everywhere".to_owned());
            }
            if string.len() > Self::MAX_STOP_LENGTH {
                let fact = format!("{} bytes, at most {}", string.len(), Self::MAX_STOP_LENGTH);
                return refused("stop", fact);
            }
        }
        match self.top_logprobs {
            Some(top) if top > Self::MAX_TOP_LOGPROBS => {
                let fact = format!("{top} tokens, at most {}", Self::MAX_TOP_LOGPROBS);
                refused("logprobs", fact)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_followed_are_named() {
        let request = || Request::from_ids(vec![1]);
        for (request, setting) in [
            (request().stop(""), "stop"),
            (request().stop("x".repeat(5000)), "stop"),
            (
                (0..65).fold(request(), |r, i| r.stop(i.to_string())),
                "stop",
            ),
            (request().logprobs(1001), "logprobs"),
        ] {
            match request.check() {
                Err(Error::Request { setting: found, .. }) => assert_eq!(found, setting),
                other => panic!("{setting}: {other:?}"),
            }
        }
        let wrong = request().sampling(Sampling::greedy().top_p(7.0));
        assert!(matches!(wrong.check(), Err(Error::Sampling { .. })));
        request().stop("a").logprobs(0).check().unwrap();
    }
}
