//! APNG frames, drawn and disposed of as Pillow's `PngImagePlugin` does.

use std::time::Instant;

use png::{BitDepth, BlendOp, ColorType, Decoder, DecodingError, DisposeOp, FrameControl, Reader};
use png::{OutputInfo, Transformations};

use super::{Bytes, Facts, Frames, check_canvas};
use crate::error::{Error, Result};
use crate::image::{Format, Limits, RgbImage};

#[allow(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
fn error(error: DecodingError) -> Error {
    Error::Malformed {
        format: Format::Png,
        message: error.to_string(),
    }
}

fn open(bytes: Bytes, limits: &Limits) -> Result<Reader<Bytes>> {
    let most = usize::try_from(limits.max_decoded_bytes).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(bytes, png::Limits { bytes: most });
    let info = decoder.read_header_info().map_err(error)?;
    if info.color_type == ColorType::Grayscale && info.bit_depth == BitDepth::Sixteen {
        let what = "16-bit gray in an animation".to_owned();
        return Err(Error::Unsupported {
            format: Format::Png,
            what,
        });
    }
    check_canvas(info.width, info.height, limits)?;
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.read_info().map_err(error)
}

pub(super) fn look(bytes: Bytes, limits: &Limits) -> Result<Facts> {
    let mut frames = PngFrames::new(bytes, limits)?;
    let mut facts = Facts::default();
    // Times lie between the frames' data, so that all must be read.
    let deadline = Instant::now().checked_add(limits.max_time);
    while let Some((_, control)) = frames.read()? {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::TimeLimit {
                limit: limits.max_time,
            });
        }
        match control {
            // A denominator of 0 means hundredths (PNG, third edition, section 11.3.6.2).
            Some(control) if control.delay_den == 0 => facts.add(control.delay_num.into(), 100),
            Some(control) => facts.add(control.delay_num.into(), control.delay_den.into()),
            None => facts.frames += 1,
        }
    }
    Ok(facts)
}

pub(super) struct PngFrames {
    reader: Reader<Bytes>,
    /// Frames still to come, the default image included even where it isn't part of the
    /// animation.
    left: usize,
    buffer: Vec<u8>,
    canvas: Vec<[u8; 3]>,
    /// How to dispose of the last frame: where it is, and what was there.
    last: Option<(FrameControl, Vec<[u8; 3]>)>,
}

impl PngFrames {
    pub(super) fn new(bytes: Bytes, limits: &Limits) -> Result<Self> {
        let reader = open(bytes, limits)?;
        let info = reader.info();
        let animated = info
            .animation_control()
            .map_or(0, |control| control.num_frames as usize);
        let apart = usize::from(info.frame_control().is_none());
        let size = reader.output_buffer_size().ok_or(Error::Limit {
            what: "decoded bytes",
            found: u64::MAX,
            limit: limits.max_decoded_bytes,
        })?;
        Ok(Self {
            reader,
            left: (animated + apart).max(1),
            buffer: vec![0; size],
            canvas: Vec::new(),
            last: None,
        })
    }

    /// Reads the next frame into the buffer.
    fn read(&mut self) -> Result<Option<(OutputInfo, Option<FrameControl>)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let output = self.reader.next_frame(&mut self.buffer).map_err(error)?;
        Ok(Some((output, self.reader.info().frame_control().copied())))
    }

    /// Colour 0, with which Pillow fills what it disposes of.
    fn background(&self) -> [u8; 3] {
        let info = self.reader.info();
        let palette = info
            .palette
            .as_deref()
            .filter(|_| info.color_type == ColorType::Indexed);
        palette
            .and_then(|colors| colors.first_chunk().copied())
            .unwrap_or_default()
    }
}

impl Frames for PngFrames {
    fn next(&mut self) -> Result<Option<RgbImage>> {
        let Some((output, control)) = self.read()? else {
            return Ok(None);
        };
        let (width, height) = (self.reader.info().width, self.reader.info().height);
        let line = width as usize;
        let first = self.canvas.is_empty();
        if first {
            self.canvas = vec![[0; 3]; line * height as usize];
        }
        if let Some((last, before)) = self.last.take() {
            let background = self.background();
            dispose(&mut self.canvas, line, &last, &before, background);
        }
        let (left, top) = control.map_or((0, 0), |c| (c.x_offset as usize, c.y_offset as usize));
        let rows = output.height as usize;
        let inside = left + output.width as usize <= line && top + rows <= height as usize;
        if !inside || output.line_size == 0 {
            let message = "a frame outside the image".to_owned();
            return Err(Error::Malformed {
                format: Format::Png,
                message,
            });
        }
        let before = self.canvas.clone();
        let over = !first && control.is_some_and(|c| c.blend_op == BlendOp::Over);
        for (y, row) in self
            .buffer
            .chunks_exact(output.line_size)
            .take(rows)
            .enumerate()
        {
            let target = &mut self.canvas[(top + y) * line + left..][..output.width as usize];
            draw(target, row, output.color_type, over);
        }
        self.last = control.map(|mut control| {
            if first && control.dispose_op == DisposeOp::Previous {
                control.dispose_op = DisposeOp::Background;
            }
            (control, before)
        });
        RgbImage::new(width, height, self.canvas.as_flattened().to_vec()).map(Some)
    }
}

/// Puts a row of pixels on the canvas, or blends it by alpha.
fn draw(target: &mut [[u8; 3]], row: &[u8], color: ColorType, over: bool) {
    let channels = color.samples();
    for (pixel, source) in target.iter_mut().zip(row.chunks_exact(channels)) {
        let (value, alpha) = match *source {
            [v] => ([v; 3], 255),
            [v, a] => ([v; 3], a),
            [r, g, b] => ([r, g, b], 255),
            [r, g, b, a] => ([r, g, b], a),
            _ => continue,
        };
        for (old, new) in pixel.iter_mut().zip(value) {
            *old = if over { blend(*old, new, alpha) } else { new };
        }
    }
}

/// Pillow's `BLEND`: `(old * (255 - alpha) + new * alpha) / 255`, rounded.
fn blend(old: u8, new: u8, alpha: u8) -> u8 {
    let (old, new, alpha) = (u32::from(old), u32::from(new), u32::from(alpha));
    let sum = old * (255 - alpha) + new * alpha + 128;
    (((sum >> 8) + sum) >> 8) as u8
}

/// Undoes the last frame as it asks.
fn dispose(
    canvas: &mut [[u8; 3]],
    line: usize,
    last: &FrameControl,
    before: &[[u8; 3]],
    background: [u8; 3],
) {
    for y in last.y_offset as usize..(last.y_offset + last.height) as usize {
        let at = y * line + last.x_offset as usize;
        let row = at..at + last.width as usize;
        match last.dispose_op {
            DisposeOp::None => {}
            DisposeOp::Background => canvas[row].fill(background),
            DisposeOp::Previous => canvas[row.clone()].copy_from_slice(&before[row]),
        }
    }
}
