//! BMP.

use std::cell::Cell;
use std::io;

use image::codecs::bmp::BmpDecoder;
use image::error::ImageError;
use image::{ColorType, ImageDecoder};

use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels, gray_to_rgb};
use crate::error::{Error, Result};
use crate::image::{Format, Orientation};

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    let met = Cell::new(Met::default());
    let error = |error: ImageError| match (met.get(), error) {
        (Met::Deadline, _) => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        (_, ImageError::IoError(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            input.truncated(Format::Bmp)
        }
        (_, ImageError::Unsupported(e)) => Error::Unsupported {
            format: Format::Bmp,
            what: e.to_string(),
        },
        (_, error) => Error::Malformed {
            format: Format::Bmp,
            message: error.to_string(),
        },
    };
    if let Some((width, height)) = declared_size(input.bytes) {
        input.check_size(width.into(), height.into(), 8)?;
    }
    let decoder = BmpDecoder::new(PieceReader::new(input, &met)).map_err(error)?;
    let (width, height) = decoder.dimensions();
    input.check_size(width.into(), height.into(), 8)?;
    let color = decoder.color_type();
    let mut data = vec![0; width as usize * height as usize * usize::from(color.bytes_per_pixel())];
    decoder.read_image(&mut data).map_err(error)?;
    if let Some(green_bits) = bits_of_green(input.bytes) {
        requantize(&mut data, green_bits);
    }
    let pixels = match color {
        ColorType::L8 => Pixels::Rgb(gray_to_rgb(&data)),
        ColorType::Rgb8 => Pixels::Rgb(data),
        ColorType::Rgba8 => Pixels::Rgba(data),
        other => {
            return Err(Error::Unsupported {
                format: Format::Bmp,
                what: format!("{other:?}"),
            });
        }
    };
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation: Orientation::Upright,
    })
}

/// Width and height by the header; a negative height means rows from the top.
fn declared_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let i32_at = |at| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|&word| i32::from_le_bytes(word))
    };
    let sizes = (i32_at(18)?, i32_at(22)?);
    (i32_at(14)? >= 40).then(|| (sizes.0.unsigned_abs(), sizes.1.unsigned_abs()))
}

/// Of a BMP with 16 bits a pixel, how many of them are green: 5, or 6 with the usual masks.
fn bits_of_green(bytes: &[u8]) -> Option<u32> {
    const BITFIELDS: u32 = 3;
    const GREEN_OF_565: u32 = 0x7e0;
    let u32_at = |at| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|&word| u32::from_le_bytes(word))
    };
    let u16_at = |at| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|&word| u16::from_le_bytes(word))
    };
    let (header, bits, compression) = (u32_at(14)?, u16_at(28)?, u32_at(30)?);
    match (header, bits) {
        (40.., 16) if compression == BITFIELDS && u32_at(58) == Some(GREEN_OF_565) => Some(6),
        (40.., 16) => Some(5),
        _ => None,
    }
}

/// The decoder rounds 5 and 6 bits to 8, Pillow cuts off.
fn requantize(rgb: &mut [u8], green_bits: u32) {
    let cut = |value: u8, bits: u32| {
        let largest = (1 << bits) - 1;
        let stored = (u32::from(value) * largest + 127) / 255;
        (stored * 255 / largest) as u8
    };
    for [r, g, b] in rgb.as_chunks_mut().0 {
        (*r, *g, *b) = (cut(*r, 5), cut(*g, green_bits), cut(*b, 5));
    }
}
