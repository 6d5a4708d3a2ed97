//! Conversations to prepared prompts: all that happens before MLX, on any thread.

use std::fs;

use prefill_media_preprocess::image::{self, DecodeOptions, Gemma4Image, Gemma4ImageProcessor};
use prefill_multimodal_prompt::{ChatTemplate, Gemma4Medium, Gemma4Splicer, Tokens};
pub use prefill_multimodal_prompt::{
    Conversation, MediaKind, MediaSource, Prompt, Span, TemplateOptions,
};

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
    splicer: Gemma4Splicer,
    image_processor: Option<Gemma4ImageProcessor>,
    bos_token: String,
    eos_token: String,
}

/// A prompt with its media, ready for the MLX thread.
#[derive(Debug, Clone)]
pub struct PreparedPrompt {
    /// What the template rendered, markers not yet expanded.
    pub text: String,
    /// Ids and spans.
    pub prompt: Prompt,
    /// The media, in document order.
    pub media: Vec<PreparedMedium>,
}

/// A medium as a tower takes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PreparedMedium {
    /// A picture's patches.
    Image(Gemma4Image),
}

impl PreparedMedium {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image(_) => MediaKind::Image,
        }
    }

    /// How many places it takes in the prompt.
    #[must_use]
    pub fn soft_tokens(&self) -> usize {
        match self {
            Self::Image(image) => image.soft_tokens,
        }
    }

    /// What the splicer must know of it.
    fn shape(&self) -> Gemma4Medium {
        match self {
            Self::Image(image) => Gemma4Medium::Image {
                soft_tokens: image.soft_tokens,
                digest: image.digest.0,
            },
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
        let image_processor = if checkpoint.has_vision() {
            Some(Gemma4ImageProcessor::from_folder(folder).map_err(Error::Processor)?)
        } else {
            None
        };
        Ok(Self {
            template,
            splicer: Gemma4Splicer::new(&tokens, checkpoint.attention_rules()),
            tokens,
            image_processor,
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
            if kind != MediaKind::Image || self.image_processor.is_none() {
                return Err(Error::NoTower { kind });
            }
        }
        let media = conversation
            .media()
            .iter()
            .enumerate()
            .map(|(index, (_, source))| self.prepare_image(index, source))
            .collect::<Result<Vec<_>>>()?;
        let options = TemplateOptions {
            add_generation_prompt: true,
            bos_token: self.bos_token.clone(),
            eos_token: self.eos_token.clone(),
            ..options.clone()
        };
        let text = self.template.render(conversation.messages(), &options)?;
        let shapes: Vec<_> = media.iter().map(PreparedMedium::shape).collect();
        let prompt = self.splicer.splice(&self.tokens, &text, &shapes)?;
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

    fn prepare_image(&self, index: usize, source: &MediaSource) -> Result<PreparedMedium> {
        let kind = MediaKind::Image;
        let processor = self
            .image_processor
            .as_ref()
            .ok_or(Error::NoTower { kind })?;
        let read;
        let bytes = match source {
            MediaSource::Path(path) => {
                read = fs::read(path).map_err(|source| Error::file(path, source))?;
                &read
            }
            MediaSource::Bytes(bytes) => bytes,
            _ => return Err(Error::NoSource { kind, index }),
        };
        let prepared = image::decode(bytes, &DecodeOptions::default())
            .and_then(|image| processor.prepare(&image))
            .map_err(|source| Error::Media {
                kind,
                index,
                source,
            })?;
        Ok(PreparedMedium::Image(prepared))
    }
}
