//! What a JPEG says of itself before its first scan.
#![allow(clippy::big_endian_bytes, reason = "JPEG is big endian")]

use super::Input;
use crate::error::{Error, Result};
use crate::image::{Format, Orientation};

/// The facts of a frame header, and the orientation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JpegHeader {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) components: u8,
    /// Several scans build the picture, so that all coefficients are held at once.
    pub(super) progressive: bool,
    pub(super) orientation: Orientation,
}

impl JpegHeader {
    /// Walks the segments up to the first scan.
    pub(super) fn read(input: Input<'_>) -> Result<Self> {
        let bytes = input.bytes;
        let mut exif = Vec::new();
        let mut frame = None;
        let mut at = 2; // past SOI
        let truncated = || Error::Truncated {
            format: Format::Jpeg,
            bytes: bytes.len() as u64,
        };
        loop {
            // Anything but a marker is skipped, as libjpeg and Pillow do between segments.
            while *bytes.get(at).ok_or_else(truncated)? != 0xff {
                at += 1;
            }
            while *bytes.get(at).ok_or_else(truncated)? == 0xff {
                at += 1;
            }
            let marker = bytes[at];
            at += 1;
            match marker {
                // Stuffing, TEM, RSTn and SOI have no length.
                0x00 | 0x01 | 0xd0..=0xd8 => continue,
                // EOI and SOS: no more headers.
                0xd9 | 0xda => break,
                _ => {}
            }
            let length = bytes.get(at..at + 2).ok_or_else(truncated)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
            let segment = bytes.get(at + 2..at + length).ok_or_else(truncated)?;
            match marker {
                // Every SOF: C4, C8 and CC are other segments.
                0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                    frame = Some((marker, segment));
                }
                // Pillow joins the pieces of an EXIF block that spans segments.
                0xe1 => {
                    if let Some(rest) = segment.strip_prefix(b"Exif\0\0") {
                        exif.extend_from_slice(rest);
                    }
                }
                _ => {}
            }
            at += length;
        }
        let (marker, segment) = frame.ok_or_else(|| Error::Malformed {
            format: Format::Jpeg,
            message: "no frame header before the first scan".to_owned(),
        })?;
        let &[precision, h1, h0, w1, w0, components, ..] = segment else {
            return Err(Error::Malformed {
                format: Format::Jpeg,
                message: format!("a frame header of {} bytes", segment.len()),
            });
        };
        if precision != 8 {
            return Err(Error::Unsupported {
                format: Format::Jpeg,
                what: format!("{precision} bits a sample"),
            });
        }
        Ok(Self {
            width: u16::from_be_bytes([w1, w0]),
            height: u16::from_be_bytes([h1, h0]),
            components,
            progressive: matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce),
            orientation: Orientation::from_exif(&exif),
        })
    }
}
