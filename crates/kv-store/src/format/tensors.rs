use super::MAX_NAME;
use super::codec::{Put, Reader};
use crate::layout::MAX_RANK;
use crate::{DType, Error, Result};

/// Tensors start at multiples of this inside an extent.
const ALIGN: usize = 64;
const MAX_TENSORS: u32 = 65_536;

/// One tensor of an extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// What an extent holds: docs/format.md, "Layout".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ExtentLayout {
    pub(crate) tensors: Vec<TensorSpec>,
    pub(crate) payload: usize,
}

impl ExtentLayout {
    /// Places tensors one after the other.
    pub(crate) fn place<'a>(
        tensors: impl ExactSizeIterator<Item = (&'a str, DType, &'a [usize])>,
    ) -> Result<Self> {
        if tensors.len() > MAX_TENSORS as usize {
            return Err(Error::limit(
                "tensor count",
                tensors.len(),
                MAX_TENSORS.into(),
            ));
        }
        let mut layout = Self::default();
        for (name, dtype, shape) in tensors {
            if name.len() > MAX_NAME {
                return Err(Error::limit("name length", name.len(), MAX_NAME as u64));
            }
            layout.push(name.to_owned(), dtype, shape.to_vec())?;
        }
        Ok(layout)
    }

    fn push(&mut self, name: String, dtype: DType, shape: Vec<usize>) -> Result<()> {
        const LIMIT: u64 = i64::MAX as u64;
        let too_large = || Error::Limit {
            what: "tensor bytes",
            found: u64::MAX,
            limit: LIMIT,
        };
        let bytes = if shape.contains(&0) {
            0
        } else {
            shape
                .iter()
                .try_fold(dtype.size(), |product, &n| product.checked_mul(n))
                .ok_or_else(too_large)?
        };
        let offset = self
            .payload
            .checked_next_multiple_of(ALIGN)
            .ok_or_else(too_large)?;
        self.payload = offset
            .checked_add(bytes)
            .filter(|&end| end as u64 <= LIMIT / 2)
            .ok_or_else(too_large)?;
        self.tensors.push(TensorSpec {
            name,
            dtype,
            shape,
            offset,
            bytes,
        });
        Ok(())
    }

    /// The parts of an extent that no tensor holds.
    pub(crate) fn padding<'b>(&self, extent: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let starts = self.tensors.iter().map(|t| t.offset).chain([extent.len()]);
        let ends = self.tensors.iter().map(|t| t.offset + t.bytes);
        std::iter::once(0)
            .chain(ends)
            .zip(starts)
            .map(|(from, to)| &extent[from..to])
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.tensors.len() as u32);
        out.put_u32(0);
        out.put_u64(self.payload as u64);
        for tensor in &self.tensors {
            out.put(&[tensor.dtype.code(), tensor.shape.len() as u8]);
            out.put_u16(tensor.name.len() as u16);
            out.put_u32(0);
            out.put_u64(tensor.offset as u64);
            put_shape(out, &tensor.shape);
            out.put_padded(tensor.name.as_bytes());
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.u32()?;
        r.zeros(4)?;
        let payload = r.u64()?;
        let n = r.count(n, MAX_TENSORS, 16)?;
        let mut layout = Self {
            tensors: Vec::with_capacity(n),
            payload: 0,
        };
        for _ in 0..n {
            let (dtype, rank) = dtype_and_rank(r)?;
            let name_len = usize::from(r.u16()?);
            r.zeros(4)?;
            let offset = r.u64()?;
            let shape = shape(r, rank)?;
            let name = r.text(name_len, MAX_NAME)?.to_owned();
            layout.push(name, dtype, shape)?;
            if layout
                .tensors
                .last()
                .is_none_or(|t| t.offset as u64 != offset)
            {
                return Err(r.invalid("the next aligned offset"));
            }
        }
        if layout.payload as u64 != payload {
            return Err(r.invalid("the payload length that follows from the tensors"));
        }
        Ok(layout)
    }
}

pub(super) fn put_shape(out: &mut Vec<u8>, shape: &[usize]) {
    for &n in shape {
        out.put_u64(n as u64);
    }
}

pub(super) fn dtype_and_rank(r: &mut Reader<'_>) -> Result<(DType, usize)> {
    let dtype = DType::from_code(r.u8()?).ok_or_else(|| r.invalid("a dtype code"))?;
    let rank = usize::from(r.u8()?);
    if rank > MAX_RANK {
        return Err(r.invalid("a rank of at most 8"));
    }
    Ok((dtype, rank))
}

pub(super) fn shape(r: &mut Reader<'_>, rank: usize) -> Result<Vec<usize>> {
    (0..rank)
        .map(|_| usize::try_from(r.u64()?).map_err(|_| r.invalid("a dimension of this platform")))
        .collect()
}
