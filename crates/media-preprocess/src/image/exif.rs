//! EXIF orientation.
#![allow(clippy::big_endian_bytes, reason = "EXIF blocks name their byte order")]

/// How stored rows and columns relate to the picture as it should be seen: the EXIF tag
/// 0x0112, named by the operation that `PIL.ImageOps.exif_transpose` applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orientation {
    /// 1, absent, or not a value from 1 to 8.
    #[default]
    Upright,
    /// 2: mirror left and right.
    FlipHorizontal,
    /// 3: half a turn.
    Rotate180,
    /// 4: mirror top and bottom.
    FlipVertical,
    /// 5: mirror along the main diagonal.
    Transpose,
    /// 6: a quarter turn clockwise.
    Rotate90,
    /// 7: mirror along the other diagonal.
    Transverse,
    /// 8: a quarter turn counter-clockwise.
    Rotate270,
}

impl Orientation {
    /// The orientation of a tag's value.
    #[must_use]
    pub fn from_tag(value: u16) -> Self {
        match value {
            2 => Self::FlipHorizontal,
            3 => Self::Rotate180,
            4 => Self::FlipVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// Finds the tag in an EXIF block: a TIFF header and its first directory, with or
    /// without the `Exif\0\0` that JPEG puts before it. Anything unreadable is `Upright`.
    #[must_use]
    pub fn from_exif(exif: &[u8]) -> Self {
        orientation_tag(exif).map_or(Self::Upright, Self::from_tag)
    }

    fn swaps_sides(self) -> bool {
        matches!(
            self,
            Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270
        )
    }

    /// Turns pixels of `channels` bytes; gives the new width, height and pixels.
    pub(crate) fn apply(
        self,
        width: u32,
        height: u32,
        channels: usize,
        data: Vec<u8>,
    ) -> (u32, u32, Vec<u8>) {
        if self == Self::Upright {
            return (width, height, data);
        }
        let (w, h) = (width as usize, height as usize);
        let (out_w, out_h) = if self.swaps_sides() { (h, w) } else { (w, h) };
        let mut out = Vec::with_capacity(data.len());
        for y in 0..out_h {
            for x in 0..out_w {
                let (sx, sy) = match self {
                    Self::Upright => (x, y),
                    Self::FlipHorizontal => (w - 1 - x, y),
                    Self::Rotate180 => (w - 1 - x, h - 1 - y),
                    Self::FlipVertical => (x, h - 1 - y),
                    Self::Transpose => (y, x),
                    Self::Rotate90 => (y, h - 1 - x),
                    Self::Transverse => (w - 1 - y, h - 1 - x),
                    Self::Rotate270 => (w - 1 - y, x),
                };
                let at = (sy * w + sx) * channels;
                out.extend_from_slice(&data[at..at + channels]);
            }
        }
        (out_w as u32, out_h as u32, out)
    }
}

/// The value of tag 0x0112 in the first directory of a TIFF structure.
fn orientation_tag(exif: &[u8]) -> Option<u16> {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let big_endian = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let bytes: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    };
    let u32_at = |at: usize| {
        let (a, b) = (
            u32::from(u16_at(at)?),
            u32::from(u16_at(at.checked_add(2)?)?),
        );
        Some(if big_endian { a << 16 | b } else { b << 16 | a })
    };
    let directory = u32_at(4)? as usize;
    let entries = usize::from(u16_at(directory)?);
    for entry in 0..entries {
        let at = directory.checked_add(2 + entry * 12)?;
        if u16_at(at)? == 0x0112 {
            const BYTE: u16 = 1;
            const SHORT: u16 = 3;
            const LONG: u16 = 4;
            let value = at.checked_add(8)?;
            return match u16_at(at + 2)? {
                BYTE => tiff.get(value).copied().map(u16::from),
                SHORT => u16_at(value),
                LONG => u16::try_from(u32_at(value)?).ok(),
                _ => None,
            };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(little: bool, tag_type: u16, value: [u8; 4]) -> Vec<u8> {
        let u16s = |v: u16| {
            if little {
                v.to_le_bytes()
            } else {
                v.to_be_bytes()
            }
        };
        let u32s = |v: u32| {
            if little {
                v.to_le_bytes()
            } else {
                v.to_be_bytes()
            }
        };
        let mut out = if little {
            b"II*\0".to_vec()
        } else {
            b"MM\0*".to_vec()
        };
        out.extend(u32s(8));
        out.extend(u16s(1));
        out.extend(u16s(0x0112));
        out.extend(u16s(tag_type));
        out.extend(u32s(1));
        out.extend(value);
        out
    }

    #[test]
    fn reads_both_byte_orders_and_integer_types() {
        assert_eq!(
            Orientation::from_exif(&block(true, 3, [6, 0, 0, 0])),
            Orientation::Rotate90
        );
        assert_eq!(
            Orientation::from_exif(&block(false, 3, [0, 8, 0, 0])),
            Orientation::Rotate270
        );
        assert_eq!(
            Orientation::from_exif(&block(false, 4, [0, 0, 0, 3])),
            Orientation::Rotate180
        );
        assert_eq!(
            Orientation::from_exif(&block(true, 3, [9, 0, 0, 0])),
            Orientation::Upright
        );
    }

    #[test]
    fn truncated_and_hostile_blocks_are_upright() {
        let whole = block(true, 3, [6, 0, 0, 0]);
        for len in 0..whole.len() - 2 {
            assert_eq!(Orientation::from_exif(&whole[..len]), Orientation::Upright);
        }
        assert_eq!(
            Orientation::from_exif(b"II*\0\xff\xff\xff\xff"),
            Orientation::Upright
        );
    }

    #[test]
    fn turns_back_and_forth() {
        let data: Vec<u8> = (0..6).collect();
        let (w, h, turned) = Orientation::Rotate90.apply(3, 2, 1, data.clone());
        assert_eq!((w, h, turned.as_slice()), (2, 3, &[3, 0, 4, 1, 5, 2][..]));
        assert_eq!(Orientation::Rotate270.apply(w, h, 1, turned), (3, 2, data));
    }
}
