//! Where a medium's bytes come from.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use prefill_media_preprocess::audio::{
    AudioStream, DecodeOptions as AudioOptions, Gemma4Audio, Gemma4AudioProcessor,
};
use prefill_media_preprocess::image::{DecodeOptions, Format, Limits, RgbImage, decode};
use prefill_media_preprocess::video::{Animation, Ffmpeg, FfmpegLimits, FrameSource};
use prefill_media_preprocess::{Error as MediaError, Result as MediaResult};
use prefill_multimodal_prompt::{MediaKind, MediaSource};
use tempfile::NamedTempFile;

use crate::{Error, Result};

/// Bytes by which a file's format is told.
const HEAD: u64 = 64;

/// One medium of a conversation.
#[derive(Debug, Clone, Copy)]
pub(in crate::prompt) struct Medium<'a> {
    pub kind: MediaKind,
    /// Which of the conversation's, in document order.
    pub index: usize,
    pub source: &'a MediaSource,
}

impl Medium<'_> {
    fn failed(self, source: MediaError) -> Error {
        Error::Media {
            kind: self.kind,
            index: self.index,
            source,
        }
    }

    fn bytes(self) -> Result<Vec<u8>> {
        match self.source {
            MediaSource::Path(path) => fs::read(path).map_err(|source| Error::file(path, source)),
            MediaSource::Bytes(bytes) => Ok(bytes.clone()),
            MediaSource::Url(_) => Err(Error::NoFetcher {
                kind: self.kind,
                index: self.index,
            }),
            _ => Err(Error::NoSource {
                kind: self.kind,
                index: self.index,
            }),
        }
    }

    /// Decodes a picture and hands it over.
    pub(super) fn picture<T>(self, prepare: impl FnOnce(&RgbImage) -> MediaResult<T>) -> Result<T> {
        decode(&self.bytes()?, &DecodeOptions::default())
            .and_then(|image| prepare(&image))
            .map_err(|source| self.failed(source))
    }

    /// Decodes a clip, block by block, and prepares it.
    pub(super) fn sound(self, processor: &Gemma4AudioProcessor) -> Result<Gemma4Audio> {
        let options = AudioOptions::default();
        let prepared = match self.source {
            MediaSource::Path(path) => {
                let file = File::open(path).map_err(|source| Error::file(path, source))?;
                AudioStream::new(file, &options).and_then(|stream| {
                    processor.prepare_stream(stream, &mut |_| ControlFlow::Continue(()))
                })
            }
            _ => processor.prepare_bytes(&self.bytes()?, &options),
        }
        .map_err(|source| self.failed(source))?;
        if let Some(truncation) = &prepared.truncation {
            let index = self.index;
            tracing::warn!(index, ?truncation, "a clip is longer than the model takes");
        }
        Ok(prepared)
    }

    /// Hands a video's frames over. Animated pictures are decoded here, other videos by
    /// `ffmpeg`.
    pub(super) fn frames<T>(
        self,
        prepare: impl FnOnce(&mut dyn FrameSource) -> MediaResult<T>,
    ) -> Result<T> {
        // A path to a long video is not read into memory.
        if let MediaSource::Path(path) = self.source
            && !is_picture(path)?
        {
            return self.by_ffmpeg(path, prepare);
        }
        let bytes = self.bytes()?;
        if Format::detect(&bytes).is_some() {
            return Animation::new(bytes, Limits::default())
                .and_then(|mut animation| prepare(&mut animation))
                .map_err(|source| self.failed(source));
        }
        let failed_file = |source| Error::file(&std::env::temp_dir(), source);
        let mut file = NamedTempFile::new().map_err(failed_file)?;
        file.write_all(&bytes).map_err(failed_file)?;
        self.by_ffmpeg(file.path(), prepare)
    }

    fn by_ffmpeg<T>(
        self,
        path: &Path,
        prepare: impl FnOnce(&mut dyn FrameSource) -> MediaResult<T>,
    ) -> Result<T> {
        Ffmpeg::open(path, FfmpegLimits::default())
            .and_then(|mut video| prepare(&mut video))
            .map_err(|source| self.failed(source))
    }
}

/// Whether a file begins as a picture does.
fn is_picture(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(|source| Error::file(path, source))?;
    Ok(Format::detect(&head).is_some())
}
