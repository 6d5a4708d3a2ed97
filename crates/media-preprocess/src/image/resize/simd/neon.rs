//! NEON, which multiplies 32-bit integers well enough to take the weights whole.

use std::arch::aarch64::{
    int32x4_t, uint8x16_t, vcombine_s16, vdupq_n_s32, vld1q_u8, vmlaq_n_s32, vqmovn_s32,
    vqmovun_s16, vqtbl1q_u8, vreinterpretq_s32_u8, vshrq_n_s32, vst1_u8,
};

use super::super::coeffs::PRECISION_BITS;
use super::packed::{Packed, Taps, Window};
use super::rows::{ROWS, SLACK, four_at_once};

/// Weights as they are.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Whole<const N: usize>(pub(super) [i32; N]);

impl<const N: usize> Taps for Whole<N> {
    const COUNT: usize = N;

    fn pack(tap: impl Fn(usize) -> i32) -> Self {
        Self(std::array::from_fn(tap))
    }
}

const HALF: i32 = 1 << (PRECISION_BITS - 1);

#[inline]
#[target_feature(enable = "neon")]
fn load16(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the array holds the 16 bytes.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// A table that widens the four bytes from `first` on to 32 bits each.
#[target_feature(enable = "neon")]
fn widen(first: u8) -> uint8x16_t {
    let table: [u8; 16] = std::array::from_fn(|i| {
        if i % 4 == 0 {
            first + i as u8 / 4
        } else {
            0xff
        }
    });
    load16(&table)
}

/// Shifts and clips two vectors of sums to 8 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn clip(a: int32x4_t, b: int32x4_t) -> [u8; 8] {
    const SHIFT: i32 = PRECISION_BITS as i32;
    let words = vcombine_s16(
        vqmovn_s32(vshrq_n_s32::<SHIFT>(a)),
        vqmovn_s32(vshrq_n_s32::<SHIFT>(b)),
    );
    let mut out = [0; 8];
    // SAFETY: the array holds the 8 bytes.
    unsafe { vst1_u8(out.as_mut_ptr(), vqmovun_s16(words)) };
    out
}

/// See [`RowPass::run`](super::RowPass::run); 3 or 4 channels.
#[target_feature(enable = "neon")]
pub(super) fn horizontal(
    source: &[u8],
    row_len: usize,
    channels: usize,
    first: usize,
    weights: &Packed<Whole<4>>,
    out: &mut [u8],
) {
    let out_len = weights.windows.len() * channels;
    four_at_once(source, row_len, first, out_len, out, |rows, out| {
        if channels == 3 {
            four_rows::<3>(rows, weights, out);
        } else {
            four_rows::<4>(rows, weights, out);
        }
    });
}

/// Resamples four rows, of at least `weights.input * C + SLACK` bytes, into four.
#[target_feature(enable = "neon")]
fn four_rows<const C: usize>(rows: [&[u8]; ROWS], weights: &Packed<Whole<4>>, out: &mut [u8]) {
    // What `pixel` relies on.
    assert!(
        rows.iter()
            .all(|row| row.len() >= weights.input * C + SLACK)
    );
    let c = C as u8;
    let tables = [widen(0), widen(c), widen(2 * c), widen(3 * c)];
    let out_len = weights.windows.len() * C;
    for (i, window) in weights.windows.iter().enumerate() {
        // SAFETY: the rows' lengths were checked above.
        let sums = unsafe { pixel::<C>(rows, weights, window, &tables) };
        let bytes = [clip(sums[0], sums[1]), clip(sums[2], sums[3])];
        for (r, bytes) in bytes.as_flattened().as_chunks::<4>().0.iter().enumerate() {
            let at = r * out_len + i * C;
            out[at..at + C].copy_from_slice(&bytes[..C]);
        }
    }
}

/// The sums of one output pixel in four rows.
///
/// # Safety
/// Each row must hold `weights.input * C + SLACK` bytes, and `window` be one of `weights`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn pixel<const C: usize>(
    rows: [&[u8]; ROWS],
    weights: &Packed<Whole<4>>,
    window: &Window,
    tables: &[uint8x16_t; 4],
) -> [int32x4_t; ROWS] {
    let mut sums = [vdupq_n_s32(HALF); ROWS];
    let mut at = window.start * C;
    for Whole(taps) in &weights.taps[window.taps.clone()] {
        for (sum, row) in sums.iter_mut().zip(rows) {
            // SAFETY: four taps begin inside the row, by the invariant of `Packed`; so their
            // 16 bytes end before `input * C + SLACK`.
            let pixels = unsafe { vld1q_u8(row.as_ptr().add(at)) };
            for (table, tap) in tables.iter().zip(taps) {
                let values = vreinterpretq_s32_u8(vqtbl1q_u8(pixels, *table));
                *sum = vmlaq_n_s32(*sum, values, *tap);
            }
        }
        at += 4 * C;
    }
    sums
}

/// See [`ColumnPass::run`](super::ColumnPass::run).
#[target_feature(enable = "neon")]
pub(super) fn vertical(
    source: &[u8],
    row_len: usize,
    base: usize,
    first: usize,
    weights: &Packed<Whole<1>>,
    out: &mut [u8],
) {
    let tables = [widen(0), widen(4), widen(8), widen(12)];
    let mut tail = Vec::new();
    for (out, window) in out.chunks_exact_mut(row_len).zip(&weights.windows[first..]) {
        let rows = &source[(window.start - base) * row_len..][..window.len * row_len];
        let taps = &weights.taps[window.taps.clone()];
        let whole = row_len / 16 * 16;
        for at in (0..whole).step_by(16) {
            let bytes = block(rows, row_len, at, taps, &tables);
            out[at..at + 16].copy_from_slice(bytes.as_flattened());
        }
        if whole < row_len {
            // The last columns, moved to rows of 16.
            let rest = row_len - whole;
            tail.clear();
            for row in rows.chunks_exact(row_len) {
                tail.extend_from_slice(&row[whole..]);
                tail.resize(tail.len() + 16 - rest, 0);
            }
            let bytes = block(&tail, 16, 0, taps, &tables);
            out[whole..].copy_from_slice(&bytes.as_flattened()[..rest]);
        }
    }
}

/// 16 columns from `at` on, over all rows.
#[inline]
#[target_feature(enable = "neon")]
fn block(
    rows: &[u8],
    row_len: usize,
    at: usize,
    taps: &[Whole<1>],
    tables: &[uint8x16_t; 4],
) -> [[u8; 8]; 2] {
    let mut sums = [vdupq_n_s32(HALF); 4];
    for (row, Whole([tap])) in rows.chunks_exact(row_len).zip(taps) {
        let Some(bytes) = row[at..].first_chunk::<16>() else {
            continue;
        };
        let bytes = load16(bytes);
        for (sum, table) in sums.iter_mut().zip(tables) {
            let values = vreinterpretq_s32_u8(vqtbl1q_u8(bytes, *table));
            *sum = vmlaq_n_s32(*sum, values, *tap);
        }
    }
    [clip(sums[0], sums[1]), clip(sums[2], sums[3])]
}
