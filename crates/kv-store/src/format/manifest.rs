use std::sync::Arc;

use super::codec::{Put, Reader};
use super::tensors::ExtentLayout;
use super::{Hash, MAX_NAME};
use crate::{Error, Key, Kind, Result};

const MAGIC: [u8; 8] = *b"\x89PFKVM\r\n";
const VERSION: u32 = 1;
const BLAKE3_256: u32 = 1;
const HEADER: usize = 128;
const SUM: std::ops::Range<usize> = 96..128;
const MAX_LAYOUTS: u32 = 1 << 20;
pub(crate) const MAX_RECORDS: u32 = 1 << 20;
pub(crate) const MAX_METADATA: u32 = 16 << 20;
pub(crate) const MAX_MANIFEST: u64 = 256 << 20;
/// Pieces of 256 KiB: they stay in a core's cache between being read and being hashed.
const PIECE_SHIFT: u32 = 18;
/// Extents start at multiples of 16 KiB, the page of Apple silicon.
const ALIGN_SHIFT: u32 = 14;

/// The commit record of one pack: docs/format.md, section 2.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) id: [u8; 16],
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
    pub(crate) pack_len: u64,
    pub(crate) created: u64,
    pub(crate) piece_shift: u32,
    pub(crate) align_shift: u32,
    pub(crate) namespace: Arc<str>,
    pub(crate) layouts: Vec<Arc<ExtentLayout>>,
    pub(crate) records: Vec<Entry>,
}

/// One record of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) parent: Option<Key>,
    pub(crate) kind: Kind,
    pub(crate) layout: u32,
    pub(crate) cost: f64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) pieces: Box<[Hash]>,
    pub(crate) metadata: Box<[u8]>,
}

impl Manifest {
    /// An empty manifest in the shape that this version writes.
    pub(crate) fn new(id: [u8; 16], namespace: Arc<str>, created: u64) -> Self {
        Self {
            id,
            sequence: 0,
            generation: 0,
            pack_len: 0,
            created,
            piece_shift: PIECE_SHIFT,
            align_shift: ALIGN_SHIFT,
            namespace,
            layouts: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Whether its extents and pieces are cut as this version's writer cuts them.
    pub(crate) fn cuts_as_written_here(&self) -> bool {
        (self.piece_shift, self.align_shift) == (PIECE_SHIFT, ALIGN_SHIFT)
    }

    pub(crate) fn piece_bytes(&self) -> usize {
        1 << self.piece_shift
    }

    /// The bytes of an extent that holds so many bytes of tensors.
    pub(crate) fn extent_len(&self, payload: usize) -> u64 {
        (payload as u64).next_multiple_of(1 << self.align_shift)
    }

    pub(crate) fn layout(&self, entry: &Entry) -> &Arc<ExtentLayout> {
        &self.layouts[entry.layout as usize]
    }

    /// The index of this layout in the table, which grows where it is new.
    pub(crate) fn intern(&mut self, layout: Arc<ExtentLayout>) -> u32 {
        // Blocks of one batch look alike: the match is nearly always among the last few.
        let recent = self.layouts.len().saturating_sub(64);
        let known = self.layouts[recent..]
            .iter()
            .rposition(|known| *known == layout);
        let index = known.map_or(self.layouts.len(), |i| recent + i);
        if known.is_none() {
            self.layouts.push(layout);
        }
        index as u32
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + 1024 + self.records.len() * 256);
        out.put(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(BLAKE3_256);
        out.put(&self.id);
        for v in [self.sequence, self.generation, self.pack_len, self.created] {
            out.put_u64(v);
        }
        out.put_u32(self.layouts.len() as u32);
        out.put_u32(self.records.len() as u32);
        out.put_u32(self.piece_shift);
        out.put_u32(self.align_shift);
        out.put_u64(0);
        out.put_u32(self.namespace.len() as u32);
        out.resize(HEADER, 0);
        out.put_padded(self.namespace.as_bytes());
        for layout in &self.layouts {
            layout.encode(&mut out);
        }
        for entry in &self.records {
            entry.encode(&mut out);
        }
        let body = (out.len() - HEADER) as u64;
        out[80..88].copy_from_slice(&body.to_le_bytes());
        let sum = checksum(&out);
        out[SUM].copy_from_slice(&sum);
        out
    }

    /// Decodes a whole file. A checksum that does not match is reported as such before anything
    /// in the body is looked at.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        if r.array()? != MAGIC {
            return Err(r.invalid("a manifest's magic bytes"));
        }
        let version = r.u32()?;
        if version != VERSION {
            return Err(Error::Version {
                found: version,
                supported: VERSION,
            });
        }
        if bytes.len() < HEADER || bytes[SUM] != checksum(bytes) {
            return Err(r.invalid("a manifest with its checksum"));
        }
        if r.u32()? != BLAKE3_256 {
            return Err(r.invalid("hash algorithm 1"));
        }
        let id = r.array()?;
        let [sequence, generation, pack_len, created] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let [layouts, records, piece_shift, align_shift] = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
        let body = r.u64()?;
        let namespace_len = r.u32()? as usize;
        r.zeros(4)?;
        r.bytes(SUM.len())?;
        if body != (bytes.len() - HEADER) as u64 {
            return Err(r.invalid("a body of the length in the header"));
        }
        if !(16..=24).contains(&piece_shift) || !(12..=16).contains(&align_shift) {
            return Err(r.invalid("a piece or alignment of a known size"));
        }
        let mut manifest = Self {
            id,
            sequence,
            generation,
            pack_len,
            created,
            piece_shift,
            align_shift,
            namespace: r.text(namespace_len, MAX_NAME)?.into(),
            layouts: Vec::new(),
            records: Vec::new(),
        };
        for _ in 0..r.count(layouts, MAX_LAYOUTS, 16)? {
            manifest
                .layouts
                .push(Arc::new(ExtentLayout::decode(&mut r)?));
        }
        let records = r.count(records, MAX_RECORDS, 104)?;
        manifest.records.reserve_exact(records);
        for _ in 0..records {
            let entry = Entry::decode(&mut r, &manifest)?;
            manifest.records.push(entry);
        }
        r.end()?;
        manifest.check_disjoint(&r)?;
        Ok(manifest)
    }

    fn check_disjoint(&self, r: &Reader<'_>) -> Result<()> {
        let mut extents: Vec<(u64, u64)> = self
            .records
            .iter()
            .filter(|e| e.len > 0)
            .map(|e| (e.offset, e.len))
            .collect();
        extents.sort_unstable();
        if extents
            .windows(2)
            .any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        {
            return Err(r.invalid("extents that do not overlap"));
        }
        let mut keys: Vec<&Key> = self.records.iter().map(|e| &e.key).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(r.invalid("each key once"));
        }
        Ok(())
    }
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put(self.key.as_bytes());
        out.put(self.parent.unwrap_or(Key::new([0; 32])).as_bytes());
        out.put(&[self.kind.code(), u8::from(self.parent.is_some()), 0, 0]);
        out.put_u32(self.layout);
        out.put_u64(self.cost.to_bits());
        out.put_u64(self.offset);
        out.put_u64(self.len);
        out.put_u32(self.metadata.len() as u32);
        out.put_u32(self.pieces.len() as u32);
        for piece in &self.pieces {
            out.put(piece);
        }
        out.put_padded(&self.metadata);
    }

    fn decode(r: &mut Reader<'_>, manifest: &Manifest) -> Result<Self> {
        let key = Key::new(r.array()?);
        let parent: Hash = r.array()?;
        let kind = Kind::from_code(r.u8()?).ok_or_else(|| r.invalid("a kind"))?;
        let parent = match r.u8()? {
            0 if parent == [0; 32] => None,
            1 => Some(Key::new(parent)),
            _ => return Err(r.invalid("flags that agree with the parent")),
        };
        r.zeros(2)?;
        let layout = r.u32()?;
        let Some(table) = manifest.layouts.get(layout as usize) else {
            return Err(r.invalid("a layout of the table"));
        };
        let cost = f64::from_bits(r.u64()?);
        if !(cost.is_finite() && cost.is_sign_positive()) {
            return Err(r.invalid("a finite cost, not negative"));
        }
        let (offset, len) = (r.u64()?, r.u64()?);
        let inside = offset.is_multiple_of(1 << manifest.align_shift)
            && offset
                .checked_add(len)
                .is_some_and(|end| end <= manifest.pack_len);
        if len != manifest.extent_len(table.payload) || !inside {
            return Err(r.invalid("an extent of its layout inside the pack"));
        }
        let metadata_len = r.u32()?;
        if metadata_len > MAX_METADATA {
            return Err(r.invalid("less metadata"));
        }
        let pieces = r.u32()?;
        if u64::from(pieces) != len.div_ceil(manifest.piece_bytes() as u64) {
            return Err(r.invalid("as many pieces as the extent has"));
        }
        let pieces = r.count(pieces, u32::MAX, 32)?;
        let pieces = (0..pieces).map(|_| r.array()).collect::<Result<_>>()?;
        let metadata = r.padded(metadata_len as usize)?.into();
        Ok(Self {
            key,
            parent,
            kind,
            layout,
            cost,
            offset,
            len,
            pieces,
            metadata,
        })
    }
}

fn checksum(file: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file[..SUM.start]).update(&file[HEADER..]);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    pub(crate) fn sample() -> Manifest {
        let mut manifest = Manifest::new([9; 16], "chat".into(), 7);
        let tensors = [
            ("k", DType::Bf16, &[2, 3][..]),
            ("", DType::U8, &[0]),
            ("v", DType::F32, &[]),
        ];
        let layout = manifest.intern(Arc::new(ExtentLayout::place(tensors.into_iter()).unwrap()));
        let empty = manifest.intern(Arc::default());
        manifest.pack_len = 16_384;
        for (i, (layout, len)) in [(layout, 16_384), (empty, 0)].into_iter().enumerate() {
            manifest.records.push(Entry {
                key: Key::new([i as u8; 32]),
                parent: (i > 0).then_some(Key::new([0; 32])),
                kind: Kind::Rows,
                layout,
                cost: 1.5,
                offset: 0,
                len,
                pieces: vec![[3; 32]; usize::from(len > 0)].into(),
                metadata: vec![1, 2, 3].into(),
            });
        }
        manifest
    }

    #[test]
    fn a_manifest_round_trips() {
        let manifest = sample();
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_right_checksum_does_not_excuse_wrong_fields() {
        let bytes = sample().encode();
        for at in (12..SUM.start).chain(HEADER..bytes.len()) {
            for value in [0u8, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let sum = checksum(&changed);
                changed[SUM].copy_from_slice(&sum);
                // Whatever decodes is a manifest that encodes to the same bytes.
                if let Ok(manifest) = Manifest::decode(&changed) {
                    assert_eq!(manifest.encode(), changed, "byte {at} = {value}");
                }
            }
        }
    }
}
