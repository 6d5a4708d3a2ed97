use crate::{Error, Result};

/// Reads fixed-width little-endian fields, and knows where it is.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            offset: 0,
        }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return Err(self.invalid("more bytes than there are"));
        };
        self.rest = rest;
        self.offset += n as u64;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes that a writer leaves zero.
    pub(crate) fn zeros(&mut self, n: usize) -> Result<()> {
        if self.bytes(n)?.iter().any(|&b| b != 0) {
            return Err(self.invalid("zero bytes"));
        }
        Ok(())
    }

    /// `n` bytes and their padding to a multiple of 8.
    pub(crate) fn padded(&mut self, n: usize) -> Result<&'a [u8]> {
        let bytes = self.bytes(n)?;
        self.zeros(n.next_multiple_of(8) - n)?;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, n: usize, limit: usize) -> Result<&'a str> {
        if n > limit {
            return Err(self.invalid("a shorter name"));
        }
        let bytes = self.padded(n)?;
        std::str::from_utf8(bytes).map_err(|_| self.invalid("UTF-8"))
    }

    /// A count of things of at least `size` bytes each, so that it can size an allocation.
    pub(crate) fn count(&self, n: u32, limit: u32, size: usize) -> Result<usize> {
        if n > limit || n as usize > self.rest.len() / size {
            return Err(self.invalid("a smaller count"));
        }
        Ok(n as usize)
    }

    pub(crate) fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.invalid("the end"))
        }
    }

    pub(crate) const fn invalid(&self, what: &'static str) -> Error {
        Error::Format {
            offset: self.offset,
            what,
        }
    }
}

/// The writing half: appends to a vector.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }
    /// The bytes, and zeros to a multiple of 8.
    fn put_padded(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.put(&[0; 7][..bytes.len().next_multiple_of(8) - bytes.len()]);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
