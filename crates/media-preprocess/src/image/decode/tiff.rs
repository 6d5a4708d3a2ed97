//! The first page of a TIFF.

use std::cell::Cell;
use std::io;

use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};

use super::cmyk::cmyk_channel;
use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels, gray_to_rgb};
use crate::error::{Error, Result};
use crate::image::{Format, Orientation};

/// What the fourth channel of RGB, or the second of gray, means (tag 338).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    Unspecified,
    Premultiplied,
    Alpha,
}

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    let met = Cell::new(Met::default());
    let error = |error: TiffError| match (met.get(), error) {
        (Met::Deadline, _) => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        (_, TiffError::IoError(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            input.truncated(Format::Tiff)
        }
        (_, TiffError::UnsupportedError(e)) => Error::Unsupported {
            format: Format::Tiff,
            what: e.to_string(),
        },
        (_, TiffError::LimitsExceeded) => input.decoder_limit(),
        (_, error) => Error::Malformed {
            format: Format::Tiff,
            message: error.to_string(),
        },
    };
    let unsupported = |what: String| Error::Unsupported {
        format: Format::Tiff,
        what,
    };

    let mut limits = Limits::default();
    limits.decoding_buffer_size = input.max_decoded();
    limits.intermediate_buffer_size = input.max_decoded();
    let reader = PieceReader::new(input, &met);
    let mut decoder = Decoder::new(reader).map_err(error)?.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(error)?;
    let color = decoder.colortype().map_err(error)?;
    let bytes = u64::from(color.num_samples()) * u64::from(color.bit_depth()).div_ceil(8);
    input.check_size(width.into(), height.into(), bytes + 4)?;

    let mut number = |tag| decoder.find_tag_unsigned::<u16>(tag).map_err(error);
    let orientation = Orientation::from_tag(number(Tag::Orientation)?.unwrap_or(1));
    let planar = number(Tag::PlanarConfiguration)?.unwrap_or(1);
    if planar != 1 && color.num_samples() > 1 {
        return Err(unsupported("separate planes".to_owned()));
    }
    let extra = decoder
        .find_tag_unsigned_vec::<u16>(Tag::ExtraSamples)
        .map_err(error)?;
    let extra = match extra.and_then(|samples| samples.first().copied()) {
        Some(0) => Extra::Unspecified,
        Some(1) => Extra::Premultiplied,
        _ => Extra::Alpha,
    };

    let data = decoder.read_image().map_err(error)?;
    let pixels = convert(color, extra, data, width as usize, height as usize)
        .ok_or_else(|| unsupported(format!("{color:?}")))?;
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation,
    })
}

/// Pillow's modes and their conversion to RGB; none for what it or we can't take.
fn convert(
    color: ColorType,
    extra: Extra,
    data: DecodingResult,
    width: usize,
    height: usize,
) -> Option<Pixels> {
    let gray = |values: Vec<u8>| Some(Pixels::Rgb(gray_to_rgb(&values)));
    match (color, data) {
        (ColorType::Gray(8), DecodingResult::U8(data)) => gray(data),
        (ColorType::Gray(bits @ (1 | 2 | 4)), DecodingResult::U8(data)) => {
            gray(unpack(&data, bits.into(), width, height))
        }
        // 16-bit and 32-bit gray are clipped, not scaled; floats are cut off first.
        (ColorType::Gray(_), DecodingResult::U16(data)) => {
            gray(data.iter().map(|&v| v.min(255) as u8).collect())
        }
        (ColorType::Gray(_), DecodingResult::I16(data)) => {
            gray(data.iter().map(|&v| v.clamp(0, 255) as u8).collect())
        }
        (ColorType::Gray(_), DecodingResult::U32(data)) => gray(
            data.iter()
                .map(|&v| v.cast_signed().clamp(0, 255) as u8)
                .collect(),
        ),
        (ColorType::Gray(_), DecodingResult::I32(data)) => {
            gray(data.iter().map(|&v| v.clamp(0, 255) as u8).collect())
        }
        (ColorType::Gray(_), DecodingResult::F32(data)) => {
            gray(data.iter().map(|&v| v as u8).collect()) // `as` cuts off and clips
        }
        (ColorType::Multiband { num_samples: 2, .. }, DecodingResult::U8(data)) => {
            let pairs = data.as_chunks::<2>().0;
            match extra {
                Extra::Unspecified => gray(pairs.iter().map(|&[v, _]| v).collect()),
                Extra::Alpha => Some(Pixels::Rgba(
                    pairs.iter().flat_map(|&[v, a]| [v, v, v, a]).collect(),
                )),
                // Pillow opens this mode, but does not convert it.
                Extra::Premultiplied => None,
            }
        }
        (ColorType::RGB(8), DecodingResult::U8(data)) => Some(Pixels::Rgb(data)),
        (ColorType::RGB(16), DecodingResult::U16(data)) => Some(Pixels::Rgb(high_bytes(&data))),
        (ColorType::RGBA(8), DecodingResult::U8(data)) => Some(rgba(data, extra)),
        (ColorType::RGBA(16), DecodingResult::U16(data)) => Some(rgba(high_bytes(&data), extra)),
        (ColorType::CMYK(8), DecodingResult::U8(data)) => Some(cmyk(&data)),
        (ColorType::CMYK(16), DecodingResult::U16(data)) => Some(cmyk(&high_bytes(&data))),
        _ => None,
    }
}

/// Samples of fewer than 8 bits, rows padded to bytes, to 0 to 255.
fn unpack(data: &[u8], bits: usize, width: usize, height: usize) -> Vec<u8> {
    let row_len = (width * bits).div_ceil(8);
    let largest = (1_u16 << bits) - 1;
    let mut out = Vec::with_capacity(width * height);
    for row in data.chunks_exact(row_len).take(height) {
        out.extend((0..width).map(|x| {
            let at = x * bits;
            let value = u16::from(row[at / 8] >> (8 - bits - at % 8)) & largest;
            (value * 255 / largest) as u8
        }));
    }
    out
}

fn high_bytes(data: &[u16]) -> Vec<u8> {
    data.iter().map(|v| (v >> 8) as u8).collect()
}

fn rgba(mut data: Vec<u8>, extra: Extra) -> Pixels {
    match extra {
        Extra::Alpha => Pixels::Rgba(data),
        Extra::Unspecified => Pixels::Rgb(
            data.as_chunks()
                .0
                .iter()
                .flat_map(|&[r, g, b, _]| [r, g, b])
                .collect(),
        ),
        Extra::Premultiplied => {
            crate::image::resize::divide_alpha(&mut data);
            Pixels::Rgba(data)
        }
    }
}

fn cmyk(data: &[u8]) -> Pixels {
    let inks = data.as_chunks().0.iter();
    Pixels::Rgb(
        inks.flat_map(|&[c, m, y, k]| [c, m, y].map(|ink| cmyk_channel(ink, k)))
            .collect(),
    )
}
