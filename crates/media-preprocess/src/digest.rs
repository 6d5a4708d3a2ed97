//! The media digest: what names a prepared medium in every cache.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Begins every digest: a change of what is hashed, or how, changes it.
const VERSION_TAG: &[u8] = b"prefill.media.v1\0";

/// SHA-256 over a version tag, the kind and the *prepared* input: the tensor that the
/// encoder is given, its shape, and its positions or grid.
///
/// Two files that prepare to the same pixels share a digest; another decoder, filter or
/// budget that gives other pixels does not. Padding is not part of it.
///
/// The bytes hashed, all integers little endian: the tag, then for each tensor in turn
/// its name and a zero byte, its rank as u64, its sizes as u64, its elements (f32 or i64).
/// The kind is the first entry, as a name with no tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MediaDigest(pub [u8; 32]);

impl MediaDigest {
    /// The digest's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for MediaDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MediaDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaDigest({self})")
    }
}

/// Feeds a prepared medium to the hash, tensor by tensor.
pub(crate) struct DigestWriter(Sha256);

impl DigestWriter {
    pub(crate) fn new(kind: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(VERSION_TAG);
        hash.update(kind.as_bytes());
        hash.update([0]);
        Self(hash)
    }

    fn header(&mut self, name: &str, shape: &[usize]) {
        self.0.update(name.as_bytes());
        self.0.update([0]);
        self.0.update((shape.len() as u64).to_le_bytes());
        for &size in shape {
            self.0.update((size as u64).to_le_bytes());
        }
    }

    pub(crate) fn f32s(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        self.header(name, shape);
        if cfg!(target_endian = "little") {
            self.0.update(bytemuck::cast_slice::<f32, u8>(values));
        } else {
            for value in values {
                self.0.update(value.to_le_bytes());
            }
        }
    }

    pub(crate) fn i64s(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl IntoIterator<Item = i64>,
    ) {
        self.header(name, shape);
        values
            .into_iter()
            .for_each(|v| self.0.update(v.to_le_bytes()));
    }

    pub(crate) fn finish(self) -> MediaDigest {
        MediaDigest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(kind: &str, shape: &[usize], values: &[f32]) -> MediaDigest {
        let mut writer = DigestWriter::new(kind);
        writer.f32s("pixel_values", shape, values);
        writer.finish()
    }

    #[test]
    fn is_the_sha256_of_the_documented_bytes() {
        let mut bytes = b"prefill.media.v1\0image\0pixel_values\0".to_vec();
        for word in [2_u64, 1, 2] {
            bytes.extend(word.to_le_bytes());
        }
        for value in [0.25_f32, -1.0] {
            bytes.extend(value.to_le_bytes());
        }
        let expected: [u8; 32] = Sha256::digest(&bytes).into();
        assert_eq!(
            digest("image", &[1, 2], &[0.25, -1.0]),
            MediaDigest(expected)
        );
    }

    #[test]
    fn depends_on_kind_shape_and_every_value() {
        let base = digest("image", &[1, 2], &[0.25, -1.0]);
        assert_ne!(base, digest("video", &[1, 2], &[0.25, -1.0]));
        assert_ne!(base, digest("image", &[2, 1], &[0.25, -1.0]));
        assert_ne!(base, digest("image", &[1, 2], &[0.25, -1.000_000_1]));
        assert_eq!(base.to_string().len(), 64);
    }
}
