//! Gemma 4's media.

use prefill_media_preprocess::Error as MediaError;
use prefill_media_preprocess::audio::Gemma4AudioProcessor;
use prefill_media_preprocess::image::Gemma4ImageProcessor;
use prefill_media_preprocess::video::Gemma4VideoProcessor;
use prefill_multimodal_prompt::{Gemma4Medium, Gemma4Splicer, MediaKind, Prompt, Tokens};
use serde_json::json;

use super::{Medium, PreparedMedium, all_known};
use crate::checkpoint::Checkpoint;
use crate::{Error, Result};

/// What the checkpoint's configuration has a part for.
#[derive(Debug)]
pub(in crate::prompt) struct Gemma4Media {
    image: Option<Gemma4ImageProcessor>,
    audio: Option<Gemma4AudioProcessor>,
    video: Option<Gemma4VideoProcessor>,
    splicer: Gemma4Splicer,
}

impl Gemma4Media {
    pub(super) fn open(checkpoint: &Checkpoint, tokens: &Tokens) -> Result<Self> {
        let folder = checkpoint.folder();
        let mut media = Self {
            image: None,
            audio: None,
            video: None,
            splicer: Gemma4Splicer::new(tokens, checkpoint.attention_rules()),
        };
        if checkpoint.has_part("audio_config") {
            let processor = Gemma4AudioProcessor::from_folder(folder).map_err(Error::Processor)?;
            media.audio = Some(processor);
        }
        if checkpoint.has_part("vision_config") {
            let image = Gemma4ImageProcessor::from_folder(folder).map_err(Error::Processor)?;
            let video = match Gemma4VideoProcessor::from_folder(folder) {
                // Nothing is said of videos: the defaults of the class.
                Err(MediaError::Io { .. }) => Gemma4VideoProcessor::from_json(&json!({}))
                    .map(|video| video.with_layout(image.layout())),
                other => other,
            };
            media.image = Some(image);
            media.video = Some(video.map_err(Error::Processor)?);
        }
        Ok(media)
    }

    pub(super) fn takes(&self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Image => self.image.is_some(),
            MediaKind::Audio => self.audio.is_some(),
            MediaKind::Video => self.video.is_some(),
            _ => false,
        }
    }

    pub(super) fn prepare(&self, medium: Medium<'_>) -> Result<PreparedMedium> {
        let kind = medium.kind;
        match (kind, &self.image, &self.audio, &self.video) {
            (MediaKind::Image, Some(processor), _, _) => medium
                .picture(|image| processor.prepare(image))
                .map(PreparedMedium::Image),
            (MediaKind::Audio, _, Some(processor), _) => {
                medium.sound(processor).map(PreparedMedium::Audio)
            }
            (MediaKind::Video, _, _, Some(processor)) => medium
                .frames(|frames| processor.prepare(frames))
                .map(PreparedMedium::Video),
            _ => Err(Error::NoTower { kind }),
        }
    }

    pub(super) fn splice(
        &self,
        tokens: &Tokens,
        text: &str,
        media: &[PreparedMedium],
    ) -> Result<Prompt> {
        let known = all_known(media, known)?;
        Ok(self.splicer.splice(tokens, text, &known)?)
    }
}

/// What the splicer must know of a medium.
fn known(medium: &PreparedMedium) -> Option<Gemma4Medium> {
    let digest = medium.digest().0;
    Some(match medium {
        PreparedMedium::Image(image) => Gemma4Medium::Image {
            soft_tokens: image.soft_tokens,
            digest,
        },
        PreparedMedium::Audio(audio) => Gemma4Medium::Audio {
            soft_tokens: audio.soft_tokens,
            digest,
        },
        PreparedMedium::Video(video) => Gemma4Medium::Video {
            soft_tokens_per_frame: video.soft_tokens_per_frame,
            timestamps: video.timestamps.clone(),
            digest,
        },
        _ => return None,
    })
}
