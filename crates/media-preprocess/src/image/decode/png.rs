//! PNG and APNG.
#![allow(clippy::big_endian_bytes, reason = "PNG is big endian")]

use std::cell::Cell;
use std::io;

use png::{BitDepth, ColorType, Decoder, DecodingError, Transformations};

use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels, gray_to_rgb};
use crate::error::{Error, Result};
use crate::image::{Format, Orientation};

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    let met = Cell::new(Met::default());
    let error = |error: DecodingError| match (met.get(), error) {
        (Met::Deadline, _) => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        (_, DecodingError::IoError(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Error::Truncated {
                format: Format::Png,
                bytes: input.bytes.len() as u64,
            }
        }
        (_, DecodingError::LimitsExceeded) => Error::Limit {
            what: "decoder bytes",
            found: input.limits.max_decoded_bytes.saturating_add(1),
            limit: input.limits.max_decoded_bytes,
        },
        (_, error) => Error::Malformed {
            format: Format::Png,
            message: error.to_string(),
        },
    };

    let bytes = usize::try_from(input.limits.max_decoded_bytes).unwrap_or(usize::MAX);
    let reader = PieceReader::new(input, &met);
    let mut decoder = Decoder::new_with_limits(reader, png::Limits { bytes });
    let info = decoder.read_header_info().map_err(error)?;
    let (width, height) = (info.width, info.height);
    // 16-bit gray stays as it is: Pillow opens it as 16-bit and clips it. Everything else
    // becomes 8-bit: the high byte of 16, palettes looked up, tRNS as alpha.
    let gray16 = info.color_type == ColorType::Grayscale && info.bit_depth == BitDepth::Sixteen;
    let transformations = if gray16 {
        Transformations::IDENTITY
    } else {
        Transformations::EXPAND | Transformations::STRIP_16
    };
    // What the file stores, at most 8 bytes a pixel, beside RGB or RGBA.
    input.check_size(width.into(), height.into(), 8)?;
    decoder.set_transformations(transformations);

    let mut reader = decoder.read_info().map_err(error)?;
    let size = reader.output_buffer_size().ok_or(Error::Limit {
        what: "decoded bytes",
        found: u64::MAX,
        limit: input.limits.max_decoded_bytes,
    })?;
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(error)?;
    data.truncate(frame.buffer_size());
    if (frame.width, frame.height) != (width, height) {
        let message = format!("a first frame of {}x{}", frame.width, frame.height);
        return Err(Error::Malformed {
            format: Format::Png,
            message,
        });
    }

    let pixels = match frame.color_type {
        ColorType::Grayscale if gray16 => Pixels::Rgb(gray_to_rgb(&clip16(&data))),
        ColorType::Grayscale => Pixels::Rgb(gray_to_rgb(&data)),
        ColorType::GrayscaleAlpha => Pixels::Rgba(
            data.as_chunks()
                .0
                .iter()
                .flat_map(|&[v, a]| [v, v, v, a])
                .collect(),
        ),
        ColorType::Rgb => Pixels::Rgb(data),
        ColorType::Rgba => Pixels::Rgba(data),
        ColorType::Indexed => {
            let message = "a palette that was not looked up".to_owned();
            return Err(Error::Malformed {
                format: Format::Png,
                message,
            });
        }
    };
    let exif = reader.info().exif_metadata.as_deref();
    let orientation = exif.map_or_else(Orientation::default, Orientation::from_exif);
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation,
    })
}

/// Pillow's `I;16` to RGB: values over 255 become 255, rather than being scaled.
fn clip16(big_endian: &[u8]) -> Vec<u8> {
    let clip = |&pair: &[u8; 2]| u16::from_be_bytes(pair).min(255) as u8;
    big_endian.as_chunks().0.iter().map(clip).collect()
}
