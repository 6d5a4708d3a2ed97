//! Any video that the program `ffmpeg` can decode.

mod run;
mod stream;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use run::Run;
use stream::{Counter, read_ppm};

use super::FrameSource;
use crate::error::{Error, Result};
use crate::image::{Limits, RgbImage};

/// Bounds on what a run of `ffmpeg` may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FfmpegLimits {
    /// Bounds on each frame. Its `max_time` bounds each run of the program.
    pub frame: Limits,
    /// The most frames that a video may have; counting stops there with an error. By default
    /// 1,000,000, more than 9 hours at 30 a second.
    pub max_frames: usize,
}

impl Default for FfmpegLimits {
    fn default() -> Self {
        let frame = Limits {
            max_time: Duration::from_mins(5),
            ..Limits::default()
        };
        Self {
            frame,
            max_frames: 1_000_000,
        }
    }
}

impl FfmpegLimits {
    /// These limits with others for frames and time.
    #[must_use]
    pub fn with_frame(self, frame: Limits) -> Self {
        Self { frame, ..self }
    }

    /// These limits with another number of frames.
    #[must_use]
    pub fn with_max_frames(self, max_frames: usize) -> Self {
        Self { max_frames, ..self }
    }
}

/// A video file, decoded by the program `ffmpeg` (5.1 or newer), which is looked for when a
/// video is opened.
///
/// The seeds of this project decode video through `AVFoundation` on macOS; this replaces it on
/// every platform. Arguments go to the program directly, never through a shell, and the file
/// is named as a file, so that a path can't be taken for an option or a network address; only
/// the `file` protocol is allowed, for the file and for whatever it refers to.
///
/// ```no_run
/// use prefill_media_preprocess::video::{Ffmpeg, FfmpegLimits, Gemma4VideoProcessor};
///
/// let mut video = Ffmpeg::open("clip.mp4", FfmpegLimits::default())?;
/// let processor = Gemma4VideoProcessor::from_folder("checkpoint")?;
/// let prepared = processor.prepare(&mut video)?;
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ffmpeg {
    program: PathBuf,
    path: PathBuf,
    limits: FfmpegLimits,
    frames: usize,
    fps: Option<f64>,
}

impl Ffmpeg {
    /// Opens a file with the `ffmpeg` that `PATH` finds, and counts its frames.
    ///
    /// # Errors
    /// [`Error::Program`] if there is no such program, [`Error::ProgramFailed`] if it can't
    /// read the file, [`Error::TooFewFrames`] if there is no video in it, [`Error::Limit`] and
    /// [`Error::TimeLimit`].
    pub fn open(path: impl AsRef<Path>, limits: FfmpegLimits) -> Result<Self> {
        Self::open_with("ffmpeg", path, limits)
    }

    /// Opens a file with the given `ffmpeg`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(
        program: impl Into<PathBuf>,
        path: impl AsRef<Path>,
        limits: FfmpegLimits,
    ) -> Result<Self> {
        let (program, path) = (program.into(), path.as_ref().to_owned());
        let mut video = Self {
            program,
            path,
            limits,
            frames: 0,
            fps: None,
        };
        (video.frames, video.fps) = video.count()?;
        tracing::debug!(path = %video.path.display(), frames = video.frames, fps = video.fps, "opened");
        Ok(video)
    }

    /// Counts packets and measures their rate, without decoding: `framecrc` prints a line for
    /// each, `stream, dts, pts, duration, size, checksum`.
    fn count(&self) -> Result<(usize, Option<f64>)> {
        let mut run = self.run(["-c", "copy", "-f", "framecrc"])?;
        let mut counter = Counter::default();
        let result = counter.read(&mut run.output, self.limits.max_frames);
        run.finish(result)?;
        if counter.packets == 0 {
            return Err(Error::TooFewFrames {
                found: 0,
                wanted: 1,
            });
        }
        Ok((counter.packets, counter.fps()))
    }

    /// Starts the program on the first video stream, with the given output options.
    fn run<I: AsRef<OsStr>>(&self, output: impl IntoIterator<Item = I>) -> Result<Run> {
        let mut input = OsString::from("file:");
        input.push(&self.path);
        let mut command = Command::new(&self.program);
        command
            .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
            .args(["-protocol_whitelist", "file,pipe"])
            .arg("-i")
            .arg(input)
            .args(["-map", "0:v:0", "-an", "-sn", "-dn"])
            .args(output)
            .arg("pipe:1")
            .stdin(Stdio::null());
        let program = self.program.display().to_string();
        Run::start(command, program, self.limits.frame.max_time)
    }
}

impl FrameSource for Ffmpeg {
    fn num_frames(&self) -> usize {
        self.frames
    }

    fn fps(&self) -> Option<f64> {
        self.fps
    }

    fn frame(&mut self, index: usize) -> Result<RgbImage> {
        let mut found = None;
        self.visit(&[index], &mut |frame| {
            found = Some(frame);
            Ok(())
        })?;
        found.ok_or(Error::FrameIndex {
            index,
            frames: self.frames,
        })
    }

    /// One run of the program decodes all up to the last index, and passes on those wanted.
    fn visit(
        &mut self,
        indices: &[usize],
        visit: &mut dyn FnMut(RgbImage) -> Result<()>,
    ) -> Result<()> {
        let frames = self.frames;
        let Some(&last) = indices.last() else {
            return Ok(());
        };
        if last >= frames {
            return Err(Error::FrameIndex {
                index: last,
                frames,
            });
        }
        let mut distinct = indices.to_vec();
        distinct.dedup();
        let terms: Vec<String> = distinct.iter().map(|n| format!("eq(n,{n})")).collect();
        let filter = format!("select='{}'", terms.join("+"));
        let count = distinct.len().to_string();
        let mut run = self.run([
            "-vf",
            &filter,
            "-fps_mode",
            "passthrough",
            "-frames:v",
            &count,
            "-pix_fmt",
            "rgb24",
            "-c:v",
            "ppm",
            "-f",
            "image2pipe",
        ])?;
        let mut result = Ok(());
        let mut rest = indices.iter().peekable();
        for index in distinct {
            result = (|| {
                let frame = read_ppm(&mut run.output, &self.limits.frame)?
                    .ok_or(Error::FrameIndex { index, frames })?;
                while rest.next_if(|next| **next == index).is_some() {
                    visit(frame.clone())?;
                }
                Ok(())
            })();
            if result.is_err() {
                break;
            }
        }
        run.finish(result)
    }
}
