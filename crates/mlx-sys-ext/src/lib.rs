//! What mlx-rs 0.33 lacks of MLX, behind safe functions.
//!
//! - [`HostView`]: the memory of an evaluated array of any type, with **signed** strides,
//!   readable from any thread without a copy.
//! - [`array_from_owner`]: an array over memory that the program owns;
//!   [`array_read_from`]: one that is copied out of it, on CUDA to the device.
//! - [`Quantization`], [`quantize`], [`dequantize`], [`quantized_matmul`], [`gather_qmm`]:
//!   every mode that MLX has, where mlx-rs knows affine only.
//! - [`synchronize`], [`is_available`]: when results are there.
//! - [`Backend`], [`device_count`], [`is_device_available`], [`device_info`], [`version`].
//! - [`bitwise_and`] and its like, which mlx-rs leaves out.
//!
//! ```
//! use mlx_rs::Array;
//! use mlx_sys_ext::HostView;
//!
//! let array = Array::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3]).transpose()?;
//! array.eval()?;
//! let view = HostView::new(array)?;
//! assert_eq!(view.shape(), [3, 2]);
//! assert_eq!(view.byte_strides(), [4, 12]);
//! assert_eq!(view.bytes().len(), 24);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads and streams
//! MLX runs operations on streams, and each thread has a default stream a device of its
//! own. An array evaluated on one thread may be read on another once it is available. Two
//! threads must not evaluate graphs that share unevaluated arrays: MLX guards its graph by
//! no lock. Keep all computation on one thread, call [`HostView::new`] there, and send the
//! view: it may be read and dropped anywhere.
//!
//! # Errors
//! mlx-c reports errors to one handler a process, and its default one ends the process.
//! Before its first raw call this crate lets mlx-rs install its handler and puts one before
//! it that keeps the messages of raw calls apart; mlx-rs's own errors are unchanged.
//!
//! # What it does not do
//! It wraps nothing that mlx-rs wraps already. It is the one place of the workspace with
//! unsafe MLX calls.
#![allow(unsafe_code, reason = "this crate is where unsafe MLX calls live")]

mod bitwise;
mod device;
mod error;
mod host_view;
mod managed;
mod quantization;
mod raw;
mod reading;
mod stream;

pub use bitwise::{bitwise_and, bitwise_invert, bitwise_or, bitwise_xor, left_shift, right_shift};
pub use device::{
    Backend, DeviceInfo, DeviceInfoValue, device_count, device_info, is_device_available, version,
};
pub use error::Error;
pub use host_view::HostView;
pub use managed::array_from_owner;
pub use quantization::{
    GatherIndices, Quantization, Quantized, dequantize, gather_qmm, quantize, quantized_matmul,
};
pub use reading::array_read_from;
pub use stream::{is_available, synchronize, synchronize_stream};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
