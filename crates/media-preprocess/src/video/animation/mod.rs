//! Animated GIF, WebP and PNG as videos.

#[cfg(feature = "gif")]
mod gif;
mod png;
#[cfg(feature = "webp")]
mod webp;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::FrameSource;
use crate::error::{Error, Result};
use crate::image::{Format, Limits, RgbImage};

/// The file's bytes, read by each pass over it.
type Bytes = Cursor<Arc<[u8]>>;

/// Frames of one format, in order, each drawn over those before it.
trait Frames {
    /// The next frame, or none after the last.
    fn next(&mut self) -> Result<Option<RgbImage>>;
}

/// What a first look at a file gives.
#[derive(Default)]
struct Facts {
    frames: usize,
    /// The time that frames take, in each unit that they state it in: units a second, and how
    /// many. Whole numbers, since a sum of tenths would make the second frame of a second fall
    /// before its end.
    ticks: BTreeMap<u32, u64>,
}

impl Facts {
    /// One more frame, shown for `ticks` of which there are `per_second`.
    fn add(&mut self, ticks: u32, per_second: u32) {
        self.frames += 1;
        *self.ticks.entry(per_second).or_default() += u64::from(ticks);
    }

    /// Total time; 0 if frames have no times.
    fn seconds(&self) -> f64 {
        let spans = self.ticks.iter();
        spans
            .map(|(&per_second, &ticks)| ticks as f64 / f64::from(per_second))
            .sum()
    }
}

/// An animated GIF, WebP or PNG: its frames as Pillow shows them, alpha dropped.
///
/// Frames are decoded forwards and none is kept; asking for an earlier one starts again.
///
/// ```
/// use prefill_media_preprocess::image::Limits;
/// use prefill_media_preprocess::video::{Animation, FrameSource};
///
/// # fn main() -> Result<(), prefill_media_preprocess::Error> {
/// # let bytes = include_bytes!("../../../tests/goldens/inputs/anim.gif").to_vec();
/// let mut video = Animation::new(bytes, Limits::default())?;
/// assert_eq!(video.num_frames(), 2);
/// let second = video.frame(1)?;
/// assert_eq!((second.width(), second.height()), (64, 48));
/// # Ok(())
/// # }
/// ```
pub struct Animation {
    bytes: Arc<[u8]>,
    format: Format,
    limits: Limits,
    facts: Facts,
    frames: Box<dyn Frames + Send>,
    /// The index of the frame that `frames` gives next.
    next: usize,
}

impl fmt::Debug for Animation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Animation")
            .field("format", &self.format)
            .field("frames", &self.facts.frames)
            .finish_non_exhaustive()
    }
}

impl Animation {
    /// Opens an animation; a still image of these formats has one frame.
    ///
    /// The limits on pixels and bytes hold for one frame, the time for each visit.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] and the errors of decoding; [`Error::Unsupported`] for a format
    /// that has no animations.
    pub fn new(bytes: impl Into<Arc<[u8]>>, limits: Limits) -> Result<Self> {
        let bytes = bytes.into();
        let head = || bytes[..bytes.len().min(12)].to_vec();
        let format = Format::detect(&bytes).ok_or_else(|| Error::UnknownFormat { head: head() })?;
        let facts = look(format, &bytes, &limits)?;
        let frames = open(format, &bytes, &limits)?;
        Ok(Self {
            bytes,
            format,
            limits,
            facts,
            frames,
            next: 0,
        })
    }

    /// The frame at `index`, by going on from where we are, or from the start.
    fn advance_to(&mut self, index: usize, deadline: Option<Instant>) -> Result<RgbImage> {
        let frames = self.facts.frames;
        if index >= frames {
            return Err(Error::FrameIndex { index, frames });
        }
        if index < self.next {
            self.frames = open(self.format, &self.bytes, &self.limits)?;
            self.next = 0;
        }
        loop {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimeLimit {
                    limit: self.limits.max_time,
                });
            }
            let Some(frame) = guard(self.format, || self.frames.next())? else {
                return Err(Error::FrameIndex {
                    index,
                    frames: self.next,
                });
            };
            self.next += 1;
            if self.next > index {
                return Ok(frame);
            }
        }
    }
}

impl FrameSource for Animation {
    fn num_frames(&self) -> usize {
        self.facts.frames
    }

    /// Frames over their total time; none if they have no times.
    fn fps(&self) -> Option<f64> {
        let seconds = self.facts.seconds();
        (seconds > 0.0).then(|| self.facts.frames as f64 / seconds)
    }

    fn frame(&mut self, index: usize) -> Result<RgbImage> {
        let deadline = Instant::now().checked_add(self.limits.max_time);
        self.advance_to(index, deadline)
    }

    fn visit(
        &mut self,
        indices: &[usize],
        visit: &mut dyn FnMut(RgbImage) -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now().checked_add(self.limits.max_time);
        let mut last: Option<(usize, RgbImage)> = None;
        for &index in indices {
            let frame = match last.take() {
                Some((at, frame)) if at == index => frame,
                _ => self.advance_to(index, deadline)?,
            };
            visit(frame.clone())?;
            last = Some((index, frame));
        }
        Ok(())
    }
}

/// Counts frames and adds up their times, without decoding pixels where the format allows.
fn look(format: Format, bytes: &Arc<[u8]>, limits: &Limits) -> Result<Facts> {
    let facts = guard(format, || match format {
        Format::Png => png::look(Cursor::new(Arc::clone(bytes)), limits),
        #[cfg(feature = "gif")]
        Format::Gif => gif::look(Cursor::new(Arc::clone(bytes)), limits),
        #[cfg(feature = "webp")]
        Format::WebP => webp::look(Cursor::new(Arc::clone(bytes)), limits),
        _ => Err(no_animation(format)),
    })?;
    if facts.frames == 0 {
        return Err(Error::Malformed {
            format,
            message: "no frame".to_owned(),
        });
    }
    Ok(facts)
}

fn open(format: Format, bytes: &Arc<[u8]>, limits: &Limits) -> Result<Box<dyn Frames + Send>> {
    Ok(match format {
        Format::Png => Box::new(png::PngFrames::new(Cursor::new(Arc::clone(bytes)), limits)?),
        #[cfg(feature = "gif")]
        Format::Gif => Box::new(gif::GifFrames::new(Cursor::new(Arc::clone(bytes)), limits)?),
        #[cfg(feature = "webp")]
        Format::WebP => Box::new(webp::WebPFrames::new(
            Cursor::new(Arc::clone(bytes)),
            limits,
        )?),
        _ => return Err(no_animation(format)),
    })
}

/// The decoders are other people's; should one panic, that is a broken file.
fn guard<T>(format: Format, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Error::Malformed {
            format,
            message: "the decoder panicked".to_owned(),
        })
    })
}

fn no_animation(format: Format) -> Error {
    Error::Unsupported {
        format,
        what: "animation".to_owned(),
    }
}

/// Refuses a canvas before it is allocated.
fn check_canvas(width: u32, height: u32, limits: &Limits) -> Result<()> {
    // The canvas, what it was before, the frame, and what a decoder keeps of its own.
    limits.check_size(width.into(), height.into(), 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact() {
        // Ten frames of 200 of 1000 ms: summed as fractions, they would be 1.9999999999999998 s.
        let mut facts = Facts::default();
        for _ in 0..10 {
            facts.add(200, 1000);
        }
        let rate = facts.frames as f64 / facts.seconds();
        assert_eq!(rate.to_bits(), 5f64.to_bits());
        let mut facts = Facts::default();
        for _ in 0..3 {
            facts.add(1, 30);
            facts.add(10, 100);
        }
        assert!((facts.seconds() - 0.4).abs() < 1e-12);
    }
}
