//! Weights in the small integers that the vector code multiplies.

use std::ops::Range;

use super::super::coeffs::Coefficients;

/// Bits of the low half of a weight: 15, so that it is a non-negative i16.
#[cfg(target_arch = "x86_64")]
pub(super) const LOW_BITS: u32 = 15;

/// A few neighbouring weights, packed for one kind of multiply-add.
pub(in super::super) trait Taps: Copy {
    /// How many.
    const COUNT: usize;

    /// Packs `tap(0)`, `tap(1)` ...
    fn pack(tap: impl Fn(usize) -> i32) -> Self;
}

/// Two weights `high * 2^15 + low`, both low halves and both high halves packed as two i16.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Pair {
    pub(super) low: i32,
    pub(super) high: i32,
}

#[cfg(target_arch = "x86_64")]
impl Taps for Pair {
    const COUNT: usize = 2;

    fn pack(tap: impl Fn(usize) -> i32) -> Self {
        let pack = |a: i32, b: i32| (a & 0xffff) | (b << 16);
        let low = |k: i32| k & ((1 << LOW_BITS) - 1);
        let (first, second) = (tap(0), tap(1));
        Self {
            low: pack(low(first), low(second)),
            high: pack(first >> LOW_BITS, second >> LOW_BITS),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Taps for [Pair; 2] {
    const COUNT: usize = 4;

    fn pack(tap: impl Fn(usize) -> i32) -> Self {
        [Pair::pack(&tap), Pair::pack(|t| tap(t + 2))]
    }
}

/// Four weights in base 256 with digits from -128 to 127, least first; each digit of all
/// four packed as four i8.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Digits(pub(super) [i32; 3]);

#[cfg(target_arch = "x86_64")]
impl Digits {
    /// Whether three digits hold every weight. Normalised weights are little over 1, and
    /// this is close to 2.
    pub(super) fn hold(coefficients: &Coefficients) -> bool {
        let bound = 127 * 256 * 256;
        (0..coefficients.len()).all(|i| coefficients.taps(i).1.iter().all(|k| k.abs() <= bound))
    }
}

#[cfg(target_arch = "x86_64")]
impl Taps for Digits {
    const COUNT: usize = 4;

    fn pack(tap: impl Fn(usize) -> i32) -> Self {
        let mut packed = [[0_i8; 4]; 3];
        for t in 0..4 {
            let mut rest = tap(t);
            for digit in &mut packed {
                digit[t] = rest as i8; // the last 8 bits, as signed
                rest = (rest - i32::from(digit[t])) >> 8;
            }
        }
        Self(packed.map(|bytes| i32::from_le_bytes(bytes.map(|b| b as u8))))
    }
}

/// Where the taps of one output are.
#[derive(Debug)]
pub(in super::super) struct Window {
    /// First source pixel or row.
    pub(super) start: usize,
    /// Number of source pixels or rows.
    pub(super) len: usize,
    /// Range of [`Packed::taps`].
    pub(super) taps: Range<usize>,
}

/// The weights of one pass. The last taps of a window may reach past it, with weights of 0.
#[derive(Debug)]
pub(in super::super) struct Packed<T> {
    /// The length of the source axis; no window reaches past it.
    pub(super) input: usize,
    pub(super) windows: Vec<Window>,
    pub(super) taps: Vec<T>,
}

impl<T: Taps> Packed<T> {
    /// Packs the weights over an axis of `input` pixels.
    ///
    /// # Panics
    /// If a window reaches past the axis, which no window of `coefficients` for `input`
    /// does: the vector code relies on it.
    pub(super) fn new(coefficients: &Coefficients, input: usize) -> Self {
        let mut windows = Vec::with_capacity(coefficients.len());
        let mut taps = Vec::new();
        for i in 0..coefficients.len() {
            let (start, weights) = coefficients.taps(i);
            assert!(start + weights.len() <= input);
            let from = taps.len();
            taps.extend(
                weights
                    .chunks(T::COUNT)
                    .map(|group| T::pack(|t| group.get(t).copied().unwrap_or(0))),
            );
            windows.push(Window {
                start,
                len: weights.len(),
                taps: from..taps.len(),
            });
        }
        Self {
            input,
            windows,
            taps,
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn halves_and_digits_put_together_are_the_weight() {
        for k in [
            0, 1, -1, 127, 128, -128, -129, 32_767, 32_768, -32_768, 4_194_304, -500_000,
        ] {
            let pair = Pair::pack(|t| if t == 1 { k } else { 7 });
            assert_eq!((pair.high >> 16) * (1 << LOW_BITS) + (pair.low >> 16), k);
            let Digits(digits) = Digits::pack(|t| if t == 2 { k } else { -7 });
            let [d0, d1, d2] = digits.map(|d| i32::from((d >> 16) as i8));
            assert_eq!(d0 + d1 * 256 + d2 * 65_536, k);
        }
    }
}
