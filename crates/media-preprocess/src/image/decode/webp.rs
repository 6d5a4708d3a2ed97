//! WebP, still or the first frame of an animation.

use std::cell::Cell;
use std::io;

use image_webp::{DecodingError, WebPDecoder};

use super::reader::{Met, PieceReader};
use super::{Decoded, Input, Pixels};
use crate::error::{Error, Result};
use crate::image::webp_frames::check_frame_sizes;
use crate::image::{Format, Orientation};

/// Turns the decoder's error into ours.
pub(super) fn error(input: Input<'_>, met: Met, error: DecodingError) -> Error {
    match (met, error) {
        (Met::Deadline, _) => Error::TimeLimit {
            limit: input.limits.max_time,
        },
        (_, DecodingError::IoError(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            input.truncated(Format::WebP)
        }
        (_, DecodingError::MemoryLimitExceeded) => input.decoder_limit(),
        (_, error) => Error::Malformed {
            format: Format::WebP,
            message: error.to_string(),
        },
    }
}

/// The container says how long it is. The decoder alone would not miss frames that aren't
/// needed, but libwebp, and so Pillow, refuses such a file.
pub(super) fn check_length(input: Input<'_>) -> Result<()> {
    let declared = input.bytes.get(4..8).and_then(|size| size.first_chunk());
    let declared = declared.map_or(0, |&size| u64::from(u32::from_le_bytes(size)) + 8);
    if declared > input.bytes.len() as u64 {
        return Err(input.truncated(Format::WebP));
    }
    Ok(())
}

pub(super) fn decode(input: Input<'_>) -> Result<Decoded> {
    check_length(input)?;
    check_frame_sizes(input.bytes)?;
    let met = Cell::new(Met::default());
    let error = |e| error(input, met.get(), e);
    let mut decoder = WebPDecoder::new(PieceReader::new(input, &met)).map_err(error)?;
    let (width, height) = decoder.dimensions();
    // Output, and the planes or the ARGB words of the decoder; an animation has a canvas too.
    let per_pixel = if decoder.is_animated() { 12 } else { 8 };
    input.check_size(width.into(), height.into(), per_pixel)?;
    decoder.set_memory_limit(input.max_decoded());

    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let mut data = vec![0; width as usize * height as usize * channels];
    if decoder.is_animated() {
        decoder.read_frame(&mut data).map_err(error)?;
    } else {
        decoder.read_image(&mut data).map_err(error)?;
    }
    let exif = decoder.exif_metadata().map_err(error)?;
    let xmp = decoder.xmp_metadata().map_err(error)?;
    let orientation = Orientation::from_metadata(exif.as_deref(), xmp.as_deref());
    let pixels = if channels == 4 {
        Pixels::Rgba(data)
    } else {
        Pixels::Rgb(data)
    };
    Ok(Decoded {
        width,
        height,
        pixels,
        orientation,
    })
}
