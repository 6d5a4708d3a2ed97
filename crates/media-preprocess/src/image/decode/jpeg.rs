//! JPEG through mozjpeg, with Pillow's settings: accurate integer IDCT, triangle
//! upsampling, libjpeg's colour conversion.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mozjpeg::{ColorSpace, Decompress};

use super::jpeg_header::JpegHeader;
use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels, gray_to_rgb};
use crate::error::{Error, Result};
use crate::image::Format;

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    if cfg!(panic = "abort") {
        // libjpeg leaves a broken file by unwinding.
        let what = "panic = \"abort\", under which a broken file would end the program,".to_owned();
        return Err(Error::Unsupported {
            format: Format::Jpeg,
            what,
        });
    }
    let header = JpegHeader::read(input)?;
    let space = match header.components {
        1 => ColorSpace::JCS_GRAYSCALE,
        3 => ColorSpace::JCS_RGB,
        4 => ColorSpace::JCS_CMYK,
        other => {
            let what = format!("{other} components");
            return Err(Error::Unsupported {
                format: Format::Jpeg,
                what,
            });
        }
    };
    let (width, height) = (u32::from(header.width), u32::from(header.height));
    let channels = u64::from(header.components);
    // The output in RGB beside the stored channels, and 16 bits a coefficient if kept.
    let per_pixel = if channels == 3 { 3 } else { 3 + channels };
    let coefficients = if header.progressive { 2 * channels } else { 0 };
    input.check_size(width.into(), height.into(), per_pixel + coefficients)?;

    let met = Cell::new(Met::default());
    let result = catch_unwind(AssertUnwindSafe(|| -> io::Result<_> {
        let decoder = Decompress::builder().from_reader(PieceReader::new(input, &met))?;
        let size = decoder.size();
        if size != (width as usize, height as usize) {
            return Err(io::Error::other(format!("two frame headers: {size:?}")));
        }
        decoder.to_colorspace(space)?.read_scanlines::<u8>()
    }));
    let malformed = |message| Error::Malformed {
        format: Format::Jpeg,
        message,
    };
    // libjpeg pads a short file with an end marker and goes on; Pillow does not.
    let data = match (met.get(), result) {
        (Met::Deadline, _) => {
            return Err(Error::TimeLimit {
                limit: input.limits.max_time,
            });
        }
        (Met::End, _) => {
            let bytes = input.bytes.len() as u64;
            return Err(Error::Truncated {
                format: Format::Jpeg,
                bytes,
            });
        }
        (Met::Data, Ok(Ok(data))) => data,
        (Met::Data, Ok(Err(error))) => return Err(malformed(error.to_string())),
        (Met::Data, Err(payload)) => {
            let message = payload.downcast::<String>().map_or_else(
                |_| "the decoder gave up".to_owned(),
                |message| {
                    message
                        .trim_start_matches("libjpeg fatal error: ")
                        .to_owned()
                },
            );
            return Err(malformed(message));
        }
    };
    let pixels = Pixels::Rgb(match header.components {
        1 => gray_to_rgb(&data),
        3 => data,
        _ => cmyk_to_rgb(&data),
    });
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation: header.orientation,
    })
}

/// Pillow's conversion, after its assumption that the stored planes are inverted, as
/// Adobe's programs write them (`CMYK;I` in its JPEG plugin, `cmyk2rgb` in `Convert.c`).
fn cmyk_to_rgb(stored: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stored.len() / 4 * 3);
    for &[c, m, y, k] in stored.as_chunks::<4>().0 {
        out.extend([c, m, y].map(|ink| cmyk_channel(255 - ink, 255 - k)));
    }
    out
}

/// One channel from ink and black, both 0 for none and 255 for full.
pub(super) fn cmyk_channel(ink: u8, black: u8) -> u8 {
    let light = 255 - u32::from(black);
    let product = u32::from(ink) * light + 128;
    (light - (((product >> 8) + product) >> 8)) as u8
}
