use super::MAX_NAME;
use super::codec::{Put, Reader};
use super::tensors::{dtype_and_rank, put_shape, shape};
use crate::{DType, Key, Result};

const VERSION: u32 = 1;
const NO_AXIS: u8 = 255;

/// The table of a snapshot, kept as the metadata of its record: docs/format.md, section 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotTable {
    pub(crate) name: String,
    pub(crate) metadata: Vec<u8>,
    pub(crate) groups: Vec<Group>,
    pub(crate) tensors: Vec<TableTensor>,
}

/// Tensors that are cut at the same rows, and the blocks that hold these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) rows: u64,
    pub(crate) rows_per_block: u64,
    pub(crate) blocks: Vec<BlockRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) key: Key,
    pub(crate) first: u64,
    pub(crate) rows: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableTensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) group: u32,
    pub(crate) axis: Option<u8>,
}

impl TableTensor {
    /// The bytes of all its elements. Its blocks, which were there when this was written, are as
    /// long together; a table that claims more finds no blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let size = self.dtype.size() as u64;
        self.shape
            .iter()
            .fold(size, |product, &n| product.saturating_mul(n as u64))
    }
}

impl SnapshotTable {
    /// The bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(TableTensor::bytes)
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(VERSION);
        out.put_u16(self.name.len() as u16);
        out.put_u16(0);
        out.put_u32(self.groups.len() as u32);
        out.put_u32(self.tensors.len() as u32);
        out.put_u32(self.metadata.len() as u32);
        out.put_u32(0);
        out.put_padded(self.name.as_bytes());
        out.put_padded(&self.metadata);
        for group in &self.groups {
            out.put_u64(group.rows);
            out.put_u64(group.rows_per_block);
            out.put_u32(group.blocks.len() as u32);
            out.put_u32(0);
            for block in &group.blocks {
                out.put(block.key.as_bytes());
                out.put_u64(block.first);
                out.put_u64(block.rows);
            }
        }
        for tensor in &self.tensors {
            out.put(&[tensor.dtype.code(), tensor.shape.len() as u8]);
            out.put_u16(tensor.name.len() as u16);
            out.put_u32(tensor.group);
            out.put(&[tensor.axis.unwrap_or(NO_AXIS), 0, 0, 0, 0, 0, 0, 0]);
            put_shape(&mut out, &tensor.shape);
            out.put_padded(tensor.name.as_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let version = r.u32()?;
        if version != VERSION {
            return Err(crate::Error::Version {
                found: version,
                supported: VERSION,
            });
        }
        let name_len = usize::from(r.u16()?);
        r.zeros(2)?;
        let [groups, tensors, metadata] = [r.u32()?, r.u32()?, r.u32()?];
        r.zeros(4)?;
        let name = r.text(name_len, MAX_NAME)?.to_owned();
        let metadata = r.padded(metadata as usize)?.to_vec();
        let groups = r.count(groups, u32::MAX, 24)?;
        let groups = (0..groups)
            .map(|_| Group::decode(&mut r))
            .collect::<Result<Vec<_>>>()?;
        let tensors = r.count(tensors, u32::MAX, 16)?;
        let tensors = (0..tensors)
            .map(|_| TableTensor::decode(&mut r, &groups))
            .collect::<Result<Vec<_>>>()?;
        r.end()?;
        Ok(Self {
            name,
            metadata,
            groups,
            tensors,
        })
    }
}

impl Group {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (rows, rows_per_block) = (r.u64()?, r.u64()?);
        let blocks = r.u32()?;
        r.zeros(4)?;
        if rows_per_block == 0 {
            return Err(r.invalid("at least one row for each block"));
        }
        let mut next = 0u64;
        let mut list = Vec::with_capacity(r.count(blocks, u32::MAX, 48)?);
        for _ in 0..blocks {
            let block = BlockRef {
                key: Key::new(r.array()?),
                first: r.u64()?,
                rows: r.u64()?,
            };
            let end = next.checked_add(block.rows).filter(|&end| end <= rows);
            match end {
                Some(end) if block.first == next && block.rows > 0 => next = end,
                _ => return Err(r.invalid("blocks that follow each other")),
            }
            list.push(block);
        }
        if blocks > 0 && next != rows {
            return Err(r.invalid("blocks that cover all rows"));
        }
        Ok(Self {
            rows,
            rows_per_block,
            blocks: list,
        })
    }
}

impl TableTensor {
    fn decode(r: &mut Reader<'_>, groups: &[Group]) -> Result<Self> {
        let (dtype, rank) = dtype_and_rank(r)?;
        let name_len = usize::from(r.u16()?);
        let group = r.u32()?;
        let axis = r.u8()?;
        r.zeros(7)?;
        let shape = shape(r, rank)?;
        let Some(cut) = groups.get(group as usize) else {
            return Err(r.invalid("a group of the table"));
        };
        let (axis, rows) = match axis {
            NO_AXIS if rank == 0 => (None, 1),
            axis if usize::from(axis) < rank => (Some(axis), shape[usize::from(axis)] as u64),
            _ => return Err(r.invalid("an axis of the tensor")),
        };
        if rows != cut.rows {
            return Err(r.invalid("an axis as long as its group"));
        }
        let name = r.text(name_len, MAX_NAME)?.to_owned();
        Ok(Self {
            name,
            dtype,
            shape,
            group,
            axis,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_round_trips_and_its_cuts_are_refused() {
        let table = SnapshotTable {
            name: "turn 3".into(),
            metadata: vec![1, 2, 3],
            groups: vec![
                Group {
                    rows: 5,
                    rows_per_block: 4,
                    blocks: vec![
                        BlockRef {
                            key: Key::new([1; 32]),
                            first: 0,
                            rows: 4,
                        },
                        BlockRef {
                            key: Key::new([2; 32]),
                            first: 4,
                            rows: 1,
                        },
                    ],
                },
                Group {
                    rows: 1,
                    rows_per_block: 1,
                    blocks: vec![],
                },
            ],
            tensors: vec![
                TableTensor {
                    name: "0.k".into(),
                    dtype: DType::Bf16,
                    shape: vec![1, 2, 5, 8],
                    group: 0,
                    axis: Some(2),
                },
                TableTensor {
                    name: String::new(),
                    dtype: DType::F32,
                    shape: vec![],
                    group: 1,
                    axis: None,
                },
            ],
        };
        let bytes = table.encode();
        assert_eq!(SnapshotTable::decode(&bytes).unwrap(), table);
        for len in 0..bytes.len() {
            assert!(SnapshotTable::decode(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            for value in [0u8, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(table) = SnapshotTable::decode(&changed) {
                    assert_eq!(table.encode(), changed);
                }
            }
        }
    }
}
