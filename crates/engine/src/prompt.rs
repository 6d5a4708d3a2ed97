//! Conversations to prepared prompts: all that happens before MLX, on any thread.

mod media;

use std::collections::BTreeMap;

pub use prefill_multimodal_prompt::{
    AnswerFormat, Conversation, MediaKind, MediaSource, Message, MessageRules, Mrope, Positions,
    Prompt, Span, TemplateOptions, ToolCall,
};
use prefill_multimodal_prompt::{ChatTemplate, Tokens};
#[cfg(feature = "fetch")]
pub use prefill_multimodal_prompt::{FetchPolicy, Fetcher};

pub use self::media::PreparedMedium;
use self::media::{Media, Medium};
use crate::checkpoint::Checkpoint;
use crate::output;
use crate::{Error, Result};

/// Turns conversations into prompts for one checkpoint: decoding and preprocessing of
/// media, the chat template, tokens, splicing.
///
/// ```no_run
/// use prefill_engine::{Checkpoint, Conversation, MediaKind, Preparer, TemplateOptions};
///
/// let preparer = Preparer::open(&Checkpoint::open("model")?)?;
/// let conversation = Conversation::user("What is here?", [(MediaKind::Image, "a.png".into())]);
/// let prepared = preparer.prepare(&conversation, &TemplateOptions::default())?;
/// println!("{} tokens", prepared.prompt.ids.len());
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Preparer {
    template: ChatTemplate,
    tokens: Tokens,
    media: Media,
    bos_token: String,
    eos_token: String,
    answers: Option<Answers>,
    #[cfg(feature = "fetch")]
    fetcher: Option<Fetcher>,
}

/// How the model writes its answers.
#[derive(Debug)]
struct Answers {
    format: AnswerFormat,
    /// The tags that are single tokens, by id.
    tags: BTreeMap<u32, String>,
    /// What opens and closes its thoughts.
    reasoning: Option<(u32, u32)>,
}

impl Answers {
    fn new(format: AnswerFormat, tokens: &Tokens) -> Self {
        let tags = output::tags(format);
        let id = |tag: &str| tokens.id(tag);
        Self {
            format,
            tags: tags
                .iter()
                .filter_map(|tag| Some((id(tag)?, (*tag).to_owned())))
                .collect(),
            // The first two tags of every format.
            reasoning: id(tags[0]).zip(id(tags[1])),
        }
    }
}

/// A prompt with its media, ready for the MLX thread.
#[derive(Debug, Clone)]
pub struct PreparedPrompt {
    /// What the template rendered, markers not yet expanded; empty where ids were given.
    pub text: String,
    /// Ids and spans.
    pub prompt: Prompt,
    /// The media, in document order.
    pub media: Vec<PreparedMedium>,
}

impl PreparedPrompt {
    /// Token ids alone.
    pub(crate) fn from_ids(ids: Vec<u32>) -> Self {
        Self {
            text: String::new(),
            prompt: Prompt::from_ids(ids),
            media: Vec::new(),
        }
    }
}

impl Preparer {
    /// Reads what a checkpoint's folder says of templates, tokens and media.
    ///
    /// # Errors
    /// An error that names the file which is missing or not as it should be.
    pub fn open(checkpoint: &Checkpoint) -> Result<Self> {
        let folder = checkpoint.folder();
        let tokens = Tokens::from_folder(folder)?;
        let (bos_token, eos_token) = checkpoint.sequence_tokens()?;
        let template = ChatTemplate::from_folder(folder)?;
        if bos_token.is_empty() && template.reads("bos_token") {
            let fact = "it names no bos_token, and the chat template writes it";
            return Err(Error::bad_file(&folder.join("tokenizer_config.json"), fact));
        }
        Ok(Self {
            template,
            media: Media::open(checkpoint, &tokens)?,
            answers: answer_format(checkpoint.model_type())
                .map(|format| Answers::new(format, &tokens)),
            tokens,
            bos_token,
            eos_token,
            #[cfg(feature = "fetch")]
            fetcher: None,
        })
    }

    /// Has media that a conversation names by URL fetched by `fetcher`; without one they are
    /// refused. [`prepare`](Self::prepare) then waits for them, one after the other.
    #[cfg(feature = "fetch")]
    #[must_use]
    pub fn with_fetcher(mut self, fetcher: Fetcher) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    /// Renders, tokenises and splices a conversation, and prepares its media. Of `options`,
    /// the sequence tokens are the checkpoint's, and the assistant's turn is always opened.
    ///
    /// # Errors
    /// [`Error::NoTower`] for a kind of medium that the checkpoint does not take,
    /// [`Error::NoSource`], [`Error::NoFetcher`] and [`Error::Media`] for one that can't be
    /// read, and [`Error::Prompt`] if template and media do not fit, or a URL can't be fetched.
    pub fn prepare(
        &self,
        conversation: &Conversation,
        options: &TemplateOptions,
    ) -> Result<PreparedPrompt> {
        // Before any work, since this can't succeed.
        for &(kind, _) in conversation.media() {
            self.media.check(kind)?;
        }
        let media = conversation
            .media()
            .iter()
            .enumerate()
            .map(|(index, (kind, source))| {
                let fetched = self.fetched(*kind, source)?;
                self.media.prepare(Medium {
                    kind: *kind,
                    index,
                    source: fetched.as_ref().unwrap_or(source),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let options = TemplateOptions {
            add_generation_prompt: true,
            bos_token: self.bos_token.clone(),
            eos_token: self.eos_token.clone(),
            ..options.clone()
        };
        let text = self.template.render(conversation.messages(), &options)?;
        let prompt = self.media.splice(&self.tokens, &text, &media)?;
        if prompt.ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        Ok(PreparedPrompt {
            text,
            prompt,
            media,
        })
    }

    /// What a URL leads to, if a source is one and URLs may be fetched.
    #[cfg(feature = "fetch")]
    fn fetched(&self, kind: MediaKind, source: &MediaSource) -> Result<Option<MediaSource>> {
        Ok(match (source, &self.fetcher) {
            (MediaSource::Url(url), Some(fetcher)) => {
                Some(MediaSource::Bytes(fetcher.fetch(kind, url)?))
            }
            _ => None,
        })
    }

    #[cfg(not(feature = "fetch"))]
    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as with the feature"
    )]
    fn fetched(&self, _: MediaKind, _: &MediaSource) -> Result<Option<MediaSource>> {
        Ok(None)
    }

    /// How the model writes thoughts and tool calls, if it is known to.
    #[must_use]
    pub fn answer_format(&self) -> Option<AnswerFormat> {
        self.answers.as_ref().map(|answers| answers.format)
    }

    /// The text of a token that is a tag of answers.
    pub(crate) fn tag(&self, id: u32) -> Option<String> {
        self.answers.as_ref()?.tags.get(&id).cloned()
    }

    /// The tokens that open and close thoughts.
    pub(crate) fn reasoning_ids(&self) -> Option<(u32, u32)> {
        self.answers.as_ref()?.reasoning
    }

    /// Tokens that end an answer beside the checkpoint's: the tokenizer's own end of text,
    /// and what a model of Gemma 4 writes where it waits for a tool.
    pub(crate) fn stop_ids(&self) -> impl Iterator<Item = u32> {
        let end = (!self.eos_token.is_empty()).then_some(self.eos_token.as_str());
        let waiting = matches!(self.answer_format(), Some(AnswerFormat::Gemma4));
        let waiting = waiting.then_some("<|tool_response>");
        end.into_iter()
            .chain(waiting)
            .filter_map(|token| self.tokens.id(token))
    }

    /// The tokens that begin a turn, in the templates of the families served.
    pub(crate) fn turn_ids(&self) -> Vec<u32> {
        let marks = ["<|turn>", "<|im_start|>", "<start_of_turn>"];
        let ids = marks.iter().filter_map(|mark| self.tokens.id(mark));
        ids.collect()
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}

fn answer_format(model_type: &str) -> Option<AnswerFormat> {
    Some(match model_type {
        gemma if gemma.starts_with("gemma4") => AnswerFormat::Gemma4,
        qwen if qwen.starts_with("qwen3_5") => AnswerFormat::QwenXml,
        qwen if qwen.starts_with("qwen3") => AnswerFormat::QwenJson,
        _ => return None,
    })
}
