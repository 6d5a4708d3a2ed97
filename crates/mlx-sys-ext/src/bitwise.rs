//! Operations on the bits of integers (and booleans), which mlx-rs leaves out.

use mlx_rs::{Array, Stream};

use crate::Result;
use crate::raw;

macro_rules! binary {
    ($(#[$docs:meta])* $name:ident, $raw:ident) => {
        $(#[$docs])*
        ///
        /// Shapes broadcast against each other, and types are promoted as in other
        /// operations of MLX.
        ///
        /// # Errors
        /// [`Error::Mlx`](crate::Error::Mlx) for shapes that do not broadcast and for floats.
        pub fn $name(a: &Array, b: &Array) -> Result<Array> {
            let stream = Stream::thread_local_or_default();
            // SAFETY: all handles are live.
            raw::array(|result| unsafe {
                mlx_sys::$raw(result, a.as_ptr(), b.as_ptr(), stream.as_ptr())
            })
        }
    };
}

binary!(
    /// The bits that both have.
    ///
    /// ```
    /// use mlx_rs::Array;
    ///
    /// let (a, b) = (Array::from_slice(&[0b1100u8], &[1]), Array::from_slice(&[0b1010u8], &[1]));
    /// assert_eq!(mlx_sys_ext::bitwise_and(&a, &b)?.as_slice::<u8>(), [0b1000]);
    /// # Ok::<(), mlx_sys_ext::Error>(())
    /// ```
    bitwise_and,
    mlx_bitwise_and
);
binary!(
    /// The bits that either has.
    bitwise_or,
    mlx_bitwise_or
);
binary!(
    /// The bits that one has and the other has not.
    bitwise_xor,
    mlx_bitwise_xor
);
binary!(
    /// `a` moved up by `b` bits.
    left_shift,
    mlx_left_shift
);
binary!(
    /// `a` moved down by `b` bits; signed numbers keep their sign.
    right_shift,
    mlx_right_shift
);

/// Every bit turned over.
///
/// # Errors
/// [`Error::Mlx`](crate::Error::Mlx) for floats.
pub fn bitwise_invert(a: &Array) -> Result<Array> {
    let stream = Stream::thread_local_or_default();
    // SAFETY: all handles are live.
    raw::array(|result| unsafe { mlx_sys::mlx_bitwise_invert(result, a.as_ptr(), stream.as_ptr()) })
}
