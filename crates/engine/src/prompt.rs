//! Conversations to prepared prompts: all that happens before MLX, on any thread.

use std::fs;

use prefill_media_preprocess::image::{
    self, DecodeOptions, Gemma4Image, Gemma4ImageProcessor, QwenImage,
};
use prefill_media_preprocess::video::QwenVideo;
use prefill_multimodal_prompt::{ChatTemplate, Gemma4Splicer, Tokens};
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
    /// Positions in three dimensions, for models that take them.
    pub mrope: Option<Mrope>,
}

/// Multimodal rotary positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mrope {
    /// `[3, L]`: time, height, width.
    pub ids: [Vec<i32>; 3],
    /// What is added to the index of a later token to get its position.
    pub delta: i64,
}

/// A medium as a tower takes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PreparedMedium {
    /// A picture's patches.
    Image(Gemma4Image),
    /// A picture's patches, for the Qwen families.
    QwenImage(QwenImage),
    /// A video's patches, for the Qwen families.
    QwenVideo(QwenVideo),
}

impl PreparedMedium {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image(_) | Self::QwenImage(_) => MediaKind::Image,
            Self::QwenVideo(_) => MediaKind::Video,
        }
    }

    /// How many places it takes in the prompt.
    #[must_use]
    pub fn soft_tokens(&self) -> usize {
        match self {
            Self::Image(image) => image.soft_tokens,
            Self::QwenImage(image) => image.soft_tokens,
            Self::QwenVideo(video) => video.grid_thw[0] * video.soft_tokens_per_group,
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
            splicer: Gemma4Splicer::new(&tokens),
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
        let soft_tokens: Vec<_> = media
            .iter()
            .map(|medium| (medium.kind(), medium.soft_tokens()))
            .collect();
        let prompt = self
            .splicer
            .splice(&self.tokens.encode(&text)?, &soft_tokens)?;
        if prompt.ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        Ok(PreparedPrompt {
            text,
            prompt,
            media,
            mrope: None,
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
