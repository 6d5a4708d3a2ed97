//! What the horizontal passes share.

/// Rows of a horizontal pass done at once.
pub(super) const ROWS: usize = 4;

/// How far past a row's end the loads of its last taps may reach: 3 taps of weight 0 and
/// the rest of a 16-byte load.
pub(super) const SLACK: usize = 16;

/// Calls `run` with four rows of `source` from row `first` on, each readable for `SLACK`
/// bytes past its end, and the four rows of `out` that they become.
pub(super) fn four_at_once(
    source: &[u8],
    row_len: usize,
    first: usize,
    out_len: usize,
    out: &mut [u8],
    run: impl Fn([&[u8]; ROWS], &mut [u8]),
) {
    let (mut padded, mut short) = (Vec::new(), Vec::new());
    for (group, out) in out.chunks_mut(out_len * ROWS).enumerate() {
        let count = out.len() / out_len;
        let mut from = &source[(first + group * ROWS) * row_len..];
        if from.len() < count * row_len + SLACK {
            padded.clear();
            padded.extend_from_slice(&from[..count * row_len]);
            padded.resize(count * row_len + SLACK, 0);
            from = &padded;
        }
        // A short last group repeats its last row, into a buffer of its own.
        let rows = std::array::from_fn(|r| &from[r.min(count - 1) * row_len..]);
        if count == ROWS {
            run(rows, out);
        } else {
            short.resize(out_len * ROWS, 0);
            run(rows, &mut short);
            out.copy_from_slice(&short[..out.len()]);
        }
    }
}

/// A byte shuffle that moves the `channels` bytes of each group of four together.
#[cfg(target_arch = "x86_64")]
pub(super) fn squeeze_mask(channels: usize) -> [i8; 16] {
    std::array::from_fn(|i| {
        if i < 4 * channels {
            (i / channels * 4 + i % channels) as i8
        } else {
            -1
        }
    })
}
