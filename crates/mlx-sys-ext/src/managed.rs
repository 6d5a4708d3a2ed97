//! Arrays over memory that the program owns.

use std::ffi::c_void;

use mlx_rs::{Array, Dtype};

use crate::raw;
use crate::{Error, Result};

/// Makes an array of `owner`'s bytes, which MLX takes over: the elements row by row, in the
/// platform's byte order. `owner` is dropped when no array needs the memory any more.
///
/// On Metal the memory is used as it is where the GPU can reach it (page-aligned); on other
/// back ends MLX copies it, and `owner` is dropped **before this function returns**. MLX
/// may write into memory that it uses as it is, which is why `owner` must own it alone
/// (`AsMut`): a `Vec<u8>` or a private memory map, not a shared one.
///
/// A panic in the drop of `owner` ends the process, since it can't pass through MLX.
///
/// ```
/// use mlx_rs::Dtype;
/// use mlx_sys_ext::array_from_owner;
///
/// let bytes: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// # #[cfg(target_endian = "little")]
/// assert_eq!(array_from_owner(bytes, &[2], Dtype::Float32)?.as_slice::<f32>(), [1.5, -2.0]);
/// # Ok::<(), mlx_sys_ext::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] for a negative extent, [`Error::Length`] if `owner` has another number
/// of bytes than `shape` and `dtype` ask for, [`Error::Alignment`] if it does not begin
/// where an element may, [`Error::Bool`] for a byte that is no boolean,
/// [`Error::Mlx`] if MLX has no memory for a copy.
pub fn array_from_owner<T>(owner: T, shape: &[i32], dtype: Dtype) -> Result<Array>
where
    T: AsMut<[u8]> + Send + 'static,
{
    // Boxed first: memory inside `owner` itself then stays where it is.
    let mut owner = Box::new(owner);
    let bytes = (*owner).as_mut();
    check_bytes(bytes, shape, dtype)?;
    let rank = i32::try_from(shape.len()).map_err(|_| Error::Shape {
        shape: shape.to_vec(),
    })?;
    let data = bytes.as_mut_ptr();
    let alignment = alignment(dtype);
    if !bytes.is_empty() && data.addr() % alignment != 0 {
        return Err(Error::Alignment {
            expected: alignment,
            found: 1 << data.addr().trailing_zeros(),
        });
    }
    let payload = Box::into_raw(owner);
    raw::handle(|| {
        // SAFETY: `data` points to as many bytes as shape and type ask for, aligned for the
        // type, that live until `drop_owner::<T>` is called with `payload`, which MLX does
        // exactly once, from any thread (`T: Send`), when the last array over the memory is
        // gone or was copied. Where MLX fails before that, the owner is leaked, never freed
        // twice.
        unsafe {
            mlx_sys::mlx_array_new_data_managed_payload(
                data.cast(),
                shape.as_ptr(),
                rank,
                dtype.into(),
                payload.cast(),
                Some(drop_owner::<T>),
            )
        }
    })
}

/// How many bytes an array has.
///
/// # Errors
/// [`Error::Shape`].
pub(crate) fn expected_bytes(shape: &[i32], dtype: Dtype) -> Result<usize> {
    shape
        .iter()
        .try_fold(item_size(dtype), |product, &extent| {
            product.checked_mul(usize::try_from(extent).ok()?)
        })
        .ok_or_else(|| Error::Shape {
            shape: shape.to_vec(),
        })
}

/// Whether these can be an array's bytes.
///
/// # Errors
/// [`Error::Shape`], [`Error::Length`], [`Error::Bool`].
pub(crate) fn check_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Result<()> {
    let expected = expected_bytes(shape, dtype)?;
    if bytes.len() != expected {
        return Err(Error::Length {
            shape: shape.to_vec(),
            dtype,
            expected,
            found: bytes.len(),
        });
    }
    if dtype == Dtype::Bool
        && let Some(offset) = bytes.iter().position(|&byte| byte > 1)
    {
        let byte = bytes[offset];
        return Err(Error::Bool { offset, byte });
    }
    Ok(())
}

/// Ends an owner that [`array_from_owner`] boxed.
unsafe extern "C" fn drop_owner<T>(payload: *mut c_void) {
    // SAFETY: the caller passes what `Box::into_raw` gave, once.
    drop(unsafe { Box::from_raw(payload.cast::<T>()) });
}

/// Bytes of one element.
fn item_size(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Bool | Dtype::Uint8 | Dtype::Int8 => 1,
        Dtype::Uint16 | Dtype::Int16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
        Dtype::Uint32 | Dtype::Int32 | Dtype::Float32 => 4,
        Dtype::Uint64 | Dtype::Int64 | Dtype::Float64 | Dtype::Complex64 => 8,
    }
}

/// A complex number is two floats.
fn alignment(dtype: Dtype) -> usize {
    if dtype == Dtype::Complex64 {
        4
    } else {
        item_size(dtype)
    }
}
