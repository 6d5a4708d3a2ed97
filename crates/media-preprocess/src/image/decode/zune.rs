//! JPEG in pure Rust: up to 5 levels off Pillow, for builds without a C compiler.

use std::cell::Cell;

use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::jpeg_header::JpegHeader;
use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels, gray_to_rgb};
use crate::error::{Error, Result};
use crate::image::Format;

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    let header = JpegHeader::read(input)?;
    let (space, channels) = match header.components {
        1 => (ColorSpace::Luma, 1),
        3 | 4 => (ColorSpace::RGB, 3),
        other => {
            let what = format!("{other} components");
            return Err(Error::Unsupported {
                format: Format::Jpeg,
                what,
            });
        }
    };
    let (width, height) = (u32::from(header.width), u32::from(header.height));
    let stored = u64::from(header.components);
    let coefficients = if header.progressive { 2 * stored } else { 0 };
    input.check_size(width.into(), height.into(), 3 + stored + coefficients)?;

    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(width as usize)
        .set_max_height(height as usize)
        .jpeg_set_out_colorspace(space);
    // The decoder fills up what is missing; a file without its end marker is refused here.
    if !input.bytes[header.scan..]
        .windows(2)
        .any(|pair| pair == [0xff, 0xd9])
    {
        return Err(input.truncated(Format::Jpeg));
    }
    let met = Cell::new(Met::default());
    let mut decoder = JpegDecoder::new_with_options(PieceReader::new(input, &met), options);
    let malformed = |message: String| Error::Malformed {
        format: Format::Jpeg,
        message,
    };
    let data = decoder.decode().map_err(|error| match met.get() {
        Met::Deadline => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        _ => malformed(format!("{error:?}")),
    })?;
    if data.len() != width as usize * height as usize * channels {
        return Err(malformed(format!(
            "{} bytes for {width}x{height}",
            data.len()
        )));
    }
    let pixels = Pixels::Rgb(if channels == 1 {
        gray_to_rgb(&data)
    } else {
        data
    });
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation: header.orientation,
    })
}

#[cfg(all(test, feature = "jpeg"))]
mod tests {
    use super::*;
    use crate::image::Limits;

    fn worst(name: &str) -> u8 {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/inputs/");
        let bytes = std::fs::read(format!("{folder}{name}")).expect("a golden");
        let input = Input {
            bytes: &bytes,
            limits: &Limits::default(),
            deadline: None,
        };
        let pixels = |decoded: Decoded| match decoded.pixels {
            Pixels::Rgb(data) | Pixels::Rgba(data) => data,
        };
        let exact = pixels(super::super::jpeg::decode(input).expect("a golden"));
        let close = pixels(decode(input).expect("a golden"));
        assert_eq!(exact.len(), close.len(), "{name}");
        exact
            .iter()
            .zip(&close)
            .map(|(a, b)| a.abs_diff(*b))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn is_within_five_levels_of_mozjpeg() {
        for name in [
            "j444.jpg",
            "j444_prog.jpg",
            "j422.jpg",
            "j422_prog.jpg",
            "j420.jpg",
            "j420_prog.jpg",
            "j411.jpg",
            "jgray.jpg",
            "jrgb.jpg",
            "jcmyk.jpg",
            "jycck.jpg",
        ] {
            assert!(worst(name) <= 5, "{name}: {}", worst(name));
        }
    }
}
