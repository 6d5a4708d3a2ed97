//! WebP frames, which the decoder itself draws.

use std::collections::BTreeMap;

use image_webp::{DecodingError, WebPDecoder};

use super::{Bytes, Facts, Frames, check_canvas};
use crate::error::{Error, Result};
use crate::image::webp_frames::check_frame_sizes;
use crate::image::{Format, Limits, RgbImage};

#[allow(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
fn error(error: DecodingError) -> Error {
    Error::Malformed {
        format: Format::WebP,
        message: error.to_string(),
    }
}

fn open(bytes: Bytes, limits: &Limits) -> Result<WebPDecoder<Bytes>> {
    check_frame_sizes(bytes.get_ref())?;
    let mut decoder = WebPDecoder::new(bytes).map_err(error)?;
    let (width, height) = decoder.dimensions();
    check_canvas(width, height, limits)?;
    decoder.set_memory_limit(usize::try_from(limits.max_decoded_bytes).unwrap_or(usize::MAX));
    Ok(decoder)
}

pub(super) fn look(bytes: Bytes, limits: &Limits) -> Result<Facts> {
    let decoder = open(bytes, limits)?;
    let animated = decoder.is_animated();
    let frames = if animated {
        decoder.num_frames() as usize
    } else {
        1
    };
    let milliseconds = if animated { decoder.loop_duration() } else { 0 };
    Ok(Facts {
        frames,
        ticks: BTreeMap::from([(1000, milliseconds)]),
    })
}

pub(super) struct WebPFrames {
    decoder: WebPDecoder<Bytes>,
    left: u32,
}

impl WebPFrames {
    pub(super) fn new(bytes: Bytes, limits: &Limits) -> Result<Self> {
        let decoder = open(bytes, limits)?;
        let left = if decoder.is_animated() {
            decoder.num_frames()
        } else {
            1
        };
        Ok(Self { decoder, left })
    }
}

impl Frames for WebPFrames {
    fn next(&mut self) -> Result<Option<RgbImage>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let (width, height) = self.decoder.dimensions();
        let channels = if self.decoder.has_alpha() { 4 } else { 3 };
        let mut data = vec![0; width as usize * height as usize * channels];
        if self.decoder.is_animated() {
            self.decoder.read_frame(&mut data).map_err(error)?;
        } else {
            self.decoder.read_image(&mut data).map_err(error)?;
        }
        if channels == 4 {
            data = data
                .as_chunks()
                .0
                .iter()
                .flat_map(|&[r, g, b, _]| [r, g, b])
                .collect();
        }
        RgbImage::new(width, height, data).map(Some)
    }
}
