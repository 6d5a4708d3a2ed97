//! AVX2.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_packs_epi32, _mm256_packus_epi16,
    _mm256_set_m128i, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_slli_epi32, _mm256_srai_epi32, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

use super::super::coeffs::PRECISION_BITS;
use super::packed::{LOW_BITS, Packed, Pair, Window};
use super::rows::{ROWS, SLACK, four_at_once, squeeze_mask};

/// The sums of a group of pixels, by halves of the weights.
#[derive(Clone, Copy)]
struct Sums {
    low: __m256i,
    high: __m256i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half() -> Self {
        Self {
            low: _mm256_set1_epi32(1 << (PRECISION_BITS - 1)),
            high: _mm256_setzero_si256(),
        }
    }

    /// Adds pairs of 16-bit pixels times one pair of weights.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, pixels: __m256i, pair: Pair) {
        let low = _mm256_madd_epi16(pixels, _mm256_set1_epi32(pair.low));
        let high = _mm256_madd_epi16(pixels, _mm256_set1_epi32(pair.high));
        self.low = _mm256_add_epi32(self.low, low);
        self.high = _mm256_add_epi32(self.high, high);
    }

    /// The whole sums, shifted to pixel values but not yet clipped.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn shifted(self) -> __m256i {
        let high = _mm256_slli_epi32::<{ LOW_BITS as i32 }>(self.high);
        _mm256_srai_epi32::<{ PRECISION_BITS as i32 }>(_mm256_add_epi32(self.low, high))
    }
}

/// 16 bytes of each row: rows 0 and 1, and rows 2 and 3.
///
/// # Safety
/// Each row must hold 16 bytes from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_rows(rows: [&[u8]; ROWS], at: usize) -> (__m256i, __m256i) {
    // SAFETY: the caller's promise.
    let [a, b, c, d] = unsafe {
        [
            load16(rows[0], at),
            load16(rows[1], at),
            load16(rows[2], at),
            load16(rows[3], at),
        ]
    };
    (_mm256_set_m128i(b, a), _mm256_set_m128i(d, c))
}

/// # Safety
/// `bytes` must hold 16 bytes from `at` on.
#[inline]
pub(super) unsafe fn load16(bytes: &[u8], at: usize) -> __m128i {
    debug_assert!(at + 16 <= bytes.len());
    // SAFETY: the caller's promise; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) }
}

/// See [`RowPass::run`](super::RowPass::run); 3 or 4 channels.
#[target_feature(enable = "avx2")]
pub(super) fn horizontal(
    source: &[u8],
    row_len: usize,
    channels: usize,
    first: usize,
    weights: &Packed<[Pair; 2]>,
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
#[target_feature(enable = "avx2")]
fn four_rows<const C: usize>(rows: [&[u8]; ROWS], weights: &Packed<[Pair; 2]>, out: &mut [u8]) {
    // What `pixel` relies on.
    assert!(
        rows.iter()
            .all(|row| row.len() >= weights.input * C + SLACK)
    );
    let masks = pair_masks(C as i8);
    let squeeze = _mm256_broadcastsi128_si256(bytemuck::cast(squeeze_mask(C)));
    let out_len = weights.windows.len() * C;
    for (block, windows) in weights.windows.chunks(4).enumerate() {
        let mut upper = [_mm256_setzero_si256(); 4];
        let mut lower = upper;
        for ((upper, lower), window) in upper.iter_mut().zip(&mut lower).zip(windows) {
            // SAFETY: the rows' lengths were checked above.
            (*upper, *lower) = unsafe { pixel::<C>(rows, weights, window, &masks) };
        }
        // Four pixels a row, in four bytes each: rows 0 and 1, rows 2 and 3.
        for (half, sums) in [upper, lower].iter().enumerate() {
            let first = _mm256_packs_epi32(sums[0], sums[1]);
            let second = _mm256_packs_epi32(sums[2], sums[3]);
            let bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(first, second), squeeze);
            let bytes: [[u8; 16]; 2] = bytemuck::cast(bytes);
            for (r, bytes) in bytes.iter().enumerate() {
                let at = (half * 2 + r) * out_len + block * 4 * C;
                if windows.len() == 4 {
                    out[at..at + 4 * C].copy_from_slice(&bytes[..4 * C]);
                } else {
                    let len = windows.len() * C;
                    out[at..at + len].copy_from_slice(&bytes[..len]);
                }
            }
        }
    }
}

/// The shifted sums of one output pixel in rows 0 and 1, and in rows 2 and 3.
///
/// # Safety
/// Each row must hold `weights.input * C + SLACK` bytes, and `window` be one of `weights`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pixel<const C: usize>(
    rows: [&[u8]; ROWS],
    weights: &Packed<[Pair; 2]>,
    window: &Window,
    masks: &[__m256i; 2],
) -> (__m256i, __m256i) {
    let (mut upper, mut lower) = (Sums::half(), Sums::half());
    let mut at = window.start * C;
    let Some((last, whole)) = weights.taps[window.taps.clone()].split_last() else {
        return (upper.shifted(), lower.shifted());
    };
    for quad in whole {
        // SAFETY: a quad begins inside the row, by the invariant of `Packed`; so its 16 bytes
        // end before `input * C + SLACK`.
        let (ab, cd) = unsafe { load_rows(rows, at) };
        upper.add(_mm256_shuffle_epi8(ab, masks[0]), quad[0]);
        lower.add(_mm256_shuffle_epi8(cd, masks[0]), quad[0]);
        upper.add(_mm256_shuffle_epi8(ab, masks[1]), quad[1]);
        lower.add(_mm256_shuffle_epi8(cd, masks[1]), quad[1]);
        at += 4 * C;
    }
    // SAFETY: as above.
    let (ab, cd) = unsafe { load_rows(rows, at) };
    upper.add(_mm256_shuffle_epi8(ab, masks[0]), last[0]);
    lower.add(_mm256_shuffle_epi8(cd, masks[0]), last[0]);
    if !matches!(window.len % 4, 1 | 2) {
        // Otherwise the second pair is beyond the window.
        upper.add(_mm256_shuffle_epi8(ab, masks[1]), last[1]);
        lower.add(_mm256_shuffle_epi8(cd, masks[1]), last[1]);
    }
    (upper.shifted(), lower.shifted())
}

/// Masks that turn the bytes of pixels 0 and 1, and of pixels 2 and 3, into pairs of 16-bit
/// values by channel.
#[target_feature(enable = "avx2")]
fn pair_masks(c: i8) -> [__m256i; 2] {
    const NONE: i8 = -1;
    let alpha = |at: i8| if c == 4 { at } else { NONE };
    let mask = |p: i8| -> __m256i {
        let mask: [i8; 16] = [
            p,
            NONE,
            p + c,
            NONE,
            p + 1,
            NONE,
            p + c + 1,
            NONE,
            p + 2,
            NONE,
            p + c + 2,
            NONE,
            alpha(p + 3),
            NONE,
            alpha(p + c + 3),
            NONE,
        ];
        _mm256_broadcastsi128_si256(bytemuck::cast(mask))
    };
    [mask(0), mask(2 * c)]
}

/// See [`ColumnPass::run`](super::ColumnPass::run).
#[target_feature(enable = "avx2")]
pub(super) fn vertical(
    source: &[u8],
    row_len: usize,
    base: usize,
    first: usize,
    weights: &Packed<Pair>,
    out: &mut [u8],
) {
    let mut tail = Vec::new();
    for (out, window) in out.chunks_exact_mut(row_len).zip(&weights.windows[first..]) {
        let rows = &source[(window.start - base) * row_len..][..window.len * row_len];
        let pairs = &weights.taps[window.taps.clone()];
        let whole = row_len / 32 * 32;
        for at in (0..whole).step_by(32) {
            let sums = block(rows, row_len, at, pairs);
            out[at..at + 32].copy_from_slice(&bytemuck::cast::<_, [u8; 32]>(sums));
        }
        if whole < row_len {
            // The last columns, moved to rows of 32.
            let rest = row_len - whole;
            tail.clear();
            for row in rows.chunks_exact(row_len) {
                tail.extend_from_slice(&row[whole..]);
                tail.resize(tail.len() + 32 - rest, 0);
            }
            let sums: [u8; 32] = bytemuck::cast(block(&tail, 32, 0, pairs));
            out[whole..].copy_from_slice(&sums[..rest]);
        }
    }
}

/// 32 columns from `at` on, over all rows.
#[inline]
#[target_feature(enable = "avx2")]
fn block(rows: &[u8], row_len: usize, at: usize, pairs: &[Pair]) -> __m256i {
    let count = rows.len() / row_len;
    // What the loads below rely on.
    assert!(at + 32 <= row_len && pairs.len() * 2 <= count + 1);
    let zero = _mm256_setzero_si256();
    let mut sums = [Sums::half(); 4];
    for (i, pair) in pairs.iter().enumerate() {
        // An odd last row is paired with itself, under a weight of 0.
        let (first, second) = (2 * i, (2 * i + 1).min(count - 1));
        // SAFETY: both rows are among `count`, and 32 bytes from `at` on are in a row.
        let (a, b) = unsafe {
            let start = rows.as_ptr().add(at);
            (
                _mm256_loadu_si256(start.add(first * row_len).cast()),
                _mm256_loadu_si256(start.add(second * row_len).cast()),
            )
        };
        let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        sums[0].add(_mm256_unpacklo_epi8(low, zero), *pair);
        sums[1].add(_mm256_unpackhi_epi8(low, zero), *pair);
        sums[2].add(_mm256_unpacklo_epi8(high, zero), *pair);
        sums[3].add(_mm256_unpackhi_epi8(high, zero), *pair);
    }
    // Packing undoes the unpacking, within each half of the vector.
    let words = [
        _mm256_packs_epi32(sums[0].shifted(), sums[1].shifted()),
        _mm256_packs_epi32(sums[2].shifted(), sums[3].shifted()),
    ];
    _mm256_packus_epi16(words[0], words[1])
}
