//! What can go wrong.

use mlx_rs::Dtype;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MLX refused the call.
    #[error("MLX: {message}")]
    Mlx {
        /// MLX's words.
        message: String,
    },
    /// The array has no memory to look at yet.
    #[error("an array of shape {shape:?} is not evaluated")]
    NotEvaluated {
        /// Its shape.
        shape: Vec<i32>,
    },
    /// Shape and strides describe more bytes than an address space holds.
    #[error("an array of shape {shape:?} with byte strides {byte_strides:?} has no valid extent")]
    Extent {
        /// The shape.
        shape: Vec<i32>,
        /// The distance between neighbours along each axis, in bytes.
        byte_strides: Vec<isize>,
    },
    /// Memory of another length than shape and type ask for.
    #[error(
        "{found} bytes for an array of shape {shape:?} and type {dtype:?}, which has {expected}"
    )]
    Length {
        /// The shape.
        shape: Vec<i32>,
        /// The type.
        dtype: Dtype,
        /// Bytes that they ask for.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Memory that does not begin where an element may.
    #[error("memory at a multiple of {found} bytes for elements that need multiples of {expected}")]
    Alignment {
        /// Bytes that the type asks for.
        expected: usize,
        /// The largest power of two that divides the address.
        found: usize,
    },
    /// A byte that is no boolean.
    #[error("byte {offset} is {byte}, and a boolean is 0 or 1")]
    Bool {
        /// Where it is.
        offset: usize,
        /// What it is.
        byte: u8,
    },
    /// A negative extent.
    #[error("the shape {shape:?} has a negative extent")]
    Shape {
        /// The shape.
        shape: Vec<i32>,
    },
    /// A group size and number of bits that no affine quantisation has.
    #[error(
        "affine quantisation has groups of 32, 64 or 128 and 2, 3, 4, 5, 6 or 8 bits, \
         not groups of {group_size} and {bits} bits"
    )]
    Affine {
        /// Values a group.
        group_size: i32,
        /// Bits a value.
        bits: i32,
    },
    /// Quantised tensors that lack biases where the mode has them, or have some where it
    /// has none.
    #[error("{mode} quantisation has {}biases", if *expected { "" } else { "no " })]
    Biases {
        /// The mode's name.
        mode: &'static str,
        /// Whether it has biases.
        expected: bool,
    },
    /// MLX gave another number of arrays than the call makes.
    #[error("{call} gave {found} arrays, not {expected}")]
    Outputs {
        /// The call.
        call: &'static str,
        /// Arrays that it makes.
        expected: usize,
        /// Arrays that came.
        found: usize,
    },
}
