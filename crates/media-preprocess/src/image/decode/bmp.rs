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
    let decoder = BmpDecoder::new(PieceReader::new(input, &met)).map_err(error)?;
    let (width, height) = decoder.dimensions();
    input.check_size(width.into(), height.into(), 8)?;
    let color = decoder.color_type();
    let mut data = vec![0; width as usize * height as usize * usize::from(color.bytes_per_pixel())];
    decoder.read_image(&mut data).map_err(error)?;
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
