//! Quantised matrices in every mode that MLX has.

use std::ffi::CStr;

use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::{mlx_optional_dtype, mlx_optional_int, mlx_vector_array};

use crate::raw;
use crate::{Error, Result};

/// How the values of a matrix are quantised, in groups along its last axis (MLX 0.32,
/// `mlx.core.quantize`).
///
/// | mode | group | bits | scales | biases |
/// |---|---|---|---|---|
/// | affine | 32, 64, 128 | 2, 3, 4, 5, 6, 8 | the matrix's type | yes |
/// | mxfp4 | 32 | 4 | u8 (E8M0) | no |
/// | mxfp8 | 32 | 8 | u8 (E8M0) | no |
/// | nvfp4 | 16 | 4 | u8 (E4M3) | no |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantization {
    /// `scale * q + bias`, with whole numbers `q`.
    Affine {
        /// Values a group.
        group_size: i32,
        /// Bits a value.
        bits: i32,
    },
    /// 4-bit floats with a power of two for every 32.
    Mxfp4,
    /// 8-bit floats with a power of two for every 32.
    Mxfp8,
    /// 4-bit floats with an 8-bit float for every 16.
    Nvfp4,
}

impl Quantization {
    /// The affine mode.
    ///
    /// # Errors
    /// [`Error::Affine`] for groups and bits that MLX does not have.
    pub fn affine(group_size: i32, bits: i32) -> Result<Self> {
        if !matches!(group_size, 32 | 64 | 128) || !matches!(bits, 2..=6 | 8) {
            return Err(Error::Affine { group_size, bits });
        }
        Ok(Self::Affine { group_size, bits })
    }

    /// Values that share a scale.
    #[must_use]
    pub fn group_size(self) -> i32 {
        match self {
            Self::Affine { group_size, .. } => group_size,
            Self::Mxfp4 | Self::Mxfp8 => 32,
            Self::Nvfp4 => 16,
        }
    }

    /// Bits a value.
    #[must_use]
    pub fn bits(self) -> i32 {
        match self {
            Self::Affine { bits, .. } => bits,
            Self::Mxfp4 | Self::Nvfp4 => 4,
            Self::Mxfp8 => 8,
        }
    }

    /// The name that MLX and checkpoints use.
    #[must_use]
    pub fn mode(self) -> &'static str {
        match self {
            Self::Affine { .. } => "affine",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// Whether a matrix has biases beside its scales.
    #[must_use]
    pub fn has_biases(self) -> bool {
        matches!(self, Self::Affine { .. })
    }

    fn raw_mode(self) -> &'static CStr {
        match self {
            Self::Affine { .. } => c"affine",
            Self::Mxfp4 => c"mxfp4",
            Self::Mxfp8 => c"mxfp8",
            Self::Nvfp4 => c"nvfp4",
        }
    }

    fn check(self, quantized: &Quantized) -> Result<()> {
        if let Self::Affine { group_size, bits } = self {
            Self::affine(group_size, bits)?;
        }
        if quantized.biases.is_some() != self.has_biases() {
            return Err(Error::Biases {
                mode: self.mode(),
                expected: self.has_biases(),
            });
        }
        Ok(())
    }
}

/// A quantised matrix `[..., out, in]`.
#[derive(Debug, Clone)]
pub struct Quantized {
    /// u32 `[..., out, in * bits / 32]`: the values, the first in the lowest bits.
    pub weight: Array,
    /// `[..., out, in / group_size]`.
    pub scales: Array,
    /// Like the scales, in the affine mode; none in the others.
    pub biases: Option<Array>,
}

/// Quantises a matrix `[..., out, in]` of floats, whose last axis is a multiple of the
/// group.
///
/// ```
/// use mlx_rs::Array;
/// use mlx_sys_ext::{Quantization, dequantize, quantize};
///
/// let values: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
/// let matrix = Array::from_slice(&values, &[2, 32]);
/// let quantized = quantize(&matrix, Quantization::Mxfp8)?;
/// assert!(quantized.biases.is_none());
/// let back = dequantize(&quantized, Quantization::Mxfp8, Some(mlx_rs::Dtype::Float32))?;
/// assert!((back.as_slice::<f32>()[63] - values[63]).abs() < 0.05);
/// # Ok::<(), mlx_sys_ext::Error>(())
/// ```
///
/// # Errors
/// [`Error::Affine`], [`Error::Mlx`] for a matrix that can't be quantised so.
pub fn quantize(matrix: &Array, quantization: Quantization) -> Result<Quantized> {
    if let Quantization::Affine { group_size, bits } = quantization {
        Quantization::affine(group_size, bits)?;
    }
    let stream = Stream::thread_local_or_default();
    let mut outputs = Vectors::new();
    raw::status(|| {
        // SAFETY: all handles are live; an empty one stands for no global scale.
        unsafe {
            mlx_sys::mlx_quantize(
                &raw mut outputs.0,
                matrix.as_ptr(),
                some(quantization.group_size()),
                some(quantization.bits()),
                quantization.raw_mode().as_ptr(),
                raw::optional(None),
                stream.as_ptr(),
            )
        }
    })?;
    let expected = if quantization.has_biases() { 3 } else { 2 };
    if outputs.len() != expected {
        return Err(Error::Outputs {
            call: "quantize",
            expected,
            found: outputs.len(),
        });
    }
    Ok(Quantized {
        weight: outputs.get(0)?,
        scales: outputs.get(1)?,
        biases: if expected == 3 {
            Some(outputs.get(2)?)
        } else {
            None
        },
    })
}

/// The floats of a quantised matrix, `[..., out, in]`: in `dtype`, or else in the type of
/// affine scales, or bf16 in the other modes.
///
/// # Errors
/// [`Error::Biases`], [`Error::Affine`], [`Error::Mlx`] for tensors that do not fit the mode.
pub fn dequantize(
    quantized: &Quantized,
    quantization: Quantization,
    dtype: Option<Dtype>,
) -> Result<Array> {
    quantization.check(quantized)?;
    let stream = Stream::thread_local_or_default();
    let dtype = mlx_optional_dtype {
        value: dtype.unwrap_or(Dtype::Bfloat16).into(),
        has_value: dtype.is_some(),
    };
    raw::array(|result| {
        // SAFETY: all handles are live or empty, and empty ones stand for what is left out.
        unsafe {
            mlx_sys::mlx_dequantize(
                result,
                quantized.weight.as_ptr(),
                quantized.scales.as_ptr(),
                raw::optional(quantized.biases.as_ref()),
                some(quantization.group_size()),
                some(quantization.bits()),
                quantization.raw_mode().as_ptr(),
                raw::optional(None),
                dtype,
                stream.as_ptr(),
            )
        }
    })
}

/// `x` `[..., in]` times a quantised matrix `[out, in]`, transposed: `[..., out]`. Without
/// `transpose`, `x` is `[..., out]` and the result `[..., in]`.
///
/// # Errors
/// [`Error::Biases`], [`Error::Affine`], [`Error::Mlx`] for shapes that do not fit.
pub fn quantized_matmul(
    x: &Array,
    quantized: &Quantized,
    quantization: Quantization,
    transpose: bool,
) -> Result<Array> {
    quantization.check(quantized)?;
    let stream = Stream::thread_local_or_default();
    raw::array(|result| {
        // SAFETY: all handles are live or empty, and empty ones stand for what is left out.
        unsafe {
            mlx_sys::mlx_quantized_matmul(
                result,
                x.as_ptr(),
                quantized.weight.as_ptr(),
                quantized.scales.as_ptr(),
                raw::optional(quantized.biases.as_ref()),
                transpose,
                some(quantization.group_size()),
                some(quantization.bits()),
                quantization.raw_mode().as_ptr(),
                stream.as_ptr(),
            )
        }
    })
}

/// Which matrices [`gather_qmm`] multiplies, as indices into the leading axes.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatherIndices<'a> {
    /// Of the left side; every one in its order, if left out.
    pub left: Option<&'a Array>,
    /// Of the quantised side; every one in its order, if left out.
    pub right: Option<&'a Array>,
    /// Whether the indices are in ascending order, which can be faster.
    pub sorted: bool,
}

/// [`quantized_matmul`] with chosen matrices of a stack `[experts, out, in]`.
///
/// # Errors
/// [`Error::Biases`], [`Error::Affine`], [`Error::Mlx`] for shapes that do not fit.
pub fn gather_qmm(
    x: &Array,
    quantized: &Quantized,
    quantization: Quantization,
    indices: GatherIndices<'_>,
    transpose: bool,
) -> Result<Array> {
    quantization.check(quantized)?;
    let stream = Stream::thread_local_or_default();
    raw::array(|result| {
        // SAFETY: all handles are live or empty, and empty ones stand for what is left out.
        unsafe {
            mlx_sys::mlx_gather_qmm(
                result,
                x.as_ptr(),
                quantized.weight.as_ptr(),
                quantized.scales.as_ptr(),
                raw::optional(quantized.biases.as_ref()),
                raw::optional(indices.left),
                raw::optional(indices.right),
                transpose,
                some(quantization.group_size()),
                some(quantization.bits()),
                quantization.raw_mode().as_ptr(),
                indices.sorted,
                stream.as_ptr(),
            )
        }
    })
}

fn some(value: i32) -> mlx_optional_int {
    mlx_optional_int {
        value,
        has_value: true,
    }
}

/// A list of arrays, freed at the end.
struct Vectors(mlx_vector_array);

impl Vectors {
    fn new() -> Self {
        // SAFETY: it makes an empty list, which `Drop` frees.
        Self(unsafe { mlx_sys::mlx_vector_array_new() })
    }

    fn len(&self) -> usize {
        // SAFETY: the list is live.
        unsafe { mlx_sys::mlx_vector_array_size(self.0) }
    }

    fn get(&self, index: usize) -> Result<Array> {
        // SAFETY: the list is live, and MLX checks the index.
        raw::array(|result| unsafe { mlx_sys::mlx_vector_array_get(result, self.0, index) })
    }
}

impl Drop for Vectors {
    fn drop(&mut self) {
        // SAFETY: the list is ours alone.
        unsafe { mlx_sys::mlx_vector_array_free(self.0) };
    }
}
