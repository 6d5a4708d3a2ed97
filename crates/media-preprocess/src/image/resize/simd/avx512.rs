//! AVX-512 with VNNI: four taps of one channel in one instruction, thrice.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_dpbusd_epi32,
    _mm512_inserti32x4, _mm512_loadu_si512, _mm512_packs_epi32, _mm512_packus_epi16,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_slli_epi32,
    _mm512_srai_epi32, _mm512_unpackhi_epi8, _mm512_unpackhi_epi16, _mm512_unpacklo_epi8,
    _mm512_unpacklo_epi16,
};

use super::super::coeffs::PRECISION_BITS;
use super::avx2::load16;
use super::packed::{Digits, Packed, Window};
use super::rows::{ROWS, SLACK, four_at_once, squeeze_mask};

/// The sums of a group of pixels, by digits of the weights.
#[derive(Clone, Copy)]
struct Sums([__m512i; 3]);

impl Sums {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn half() -> Self {
        let zero = _mm512_setzero_si512();
        Self([_mm512_set1_epi32(1 << (PRECISION_BITS - 1)), zero, zero])
    }

    /// Adds fours of 8-bit pixels times four weights.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn add(&mut self, pixels: __m512i, digits: Digits) {
        self.0[0] = _mm512_dpbusd_epi32(self.0[0], pixels, _mm512_set1_epi32(digits.0[0]));
        self.0[1] = _mm512_dpbusd_epi32(self.0[1], pixels, _mm512_set1_epi32(digits.0[1]));
        self.0[2] = _mm512_dpbusd_epi32(self.0[2], pixels, _mm512_set1_epi32(digits.0[2]));
    }

    /// The whole sums, shifted to pixel values but not yet clipped.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn shifted(self) -> __m512i {
        let high = _mm512_add_epi32(
            _mm512_slli_epi32::<8>(self.0[1]),
            _mm512_slli_epi32::<16>(self.0[2]),
        );
        _mm512_srai_epi32::<PRECISION_BITS>(_mm512_add_epi32(self.0[0], high))
    }
}

/// See [`RowPass::run`](super::RowPass::run); 3 or 4 channels.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn horizontal(
    source: &[u8],
    row_len: usize,
    channels: usize,
    first: usize,
    weights: &Packed<Digits>,
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
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn four_rows<const C: usize>(rows: [&[u8]; ROWS], weights: &Packed<Digits>, out: &mut [u8]) {
    // What `pixel` relies on.
    assert!(
        rows.iter()
            .all(|row| row.len() >= weights.input * C + SLACK)
    );
    let mask = channel_mask(C as i8);
    let squeeze = _mm512_broadcast_i32x4(bytemuck::cast(squeeze_mask(C)));
    let out_len = weights.windows.len() * C;
    for (block, windows) in weights.windows.chunks(4).enumerate() {
        let mut sums = [_mm512_setzero_si512(); 4];
        for (sums, window) in sums.iter_mut().zip(windows) {
            // SAFETY: the rows' lengths were checked above.
            *sums = unsafe { pixel::<C>(rows, weights, window, mask) };
        }
        // Four pixels of a row in each quarter, in four bytes each.
        let first = _mm512_packs_epi32(sums[0], sums[1]);
        let second = _mm512_packs_epi32(sums[2], sums[3]);
        let bytes = _mm512_shuffle_epi8(_mm512_packus_epi16(first, second), squeeze);
        let bytes: [[u8; 16]; ROWS] = bytemuck::cast(bytes);
        for (r, bytes) in bytes.iter().enumerate() {
            let at = r * out_len + block * 4 * C;
            if windows.len() == 4 {
                out[at..at + 4 * C].copy_from_slice(&bytes[..4 * C]);
            } else {
                let len = windows.len() * C;
                out[at..at + len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}

/// The shifted sums of one output pixel in four rows.
///
/// # Safety
/// Each row must hold `weights.input * C + SLACK` bytes, and `window` be one of `weights`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn pixel<const C: usize>(
    rows: [&[u8]; ROWS],
    weights: &Packed<Digits>,
    window: &Window,
    mask: __m512i,
) -> __m512i {
    let mut sums = Sums::half();
    let mut at = window.start * C;
    for digits in &weights.taps[window.taps.clone()] {
        // SAFETY: four taps begin inside the row, by the invariant of `Packed`; so their 16
        // bytes end before `input * C + SLACK`.
        let [a, b, c, d] = unsafe {
            [
                load16(rows[0], at),
                load16(rows[1], at),
                load16(rows[2], at),
                load16(rows[3], at),
            ]
        };
        let pixels = _mm512_castsi128_si512(a);
        let pixels = _mm512_inserti32x4::<1>(pixels, b);
        let pixels = _mm512_inserti32x4::<2>(pixels, c);
        let pixels = _mm512_inserti32x4::<3>(pixels, d);
        sums.add(_mm512_shuffle_epi8(pixels, mask), *digits);
        at += 4 * C;
    }
    sums.shifted()
}

/// A mask that brings each channel of four pixels together.
#[target_feature(enable = "avx512f")]
fn channel_mask(c: i8) -> __m512i {
    let mask: [i8; 16] = std::array::from_fn(|i| {
        let (channel, pixel) = (i as i8 / 4, i as i8 % 4);
        if channel < c { pixel * c + channel } else { -1 }
    });
    _mm512_broadcast_i32x4(bytemuck::cast(mask))
}

/// See [`ColumnPass::run`](super::ColumnPass::run).
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn vertical(
    source: &[u8],
    row_len: usize,
    base: usize,
    first: usize,
    weights: &Packed<Digits>,
    out: &mut [u8],
) {
    let mut tail = Vec::new();
    for (out, window) in out.chunks_exact_mut(row_len).zip(&weights.windows[first..]) {
        let rows = &source[(window.start - base) * row_len..][..window.len * row_len];
        let taps = &weights.taps[window.taps.clone()];
        let whole = row_len / 64 * 64;
        for at in (0..whole).step_by(64) {
            let bytes: [u8; 64] = bytemuck::cast(block(rows, row_len, at, taps));
            out[at..at + 64].copy_from_slice(&bytes);
        }
        if whole < row_len {
            // The last columns, moved to rows of 64.
            let rest = row_len - whole;
            tail.clear();
            for row in rows.chunks_exact(row_len) {
                tail.extend_from_slice(&row[whole..]);
                tail.resize(tail.len() + 64 - rest, 0);
            }
            let bytes: [u8; 64] = bytemuck::cast(block(&tail, 64, 0, taps));
            out[whole..].copy_from_slice(&bytes[..rest]);
        }
    }
}

/// 64 columns from `at` on, over all rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn block(rows: &[u8], row_len: usize, at: usize, taps: &[Digits]) -> __m512i {
    let count = rows.len() / row_len;
    // What the loads below rely on.
    assert!(at + 64 <= row_len && taps.len() * 4 <= count + 3);
    let mut sums = [Sums::half(); 4];
    for (i, digits) in taps.iter().enumerate() {
        let mut lines = [_mm512_setzero_si512(); 4];
        for (r, line) in lines.iter_mut().enumerate() {
            // Beyond the window any row will do, under a weight of 0.
            let row = (4 * i + r).min(count - 1);
            // SAFETY: the row is one of `count`, and 64 bytes from `at` on are in it.
            *line = unsafe { _mm512_loadu_si512(rows.as_ptr().add(row * row_len + at).cast()) };
        }
        let [a, b, c, d] = lines;
        let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
        sums[0].add(_mm512_unpacklo_epi16(ab, cd), *digits);
        sums[1].add(_mm512_unpackhi_epi16(ab, cd), *digits);
        let (ab, cd) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
        sums[2].add(_mm512_unpacklo_epi16(ab, cd), *digits);
        sums[3].add(_mm512_unpackhi_epi16(ab, cd), *digits);
    }
    // Packing undoes the unpacking, within each quarter of the vector.
    let first = _mm512_packs_epi32(sums[0].shifted(), sums[1].shifted());
    let second = _mm512_packs_epi32(sums[2].shifted(), sums[3].shifted());
    _mm512_packus_epi16(first, second)
}
