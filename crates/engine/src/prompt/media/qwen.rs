//! The media of Qwen3-VL and Qwen3.5.

use prefill_media_preprocess::Error as MediaError;
use prefill_media_preprocess::image::QwenImageProcessor;
use prefill_media_preprocess::video::QwenVideoProcessor;
use prefill_multimodal_prompt::{MediaKind, Prompt, QwenMedium, QwenSplicer, Tokens};
use serde_json::Value;

use super::{Medium, PreparedMedium, all_known};
use crate::checkpoint::Checkpoint;
use crate::{Error, Result};

/// What the checkpoint has settings for.
#[derive(Debug)]
pub(in crate::prompt) struct QwenMedia {
    image: Option<QwenImageProcessor>,
    video: Option<QwenVideoProcessor>,
    splicer: QwenSplicer,
}

impl QwenMedia {
    pub(super) fn open(checkpoint: &Checkpoint, tokens: &Tokens) -> Result<Self> {
        let folder = checkpoint.folder();
        let vision = checkpoint
            .setting("vision_config")
            .filter(|part| !part.is_null());
        let merge = vision.map_or(Ok(1), spatial_merge_size)?;
        let splicer = QwenSplicer::new(tokens, merge);
        if vision.is_none() {
            return Ok(Self {
                image: None,
                video: None,
                splicer,
            });
        }
        let image = QwenImageProcessor::from_folder(folder).map_err(Error::Processor)?;
        // Bounds on pixels have no default: without settings there is no video.
        let video = match QwenVideoProcessor::from_folder(folder) {
            Err(MediaError::Io { .. }) => None,
            other => Some(other.map_err(Error::Processor)?),
        };
        Ok(Self {
            image: Some(image),
            video,
            splicer,
        })
    }

    pub(super) fn takes(&self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Image => self.image.is_some(),
            MediaKind::Video => self.video.is_some(),
            _ => false,
        }
    }

    pub(super) fn prepare(&self, medium: Medium<'_>) -> Result<PreparedMedium> {
        let kind = medium.kind;
        match (kind, &self.image, &self.video) {
            (MediaKind::Image, Some(processor), _) => medium
                .picture(|image| processor.prepare(image))
                .map(PreparedMedium::QwenImage),
            (MediaKind::Video, _, Some(processor)) => medium
                .frames(|frames| processor.prepare(frames))
                .map(PreparedMedium::QwenVideo),
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

fn spatial_merge_size(vision: &Value) -> Result<usize> {
    let size = vision.get("spatial_merge_size").and_then(Value::as_u64);
    match size {
        Some(size @ 1..=64) => Ok(size as usize),
        _ => Err(Error::Config {
            key: "vision_config.spatial_merge_size",
            fact: format!("{size:?} is not in 1..=64"),
        }),
    }
}

/// What the splicer must know of a medium.
fn known(medium: &PreparedMedium) -> Option<QwenMedium> {
    let digest = medium.digest().0;
    Some(match medium {
        PreparedMedium::QwenImage(image) => QwenMedium::Image {
            grid_thw: image.grid_thw,
            digest,
        },
        PreparedMedium::QwenVideo(video) => QwenMedium::Video {
            grid_thw: video.grid_thw,
            timestamps: video.timestamps.clone(),
            digest,
        },
        _ => return None,
    })
}
