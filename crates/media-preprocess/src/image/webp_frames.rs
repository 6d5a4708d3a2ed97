//! Sizes of the frames of an animated WebP, before they are decoded.
//!
//! The decoder allocates by a lossy frame's own header, and trusts that of a frame with alpha to
//! equal the animation's. Layouts: the WebP Container Specification, and RFC 6386, 9.1.

use crate::error::{Error, Result};
use crate::image::Format;

/// Refuses an animation with a lossy frame whose own size isn't the one announced. What is too
/// short to tell is left to the decoder.
pub(crate) fn check_frame_sizes(file: &[u8]) -> Result<()> {
    let frames = Chunks(file.get(12..).unwrap_or_default()).filter(|(name, _)| *name == b"ANMF");
    for (index, (_, frame)) in frames.enumerate() {
        // X, Y, width - 1, height - 1, duration: 24 bits each; then flags.
        let Some((header, chunks)) = frame.split_first_chunk::<16>() else {
            continue;
        };
        let side = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], 0]).saturating_add(1)
        };
        let announced = (side(6), side(9));
        for (name, data) in Chunks(chunks) {
            if name == b"VP8 "
                && let Some(found) = lossy_size(data)
                && found != announced
            {
                return Err(Error::Malformed {
                    format: Format::WebP,
                    message: format!("frame {index} is of {found:?} pixels, not {announced:?}"),
                });
            }
        }
    }
    Ok(())
}

/// Width and height in the header of a lossy key frame: 14 bits each, after a tag of three bytes
/// and a start code of three. The two bits above are a hint for scaling.
fn lossy_size(data: &[u8]) -> Option<(u32, u32)> {
    let &[w0, w1, h0, h1] = data.get(6..10)?.first_chunk()?;
    let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
    Some((side(w0, w1), side(h0, h1)))
}

/// The chunks of a RIFF list: a name, a length, the data and a byte of padding after odd ones.
/// The last may be cut short.
struct Chunks<'a>(&'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let data = rest.get(..length).unwrap_or(rest);
        let next = length.saturating_add(length % 2);
        self.0 = rest.get(next..).unwrap_or_default();
        Some((name, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8], data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap().to_le_bytes();
        let mut chunk = [name, &length, data].concat();
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    }

    fn animation(announced: [u8; 2], own: [u8; 2]) -> Vec<u8> {
        let header = [
            0,
            0,
            0,
            0,
            0,
            0,
            announced[0] - 1,
            0,
            0,
            announced[1] - 1,
            0,
            0,
            100,
            0,
            0,
            0,
        ];
        let lossy = [0, 0, 0, 0x9d, 1, 0x2a, own[0], 0x40, own[1], 0x80];
        let chunks = [chunk(b"ALPH", &[1, 2, 3]), chunk(b"VP8 ", &lossy)].concat();
        let frame = chunk(b"ANMF", &[&header[..], &chunks].concat());
        [&b"RIFF\0\0\0\0WEBP"[..], &chunk(b"VP8X", &[0; 10]), &frame].concat()
    }

    #[test]
    fn a_frame_must_have_the_size_announced() {
        assert!(check_frame_sizes(&animation([9, 7], [9, 7])).is_ok());
        let error = check_frame_sizes(&animation([9, 7], [9, 8])).unwrap_err();
        assert!(
            error.to_string().contains("(9, 8) pixels, not (9, 7)"),
            "{error}"
        );
        let whole = animation([9, 7], [10, 7]);
        for length in 0..whole.len() {
            let _ = check_frame_sizes(&whole[..length]);
        }
    }
}
