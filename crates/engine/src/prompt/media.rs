//! Media from their bytes to the input of a tower, and into the prompt.

mod gemma4;
mod qwen;
mod source;

use prefill_media_preprocess::MediaDigest;
use prefill_media_preprocess::audio::Gemma4Audio;
use prefill_media_preprocess::image::{Gemma4Image, QwenImage};
use prefill_media_preprocess::video::{Gemma4Video, QwenVideo};
use prefill_multimodal_prompt::{MediaKind, Prompt, Tokens};

use self::gemma4::Gemma4Media;
use self::qwen::QwenMedia;
pub(super) use self::source::Medium;
use crate::checkpoint::Checkpoint;
use crate::models::qwen::Qwen;
use crate::{Error, Result};

/// A medium as a tower takes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PreparedMedium {
    /// A picture's patches.
    Image(Gemma4Image),
    /// A clip's log-mel frames, or its samples.
    Audio(Gemma4Audio),
    /// The patches of a video's frames.
    Video(Gemma4Video),
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
            Self::Audio(_) => MediaKind::Audio,
            Self::Video(_) | Self::QwenVideo(_) => MediaKind::Video,
        }
    }

    /// How many places it takes in the prompt.
    #[must_use]
    pub fn soft_tokens(&self) -> usize {
        match self {
            Self::Image(image) => image.soft_tokens,
            Self::Audio(audio) => audio.soft_tokens,
            Self::Video(video) => video.num_frames * video.soft_tokens_per_frame,
            Self::QwenImage(image) => image.soft_tokens,
            Self::QwenVideo(video) => video.grid_thw[0] * video.soft_tokens_per_group,
        }
    }

    /// What names it: equal inputs of a tower have equal digests.
    #[must_use]
    pub fn digest(&self) -> MediaDigest {
        match self {
            Self::Image(image) => image.digest,
            Self::Audio(audio) => audio.digest,
            Self::Video(video) => video.digest,
            Self::QwenImage(image) => image.digest,
            Self::QwenVideo(video) => video.digest,
        }
    }
}

/// The preprocessing that a checkpoint's settings ask for, and its family's splicing.
#[derive(Debug)]
pub(super) enum Media {
    Gemma4(Gemma4Media),
    Qwen(QwenMedia),
}

impl Media {
    pub(super) fn open(checkpoint: &Checkpoint, tokens: &Tokens) -> Result<Self> {
        match checkpoint.model_type() {
            qwen if Qwen::serves(qwen) => Ok(Self::Qwen(QwenMedia::open(checkpoint, tokens)?)),
            gemma if gemma.starts_with("gemma") => {
                Ok(Self::Gemma4(Gemma4Media::open(checkpoint, tokens)?))
            }
            // Before its settings are held against those of a family that it is not of.
            other => Err(Error::UnsupportedModel {
                model_type: other.to_owned(),
            }),
        }
    }

    /// # Errors
    /// [`Error::NoTower`] if the model takes no such media.
    pub(super) fn check(&self, kind: MediaKind) -> Result<()> {
        let takes = match self {
            Self::Gemma4(media) => media.takes(kind),
            Self::Qwen(media) => media.takes(kind),
        };
        if takes {
            Ok(())
        } else {
            Err(Error::NoTower { kind })
        }
    }

    /// Decodes and prepares a medium.
    pub(super) fn prepare(&self, medium: Medium<'_>) -> Result<PreparedMedium> {
        match self {
            Self::Gemma4(media) => media.prepare(medium),
            Self::Qwen(media) => media.prepare(medium),
        }
    }

    /// Expands the markers of a rendered text, and tokenises it.
    pub(super) fn splice(
        &self,
        tokens: &Tokens,
        text: &str,
        media: &[PreparedMedium],
    ) -> Result<Prompt> {
        match self {
            Self::Gemma4(family) => family.splice(tokens, text, media),
            Self::Qwen(family) => family.splice(tokens, text, media),
        }
    }
}

/// What a family's splicer must know of each medium.
fn all_known<T>(
    media: &[PreparedMedium],
    known: impl Fn(&PreparedMedium) -> Option<T>,
) -> Result<Vec<T>> {
    let of = |medium: &PreparedMedium| {
        let kind = medium.kind();
        known(medium).ok_or(Error::NoTower { kind })
    };
    media.iter().map(of).collect()
}
