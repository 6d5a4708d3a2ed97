//! JPEG in pure Rust: up to 5 levels off Pillow, for builds without a C compiler.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::jpeg_header::JpegHeader;
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
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(input.bytes), options);
    let malformed = |message: String| Error::Malformed {
        format: Format::Jpeg,
        message,
    };
    let data = decoder.decode().map_err(|e| malformed(format!("{e:?}")))?;
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
