//! Reading the memory of an evaluated array.

use std::fmt;
use std::ptr::NonNull;
use std::slice;

use mlx_rs::{Array, Dtype};

#[cfg(target_os = "linux")]
use crate::raw;
use crate::{Error, Result};

/// The memory of an evaluated array: its whole extent as bytes, with shape and signed
/// strides to find the elements in it.
///
/// The view keeps the array alive, and with it the memory; MLX writes into no memory that
/// another array may still read. It may be read from any thread at once, and dropped on
/// any.
///
/// ```
/// use mlx_rs::Array;
/// use mlx_rs::ops::indexing::{IntoStrideBy, TryIndexOp};
/// use mlx_sys_ext::HostView;
///
/// let values = Array::from_slice(&[10u8, 11, 12, 13], &[4]);
/// let reversed = values.try_index((..).stride_by(-1))?;
/// reversed.eval()?;
/// let view = HostView::new(reversed)?;
/// assert_eq!(view.bytes(), [10, 11, 12, 13]);
/// assert_eq!(view.bytes()[view.first_byte()], 13);
/// assert_eq!(view.byte_strides(), [-1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostView {
    owner: Array,
    dtype: Dtype,
    shape: Vec<i32>,
    byte_strides: Vec<isize>,
    item_size: usize,
    /// The extent's lowest byte; dangling where there are no elements.
    lowest: NonNull<u8>,
    length: usize,
    /// Where the element at index 0 of every axis lies.
    first_byte: usize,
}

// SAFETY: all that a shared view gives out is plain data and `&[u8]` of memory that nobody
// writes while `owner` lives. `owner` itself is not used through a shared view.
unsafe impl Sync for HostView {}

// SAFETY: see `Sync` for the memory. `owner` may be dropped on any thread: mlx-rs declares
// arrays `Send`, their reference counts are atomic, and MLX's allocators take a lock. An
// evaluated array holds no graph that dropping could walk.
unsafe impl Send for HostView {}

impl HostView {
    /// Looks at an array's memory. Call it on the thread that computes: on a GPU it may
    /// wait for the device and bring the memory to the host.
    ///
    /// # Errors
    /// [`Error::NotEvaluated`] if the array is not available yet (evaluate it first), and
    /// [`Error::Extent`] if its shape and strides overflow or, as `as_strided` can make
    /// them, reach beyond its memory. The latter is found on Linux, where set-up adds what
    /// mlx-c lacks for it; elsewhere it is the caller's to avoid, as for mlx-rs's own
    /// [`Array::as_slice`].
    pub fn new(array: Array) -> Result<Self> {
        if !crate::is_available(&array)? {
            return Err(Error::NotEvaluated {
                shape: array.shape().to_vec(),
            });
        }
        let item_size = array.item_size();
        let shape = array.shape().to_vec();
        // MLX's strides are signed; mlx-c and mlx-rs hand the same bits out as unsigned.
        let strides = array.strides();
        let byte_strides: Vec<isize> = strides
            .iter()
            .map(|&stride| (stride as isize).checked_mul(item_size as isize))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Extent {
                shape: shape.clone(),
                byte_strides: strides.iter().map(|&stride| stride as isize).collect(),
            })?;
        let Some(extent) = Extent::new(&shape, &byte_strides, item_size) else {
            return Err(Error::Extent {
                shape,
                byte_strides,
            });
        };
        let mut lowest = NonNull::dangling();
        if extent.length > 0 {
            if !extent.is_inside(&array)? {
                return Err(Error::Extent {
                    shape,
                    byte_strides,
                });
            }
            // SAFETY: the array is evaluated, so MLX has memory for it; the pointer's type
            // is of no matter, since mlx-c only casts.
            let first = unsafe { mlx_sys::mlx_array_data_uint8(array.as_ptr()) };
            // SAFETY: the lowest byte belongs to an element of the array, at the corner
            // where every axis with a negative stride is at its end, and `is_inside` has
            // shown that the extent stays in the array's allocation.
            let start = unsafe { first.sub(extent.first_byte) };
            lowest = NonNull::new(start.cast_mut()).ok_or_else(|| Error::Mlx {
                message: "an evaluated array has no memory".to_owned(),
            })?;
        }
        Ok(Self {
            dtype: array.dtype(),
            owner: array,
            shape,
            byte_strides,
            item_size,
            lowest,
            length: extent.length,
            first_byte: extent.first_byte,
        })
    }

    /// The bytes from the lowest element to the end of the highest, in memory's order. With
    /// gaps between elements, what lies in them is some other array's.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the extent lies in the array's allocation (see `new`), `owner` keeps that
        // alive, and MLX writes into an allocation only when no other array holds it. Bytes
        // have no alignment and no invalid values; MLX's views lie inside arrays that were
        // written whole.
        unsafe { slice::from_raw_parts(self.lowest.as_ptr(), self.length) }
    }

    /// Where in [`bytes`](Self::bytes) the element at index 0 of every axis begins. Not 0
    /// if a stride is negative.
    #[must_use]
    pub fn first_byte(&self) -> usize {
        self.first_byte
    }

    /// The extent of each axis.
    #[must_use]
    pub fn shape(&self) -> &[i32] {
        &self.shape
    }

    /// The distance in bytes between neighbours along each axis; negative where the array
    /// runs backwards, 0 where it repeats.
    #[must_use]
    pub fn byte_strides(&self) -> &[isize] {
        &self.byte_strides
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes of one element.
    #[must_use]
    pub fn item_size(&self) -> usize {
        self.item_size
    }

    /// Gives the array back.
    #[must_use]
    pub fn into_array(self) -> Array {
        self.owner
    }
}

impl fmt::Debug for HostView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostView")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("byte_strides", &self.byte_strides)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Where the elements lie, relative to the lowest byte of all.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    length: usize,
    first_byte: usize,
}

impl Extent {
    /// Nothing if the arithmetic overflows. `first_byte` is how far the strides reach below
    /// the first element.
    fn new(shape: &[i32], byte_strides: &[isize], item_size: usize) -> Option<Self> {
        if shape.contains(&0) {
            return Some(Self {
                length: 0,
                first_byte: 0,
            });
        }
        let (mut below, mut above) = (0usize, 0usize);
        for (&size, &stride) in shape.iter().zip(byte_strides) {
            let steps = usize::try_from(size).ok()?.checked_sub(1)?;
            let reach = stride.unsigned_abs().checked_mul(steps)?;
            let side = if stride < 0 { &mut below } else { &mut above };
            *side = side.checked_add(reach)?;
        }
        let length = below.checked_add(above)?.checked_add(item_size)?;
        isize::try_from(length).ok()?;
        Some(Self {
            length,
            first_byte: below,
        })
    }

    /// Whether the extent lies in the allocation of an evaluated array.
    #[cfg(target_os = "linux")]
    fn is_inside(&self, array: &Array) -> Result<bool> {
        let (mut size, mut offset) = (0usize, 0i64);
        // SAFETY: the handle is live, and the places are ours.
        raw::status(|| unsafe {
            mlx_sys::prefill_array_buffer(&raw mut size, &raw mut offset, array.as_ptr())
        })?;
        let first = usize::try_from(offset).ok();
        let lowest = first.and_then(|first| first.checked_sub(self.first_byte));
        let end = lowest.and_then(|lowest| lowest.checked_add(self.length));
        Ok(end.is_some_and(|end| end <= size))
    }

    /// mlx-c gives no allocation's size, and upstream's build leaves no room for an addition.
    /// MLX keeps the elements of an array in one allocation, unless `as_strided` was told
    /// otherwise.
    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Linux")]
    fn is_inside(&self, _: &Array) -> Result<bool> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_reach_both_ways() {
        let extent = |length, first_byte| Some(Extent { length, first_byte });
        assert_eq!(Extent::new(&[3, 4], &[16, 4], 4), extent(48, 0));
        assert_eq!(Extent::new(&[3, 4], &[-16, 4], 4), extent(48, 32));
        assert_eq!(Extent::new(&[3, 4], &[-16, -4], 4), extent(48, 44));
        assert_eq!(Extent::new(&[3, 4], &[0, 4], 4), extent(16, 0));
        assert_eq!(Extent::new(&[], &[], 8), extent(8, 0));
        assert_eq!(Extent::new(&[3, 0], &[isize::MAX, 1], 4), extent(0, 0));
    }

    #[test]
    fn what_overflows_has_no_extent() {
        assert_eq!(Extent::new(&[3], &[isize::MAX], 4), None);
        assert_eq!(Extent::new(&[2, 2], &[isize::MAX, isize::MAX], 4), None);
        assert_eq!(Extent::new(&[2, 2], &[isize::MIN, isize::MIN], 4), None);
        assert_eq!(Extent::new(&[-1], &[4], 4), None);
    }
}
