use super::codec::{Put, Reader};
use super::manifest::MAX_MANIFEST;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"\x89PFKVX\r\n";
const VERSION: u32 = 1;
const PACK_ALIGN: u64 = 16 << 10;

/// The head of an export file: docs/format.md, section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportHeader {
    pub(crate) manifest_len: u64,
}

impl ExportHeader {
    pub(crate) const BYTES: usize = 32;

    /// Where the pack begins.
    pub(crate) const fn pack_offset(self) -> u64 {
        (Self::BYTES as u64 + self.manifest_len).next_multiple_of(PACK_ALIGN)
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        out.put(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(0);
        out.put_u64(self.manifest_len);
        out.put_u64(self.pack_offset());
        out
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        if r.array()? != MAGIC {
            return Err(r.invalid("an export's magic bytes"));
        }
        let version = r.u32()?;
        if version != VERSION {
            return Err(Error::Version {
                found: version,
                supported: VERSION,
            });
        }
        r.zeros(4)?;
        let header = Self {
            manifest_len: r.u64()?,
        };
        if header.manifest_len > MAX_MANIFEST {
            return Err(Error::limit(
                "manifest length",
                header.manifest_len,
                MAX_MANIFEST,
            ));
        }
        if r.u64()? != header.pack_offset() {
            return Err(r.invalid("the pack offset that follows from the manifest's length"));
        }
        Ok(header)
    }
}
