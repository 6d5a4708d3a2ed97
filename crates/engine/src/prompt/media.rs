//! Media from their bytes to the input of a tower.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use prefill_media_preprocess::audio::{
    AudioStream, DecodeOptions as AudioOptions, Gemma4Audio, Gemma4AudioProcessor,
};
use prefill_media_preprocess::image::{
    self, DecodeOptions, Format, Gemma4Image, Gemma4ImageProcessor, Limits,
};
use prefill_media_preprocess::video::{
    Animation, Ffmpeg, FfmpegLimits, FrameSource, Gemma4Video, Gemma4VideoProcessor,
};
use prefill_media_preprocess::{Error as MediaError, MediaDigest};
use prefill_multimodal_prompt::{Gemma4Medium, MediaKind, MediaSource};
use tempfile::NamedTempFile;

use crate::checkpoint::Checkpoint;
use crate::{Error, Result};

/// Bytes by which a file's format is told.
const HEAD: u64 = 64;

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
}

impl PreparedMedium {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image(_) => MediaKind::Image,
            Self::Audio(_) => MediaKind::Audio,
            Self::Video(_) => MediaKind::Video,
        }
    }

    /// How many places it takes in the prompt.
    #[must_use]
    pub fn soft_tokens(&self) -> usize {
        match self {
            Self::Image(image) => image.soft_tokens,
            Self::Audio(audio) => audio.soft_tokens,
            Self::Video(video) => video.num_frames * video.soft_tokens_per_frame,
        }
    }

    /// What names it: equal inputs of a tower have equal digests.
    #[must_use]
    pub fn digest(&self) -> MediaDigest {
        match self {
            Self::Image(image) => image.digest,
            Self::Audio(audio) => audio.digest,
            Self::Video(video) => video.digest,
        }
    }

    /// What the splicer must know of it.
    pub(super) fn shape(&self) -> Gemma4Medium {
        let digest = self.digest().0;
        match self {
            Self::Image(image) => Gemma4Medium::Image {
                soft_tokens: image.soft_tokens,
                digest,
            },
            Self::Audio(audio) => Gemma4Medium::Audio {
                soft_tokens: audio.soft_tokens,
                digest,
            },
            Self::Video(video) => Gemma4Medium::Video {
                soft_tokens_per_frame: video.soft_tokens_per_frame,
                timestamps: video.timestamps.clone(),
                digest,
            },
        }
    }
}

/// The preprocessing that a checkpoint's settings ask for.
#[derive(Debug)]
pub(super) struct Processors {
    image: Option<Gemma4ImageProcessor>,
    audio: Option<Gemma4AudioProcessor>,
    video: Option<Gemma4VideoProcessor>,
}

impl Processors {
    pub(super) fn open(checkpoint: &Checkpoint) -> Result<Self> {
        let folder = checkpoint.folder();
        let audio = if checkpoint.has_part("audio_config") {
            Some(Gemma4AudioProcessor::from_folder(folder).map_err(Error::Processor)?)
        } else {
            None
        };
        if !checkpoint.has_part("vision_config") {
            return Ok(Self {
                image: None,
                audio,
                video: None,
            });
        }
        let image = Gemma4ImageProcessor::from_folder(folder).map_err(Error::Processor)?;
        let video = match Gemma4VideoProcessor::from_folder(folder) {
            // Its own defaults, under the layout of the pictures.
            Err(MediaError::Io { .. }) => Gemma4VideoProcessor::from_json(&serde_json::json!({}))
                .map_err(Error::Processor)?
                .with_layout(image.layout()),
            other => other.map_err(Error::Processor)?,
        };
        Ok(Self {
            image: Some(image),
            audio,
            video: Some(video),
        })
    }

    /// # Errors
    /// [`Error::NoTower`] if there is none for that kind.
    pub(super) fn check(&self, kind: MediaKind) -> Result<()> {
        let has_tower = match kind {
            MediaKind::Image => self.image.is_some(),
            MediaKind::Audio => self.audio.is_some(),
            MediaKind::Video => self.video.is_some(),
            _ => false,
        };
        if has_tower {
            Ok(())
        } else {
            Err(Error::NoTower { kind })
        }
    }

    /// Decodes and prepares the medium `index` of a conversation.
    pub(super) fn prepare(
        &self,
        index: usize,
        kind: MediaKind,
        source: &MediaSource,
    ) -> Result<PreparedMedium> {
        match (kind, &self.image, &self.audio, &self.video) {
            (MediaKind::Image, Some(processor), _, _) => {
                let bytes = read(index, kind, source)?;
                let prepared = image::decode(&bytes, &DecodeOptions::default())
                    .and_then(|image| processor.prepare(&image))
                    .map_err(|source| Error::Media {
                        kind,
                        index,
                        source,
                    })?;
                Ok(PreparedMedium::Image(prepared))
            }
            (MediaKind::Audio, _, Some(processor), _) => {
                let prepared = prepare_audio(processor, index, source)?;
                Ok(PreparedMedium::Audio(prepared))
            }
            (MediaKind::Video, _, _, Some(processor)) => {
                let prepared = prepare_video(processor, index, source)?;
                Ok(PreparedMedium::Video(prepared))
            }
            _ => Err(Error::NoTower { kind }),
        }
    }
}

/// A source's bytes.
fn read(index: usize, kind: MediaKind, source: &MediaSource) -> Result<Vec<u8>> {
    match source {
        MediaSource::Path(path) => fs::read(path).map_err(|source| Error::file(path, source)),
        MediaSource::Bytes(bytes) => Ok(bytes.to_vec()),
        _ => Err(Error::NoSource { kind, index }),
    }
}

fn prepare_audio(
    processor: &Gemma4AudioProcessor,
    index: usize,
    source: &MediaSource,
) -> Result<Gemma4Audio> {
    let kind = MediaKind::Audio;
    let failed = |source| Error::Media {
        kind,
        index,
        source,
    };
    let options = AudioOptions::default();
    let prepared = match source {
        MediaSource::Path(path) => {
            let file = File::open(path).map_err(|source| Error::file(path, source))?;
            AudioStream::new(file, &options).and_then(|stream| {
                processor.prepare_stream(stream, &options, &mut |_| ControlFlow::Continue(()))
            })
        }
        MediaSource::Bytes(bytes) => processor.prepare_bytes(bytes, &options),
        _ => return Err(Error::NoSource { kind, index }),
    }
    .map_err(failed)?;
    if let Some(truncation) = &prepared.truncation {
        tracing::warn!(index, ?truncation, "a clip is longer than the model takes");
    }
    Ok(prepared)
}

/// Animated pictures are decoded here, other videos by `ffmpeg`.
fn prepare_video(
    processor: &Gemma4VideoProcessor,
    index: usize,
    source: &MediaSource,
) -> Result<Gemma4Video> {
    let kind = MediaKind::Video;
    let failed = |source| Error::Media {
        kind,
        index,
        source,
    };
    let prepare = |frames: &mut dyn FrameSource| processor.prepare(frames).map_err(failed);
    // A path to a long video is not read into memory.
    if let MediaSource::Path(path) = source
        && !is_picture(path)?
    {
        let mut video = Ffmpeg::open(path, FfmpegLimits::default()).map_err(failed)?;
        return prepare(&mut video);
    }
    let bytes = read(index, kind, source)?;
    if Format::detect(&bytes).is_some() {
        let mut animation = Animation::new(bytes, Limits::default()).map_err(failed)?;
        return prepare(&mut animation);
    }
    let failed_file = |source| Error::file(&std::env::temp_dir(), source);
    let mut file = NamedTempFile::new().map_err(failed_file)?;
    file.write_all(&bytes).map_err(failed_file)?;
    let mut video = Ffmpeg::open(file.path(), FfmpegLimits::default()).map_err(failed)?;
    prepare(&mut video)
}

/// Whether a file begins as a picture does.
fn is_picture(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(|source| Error::file(path, source))?;
    Ok(Format::detect(&head).is_some())
}
