//! When results are there.

use mlx_rs::{Array, Stream};

use crate::Result;
use crate::raw;

/// Waits until the calling thread's default stream has done all that was queued on it.
///
/// # Errors
/// [`Error::Mlx`](crate::Error::Mlx) if an operation failed meanwhile.
pub fn synchronize() -> Result<()> {
    synchronize_stream(&Stream::thread_local_or_default())
}

/// Waits until `stream` has done all that was queued on it. Only the thread that made a
/// stream may wait for it.
///
/// # Errors
/// [`Error::Mlx`](crate::Error::Mlx) if an operation failed meanwhile.
pub fn synchronize_stream(stream: &Stream) -> Result<()> {
    // SAFETY: the handle is live.
    raw::status(|| unsafe { mlx_sys::mlx_synchronize(stream.as_ptr()) })
}

/// Whether an array's values are there: it was evaluated, and the device is done with it.
/// [`Array::eval`] waits until they are. (MLX's own way to wait for one array marks it as
/// available even if nobody ever evaluated it, so there is no function for that here.)
///
/// # Errors
/// [`Error::Mlx`](crate::Error::Mlx).
pub fn is_available(array: &Array) -> Result<bool> {
    let mut available = false;
    // SAFETY: the handle is live, and the place is ours.
    raw::status(|| unsafe {
        mlx_sys::_mlx_array_is_available(&raw mut available, array.as_ptr())
    })?;
    Ok(available)
}
