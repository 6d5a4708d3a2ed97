//! Conversations to prepared prompts: all that happens before MLX, on any thread.

mod media;

use prefill_multimodal_prompt::{ChatTemplate, Tokens};
pub use prefill_multimodal_prompt::{
    Conversation, MediaKind, MediaSource, Mrope, Positions, Prompt, Span, TemplateOptions,
};

pub use self::media::PreparedMedium;
use self::media::{Media, Medium};
use crate::checkpoint::Checkpoint;
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
            tokens,
            bos_token,
            eos_token,
        })
    }

    /// Renders, tokenises and splices a conversation, and prepares its media. Of `options`,
    /// the sequence tokens are the checkpoint's, and the assistant's turn is always opened.
    ///
    /// # Errors
    /// [`Error::NoTower`] for a kind of medium that the checkpoint does not take,
    /// [`Error::NoSource`] and [`Error::Media`] for one that can't be read, and
    /// [`Error::Prompt`] if template and media do not fit.
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
                self.media.prepare(Medium {
                    kind: *kind,
                    index,
                    source,
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

    /// The tokenizer.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
