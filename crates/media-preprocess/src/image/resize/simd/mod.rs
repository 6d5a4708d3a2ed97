//! The two passes with vector instructions, chosen at run time; every path equals
//! [`scalar`](super::scalar) byte for byte.
//!
//! A weight has 24 bits; vector multiplies on x86 take 8 or 16. So each weight is split
//! into digits, the products are summed digit by digit, and the sums are put together at
//! the end. All of it is exact modulo 2^32, and the whole sum fits 32 bits.
#![allow(
    unsafe_code,
    reason = "loads, and calls of functions that need a detected CPU feature"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod packed;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod rows;

#[cfg(target_arch = "aarch64")]
use neon::Whole;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use packed::Packed;
#[cfg(target_arch = "x86_64")]
use packed::{Digits, Pair};

use super::coeffs::Coefficients;
use super::scalar;

/// Which instructions resize. The bytes are the same; only the speed differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Instructions {
    /// The fastest that this CPU has.
    #[default]
    Best,
    /// Plain Rust: the reference.
    Scalar,
    /// AVX2, on x86-64.
    Avx2,
    /// AVX-512 with BW and VNNI, on x86-64.
    Avx512,
    /// NEON, on 64-bit ARM.
    Neon,
}

impl Instructions {
    /// Those that this CPU has, from the slowest; `Scalar` is always the first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            all.push(Self::Avx2);
            if std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vnni")
            {
                all.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            all.push(Self::Neon);
        }
        all
    }

    /// The instructions to use: `Scalar` if the wish can't be met.
    fn resolve(self) -> Self {
        let available = Self::available();
        match self {
            Self::Best => available.last().copied().unwrap_or(Self::Scalar),
            wish if available.contains(&wish) => wish,
            _ => Self::Scalar,
        }
    }
}

/// The weights of a horizontal pass, laid out for the instructions in use.
pub(super) enum RowPass<'a> {
    Scalar(&'a Coefficients),
    #[cfg(target_arch = "x86_64")]
    Avx2(Packed<[Pair; 2]>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Packed<Digits>),
    #[cfg(target_arch = "aarch64")]
    Neon(Packed<Whole<4>>),
}

impl<'a> RowPass<'a> {
    /// Lays out the weights for rows of `width` pixels of `channels` bytes.
    pub(super) fn new(
        coefficients: &'a Coefficients,
        width: u32,
        channels: usize,
        instructions: Instructions,
    ) -> Self {
        if channels == 1 {
            // No vector path: a gray picture is a third of the work, and rare.
            return Self::Scalar(coefficients);
        }
        match instructions.resolve() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 if Digits::hold(coefficients) => {
                Self::Avx512(Packed::new(coefficients, width as usize))
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Avx2 => {
                Self::Avx2(Packed::new(coefficients, width as usize))
            }
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => Self::Neon(Packed::new(coefficients, width as usize)),
            _ => Self::Scalar(coefficients),
        }
    }

    /// Resamples the rows of `source` from `first` on into the rows of `out`.
    pub(super) fn run(
        &self,
        source: &[u8],
        row_len: usize,
        channels: usize,
        first: usize,
        out: &mut [u8],
    ) {
        match self {
            Self::Scalar(coefficients) => {
                let source = &source[first * row_len..];
                scalar::horizontal(source, row_len, channels, coefficients, out);
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(weights) => {
                // SAFETY: `new` chooses AVX2 only where the CPU has it.
                unsafe { avx2::horizontal(source, row_len, channels, first, weights, out) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(weights) => {
                // SAFETY: `new` chooses AVX-512 only where the CPU has it.
                unsafe { avx512::horizontal(source, row_len, channels, first, weights, out) }
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon(weights) => {
                // SAFETY: `new` chooses NEON only where the CPU has it.
                unsafe { neon::horizontal(source, row_len, channels, first, weights, out) }
            }
        }
    }
}

/// The weights of a vertical pass, laid out for the instructions in use.
pub(super) enum ColumnPass<'a> {
    Scalar(&'a Coefficients),
    #[cfg(target_arch = "x86_64")]
    Avx2(Packed<Pair>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Packed<Digits>),
    #[cfg(target_arch = "aarch64")]
    Neon(Packed<Whole<1>>),
}

impl<'a> ColumnPass<'a> {
    /// Lays out the weights for columns of `height` rows.
    pub(super) fn new(
        coefficients: &'a Coefficients,
        height: u32,
        instructions: Instructions,
    ) -> Self {
        match instructions.resolve() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 if Digits::hold(coefficients) => {
                Self::Avx512(Packed::new(coefficients, height as usize))
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Avx2 => {
                Self::Avx2(Packed::new(coefficients, height as usize))
            }
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => Self::Neon(Packed::new(coefficients, height as usize)),
            _ => Self::Scalar(coefficients),
        }
    }

    /// Resamples the columns of `source`, whose first row is row `base` of the image, into the
    /// rows of `out`, the first of which is output row `first`.
    pub(super) fn run(
        &self,
        source: &[u8],
        row_len: usize,
        base: usize,
        first: usize,
        out: &mut [u8],
    ) {
        match self {
            Self::Scalar(coefficients) => {
                scalar::vertical(source, row_len, base, first, coefficients, out);
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(weights) => {
                // SAFETY: `new` chooses AVX2 only where the CPU has it.
                unsafe { avx2::vertical(source, row_len, base, first, weights, out) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(weights) => {
                // SAFETY: `new` chooses AVX-512 only where the CPU has it.
                unsafe { avx512::vertical(source, row_len, base, first, weights, out) }
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon(weights) => {
                // SAFETY: `new` chooses NEON only where the CPU has it.
                unsafe { neon::vertical(source, row_len, base, first, weights, out) }
            }
        }
    }
}
