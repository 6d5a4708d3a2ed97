use std::ops::Range;

use crate::copy::{gather, scatter};
use crate::{DType, Error, Layout, Result, Runs};

/// A tensor to read from: bytes that somebody owns, and a layout whose every offset has been
/// proven to lie inside them.
///
/// ```
/// use prefill_kv_store::{DType, Layout, View};
/// let bytes: Vec<u8> = (0..24).collect();
/// // A [2, 3, 4] tensor of bytes, seen as [2, 4, 3].
/// let view = View::new(&bytes, DType::U8, Layout::contiguous(&[2, 3, 4])?.permute(&[0, 2, 1])?)?;
/// assert_eq!(&view.to_vec()[..4], [0, 4, 8, 1]);
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct View<'a> {
    data: &'a [u8],
    dtype: DType,
    layout: Layout,
}

impl<'a> View<'a> {
    /// A view of `data`. The bytes need no alignment.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the layout reaches outside `data`.
    pub fn new(data: &'a [u8], dtype: DType, layout: Layout) -> Result<Self> {
        layout.check(data.len() / dtype.size())?;
        Ok(Self {
            data,
            dtype,
            layout,
        })
    }

    /// A view of a whole row-major tensor.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `data` is too short.
    pub fn contiguous(data: &'a [u8], dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::new(data, dtype, Layout::contiguous(shape)?)
    }

    /// The element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the elements lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The bytes that the elements take in row-major order.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.layout.elements() * self.dtype.size()
    }

    /// Part of it along one axis.
    ///
    /// # Errors
    /// [`Error::Index`] if there is no such axis or part.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        Ok(Self {
            layout: self.layout.narrow(axis, start, len)?,
            ..self.clone()
        })
    }

    /// The contiguous pieces of the data, in row-major order of the elements.
    pub fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let data = self.data;
        Runs::new(&self.layout, self.dtype.size()).map(move |run| &data[run])
    }

    /// As [`View::slices`], for a range of the bytes in row-major order.
    pub(crate) fn slices_of(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let data = self.data;
        Runs::of_range(&self.layout, self.dtype.size(), range).map(move |run| &data[run])
    }

    /// The length of a contiguous run in bytes.
    #[must_use]
    pub fn run_bytes(&self) -> usize {
        Runs::new(&self.layout, self.dtype.size()).run_bytes()
    }

    /// Copies a range of the bytes in row-major order. The range must begin and end at elements.
    pub(crate) fn copy_range(&self, range: Range<usize>, out: &mut [u8]) {
        gather(self.data, &self.layout, self.dtype.size(), range, out);
    }

    /// Copies the elements in row-major order.
    ///
    /// # Errors
    /// [`Error::Limit`] if `out` has not exactly [`View::byte_len`] bytes.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<()> {
        same_length(out.len(), self.byte_len())?;
        self.copy_range(0..out.len(), out);
        Ok(())
    }

    /// The elements in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.byte_len()];
        self.copy_range(0..out.len(), &mut out);
        out
    }
}

/// A tensor to write to: as [`View`], over bytes that can be written, no two elements sharing any.
///
/// ```
/// use prefill_kv_store::{DType, Layout, ViewMut};
/// let mut cache = vec![0; 16];
/// let rows = Layout::contiguous(&[2, 4, 2])?.narrow(1, 3, 1)?;
/// ViewMut::new(&mut cache, DType::U8, rows)?.copy_from(&[1, 2, 3, 4])?;
/// assert_eq!(cache, [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a> {
    data: &'a mut [u8],
    dtype: DType,
    layout: Layout,
}

impl<'a> ViewMut<'a> {
    /// A view of `data` that can be written.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the layout reaches outside `data`; [`Error::Overlap`] if two
    /// elements of it may share bytes.
    pub fn new(data: &'a mut [u8], dtype: DType, layout: Layout) -> Result<Self> {
        layout.check(data.len() / dtype.size())?;
        if !layout.is_injective() {
            return Err(Error::Overlap {
                buffer: 0,
                offset: layout.offset() * dtype.size(),
            });
        }
        Ok(Self {
            data,
            dtype,
            layout,
        })
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Fills it from elements in row-major order.
    ///
    /// # Errors
    /// [`Error::Limit`] if `packed` has not exactly as many bytes as the elements take.
    pub fn copy_from(&mut self, packed: &[u8]) -> Result<()> {
        same_length(packed.len(), self.layout.elements() * self.dtype.size())?;
        scatter(packed, self.data, &self.layout, self.dtype.size());
        Ok(())
    }
}

fn same_length(found: usize, expected: usize) -> Result<()> {
    if found != expected {
        return Err(Error::limit("buffer length", found, expected as u64));
    }
    Ok(())
}
