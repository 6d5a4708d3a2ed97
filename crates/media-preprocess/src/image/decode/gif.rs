//! The first frame of a GIF.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};

use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels};
use crate::error::{Error, Result};
use crate::image::{Format, Orientation};

/// The decoder over `input`, giving palette indices.
pub(super) fn open<'a>(
    input: Input<'a>,
    met: &'a Cell<Met>,
) -> Result<gif::Decoder<PieceReader<'a>>, DecodingError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    // Without its end code the image data may have lost pixels; Pillow refuses it.
    options.check_lzw_end_code(true);
    let limit = NonZeroU64::new(input.limits.max_decoded_bytes).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(limit));
    options.read_info(PieceReader::new(input, met))
}

/// Turns the decoder's error into ours.
pub(super) fn error(input: Input<'_>, met: Met, error: DecodingError) -> Error {
    match (met, error) {
        (Met::Deadline, _) => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        (_, DecodingError::UnexpectedEof) => input.truncated(Format::Gif),
        (_, DecodingError::Io(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            input.truncated(Format::Gif)
        }
        (_, DecodingError::MemoryLimit | DecodingError::OutOfMemory) => input.decoder_limit(),
        (_, error) => Error::Malformed {
            format: Format::Gif,
            message: error.to_string(),
        },
    }
}

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    let met = Cell::new(Met::default());
    let error = |e| error(input, met.get(), e);
    let mut decoder = open(input, &met).map_err(error)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let (screen_width, screen_height) = (decoder.width(), decoder.height());
    let none = || Error::Malformed {
        format: Format::Gif,
        message: "no frame".to_owned(),
    };
    let frame = decoder.next_frame_info().map_err(error)?.ok_or_else(none)?;

    // A frame that reaches past the screen enlarges it.
    let width = u32::from(screen_width).max(u32::from(frame.left) + u32::from(frame.width));
    let height = u32::from(screen_height).max(u32::from(frame.top) + u32::from(frame.height));
    input.check_size(width.into(), height.into(), 6)?;
    let frame = Frame {
        buffer: Vec::new().into(),
        ..frame.clone()
    };
    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices).map_err(error)?;

    // Where the frame doesn't reach, Pillow has the transparent colour, or else colour 0.
    let mut canvas = vec![frame.transparent.unwrap_or(0); width as usize * height as usize];
    if frame.width != 0 {
        for (y, row) in indices.chunks_exact(frame.width.into()).enumerate() {
            let at = (y + usize::from(frame.top)) * width as usize + usize::from(frame.left);
            canvas[at..at + row.len()].copy_from_slice(row);
        }
    }
    let palette = Palette(frame.palette.as_deref().or(global.as_deref()));
    let pixels = match frame.transparent {
        None => Pixels::Rgb(canvas.iter().flat_map(|&i| palette.color(i)).collect()),
        Some(clear) => Pixels::Rgba(
            canvas
                .iter()
                .flat_map(|&i| {
                    let [r, g, b] = palette.color(i);
                    [r, g, b, if i == clear { 0 } else { 255 }]
                })
                .collect(),
        ),
    };
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation: Orientation::Upright,
    })
}

/// Colours by index; without any, indices are gray values.
pub(super) struct Palette<'a>(pub(super) Option<&'a [u8]>);

impl Palette<'_> {
    /// Black beyond the last colour.
    pub(super) fn color(&self, index: u8) -> [u8; 3] {
        let Some(colors) = self.0 else {
            return [index; 3];
        };
        colors
            .as_chunks()
            .0
            .get(usize::from(index))
            .copied()
            .unwrap_or_default()
    }
}
