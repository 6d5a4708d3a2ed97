//! Several frames side by side: one number of each frame in every lane of a vector.
//!
//! Lanes never mix, so that a frame's result doesn't depend on how many there are; nothing is
//! fused, so that it doesn't depend on the processor.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

use std::ops::{Add, Mul, Sub};

/// One number of each of `L` frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes<const L: usize>(pub(super) [f64; L]);

impl<const L: usize> Lanes<L> {
    pub(super) const ZERO: Self = Self([0.0; L]);
}

impl<const L: usize> Add for Lanes<L> {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let mut sum = self;
        for (a, b) in sum.0.iter_mut().zip(&other.0) {
            *a += b;
        }
        sum
    }
}

impl<const L: usize> Sub for Lanes<L> {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        let mut difference = self;
        for (a, b) in difference.0.iter_mut().zip(&other.0) {
            *a -= b;
        }
        difference
    }
}

impl<const L: usize> Mul<f64> for Lanes<L> {
    type Output = Self;

    #[inline(always)]
    fn mul(self, factor: f64) -> Self {
        let mut product = self;
        for a in &mut product.0 {
            *a *= factor;
        }
        product
    }
}

/// A complex number of each frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Complex<const L: usize> {
    pub(super) re: Lanes<L>,
    pub(super) im: Lanes<L>,
}

impl<const L: usize> Complex<L> {
    pub(super) const ZERO: Self = Self {
        re: Lanes::ZERO,
        im: Lanes::ZERO,
    };

    /// Times `cos + i sin`.
    #[inline(always)]
    pub(super) fn turned(self, [cos, sin]: [f64; 2]) -> Self {
        Self {
            re: self.re * cos - self.im * sin,
            im: self.re * sin + self.im * cos,
        }
    }

    /// Times `i`.
    #[inline(always)]
    pub(super) fn quarter(self) -> Self {
        Self {
            re: Lanes::ZERO - self.im,
            im: self.re,
        }
    }

    #[inline(always)]
    pub(super) fn conjugate(self) -> Self {
        Self {
            re: self.re,
            im: Lanes::ZERO - self.im,
        }
    }
}

impl<const L: usize> Add for Complex<L> {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl<const L: usize> Sub for Complex<L> {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

/// The natural logarithm of positive numbers that are normal or infinite, to less than a unit in the last place.
///
/// `x = 2^k (1 + f)` with `1 + f` between the square roots of 1/2 and 2; `s = f / (2 + f)`; then
/// `ln(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2))`, with R the minimax polynomial of FreeBSD's and
/// musl's `log` (from Sun's fdlibm). Written so that a loop over it becomes vector code.
#[inline(always)]
pub(super) fn ln(x: f64) -> f64 {
    const R: [f64; 7] = [
        0.147_981_986_051_165_85,
        0.153_138_376_992_093_73,
        0.181_835_721_616_180_5,
        0.222_221_984_321_497_84,
        0.285_714_287_436_623_9,
        0.399_999_999_994_094_2,
        0.666_666_666_666_673_5,
    ];
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    /// The bits of the square root of 1/2, and of 1.
    const ROOT: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    /// 2^52 with a whole number in its low bits is that number away from 2^52.
    const MAGIC: u64 = 0x4330_0000_0000_0000;
    let shifted = x.to_bits().wrapping_add(ONE - ROOT);
    let k = f64::from_bits(shifted >> 52 | MAGIC) - (4_503_599_627_370_496.0 + 1023.0);
    let f = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff) + ROOT) - 1.0;
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut r = R[0];
    let mut i = 1;
    while i < R.len() {
        r = r * z + R[i];
        i += 1;
    }
    let log = s * (half_square + r * z) + k * LN2_LOW - half_square + f + k * LN2_HIGH;
    if x < f64::INFINITY { log } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_the_last_place() {
        let mut x = 1e-300_f64;
        let mut most = 0.0_f64;
        while x < 1e300 {
            let exact = x.ln();
            let ulp = exact.abs().next_up() - exact.abs();
            most = most.max((ln(x) - exact).abs() / ulp);
            x *= 1.003_7;
        }
        assert!(most <= 1.0, "{most}");
        assert!(ln(f64::INFINITY).is_infinite());
        assert!((ln(1.0)).abs() < f64::EPSILON);
    }
}
