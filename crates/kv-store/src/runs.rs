use std::ops::Range;

use crate::Layout;
use crate::layout::MAX_RANK;

/// The contiguous runs of a strided tensor, in row-major order of its elements: the one walk
/// that hashing, gathering and scattering share.
///
/// Each item is a range of bytes in the strided buffer. Runs are as long as the layout allows;
/// their lengths add up to the tensor's bytes (or to the part of them that was asked for).
///
/// ```
/// use prefill_kv_store::{Layout, Runs};
/// // Two heads, rows 1 and 2 of 4, two f32 each.
/// let layout = Layout::contiguous(&[2, 4, 2])?.narrow(1, 1, 2)?;
/// let runs: Vec<_> = Runs::new(&layout, 4).collect();
/// assert_eq!(runs, [8..24, 40..56]);
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Runs {
    dims: [(usize, isize); MAX_RANK],
    index: [usize; MAX_RANK],
    rank: usize,
    run: usize,
    start: isize,
    within: usize,
    remaining: usize,
}

impl Runs {
    /// The runs of all elements, each `item` bytes long.
    #[must_use]
    pub fn new(layout: &Layout, item: usize) -> Self {
        Self::of_range(layout, item, 0..layout.elements() * item)
    }

    /// The runs of a range of the bytes that the tensor would have in row-major order.
    /// A range that reaches beyond them is cut.
    #[must_use]
    pub fn of_range(layout: &Layout, item: usize, range: Range<usize>) -> Self {
        let total = layout.elements() * item;
        let mut collapsed = layout.collapse();
        let mut run = item;
        if let Some(&(n, 1)) = collapsed.last() {
            run = n * item;
            collapsed.pop();
        }
        let mut runs = Self {
            dims: [(1, 0); MAX_RANK],
            index: [0; MAX_RANK],
            rank: collapsed.len(),
            run,
            start: layout.offset().wrapping_mul(item) as isize,
            within: 0,
            remaining: range.end.min(total).saturating_sub(range.start),
        };
        for (dim, &(n, stride)) in runs.dims.iter_mut().zip(&collapsed) {
            *dim = (n, stride.wrapping_mul(item as isize));
        }
        if runs.remaining > 0 {
            runs.seek(range.start);
        }
        runs
    }

    /// The length of a whole run in bytes; the first and the last of a range may be shorter.
    #[must_use]
    pub const fn run_bytes(&self) -> usize {
        self.run
    }

    fn seek(&mut self, byte: usize) {
        let mut row = byte / self.run;
        self.within = byte % self.run;
        for axis in (0..self.rank).rev() {
            let (n, stride) = self.dims[axis];
            self.index[axis] = row % n;
            self.start += self.index[axis] as isize * stride;
            row /= n;
        }
    }

    fn advance(&mut self) {
        for axis in (0..self.rank).rev() {
            let (n, stride) = self.dims[axis];
            self.index[axis] += 1;
            self.start += stride;
            if self.index[axis] < n {
                return;
            }
            self.index[axis] = 0;
            self.start -= n as isize * stride;
        }
    }
}

impl Iterator for Runs {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.remaining == 0 {
            return None;
        }
        let from = self.start as usize + self.within;
        let len = (self.run - self.within).min(self.remaining);
        self.remaining -= len;
        self.within = 0;
        if self.remaining > 0 {
            self.advance();
        }
        Some(from..from + len)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.within + self.remaining).div_ceil(self.run.max(1));
        (left, Some(left))
    }
}

impl ExactSizeIterator for Runs {}

#[cfg(test)]
mod tests {
    use super::Runs;
    use crate::Layout;

    #[test]
    fn reversed_and_broadcast_dimensions() {
        let reversed = Layout::new(&[3], &[-1], 2).unwrap();
        assert_eq!(
            Runs::new(&reversed, 2).collect::<Vec<_>>(),
            [4..6, 2..4, 0..2]
        );
        let broadcast = Layout::new(&[2, 3], &[0, 1], 0).unwrap();
        assert_eq!(Runs::new(&broadcast, 2).collect::<Vec<_>>(), [0..6, 0..6]);
        assert_eq!(
            Runs::new(&Layout::contiguous(&[2, 0]).unwrap(), 2).count(),
            0
        );
        let scalar = Layout::contiguous(&[]).unwrap();
        assert_eq!(Runs::new(&scalar, 4).next(), Some(0..4));
    }

    #[test]
    fn ranges_start_and_end_inside_runs() {
        let layout = Layout::contiguous(&[2, 4, 2])
            .unwrap()
            .narrow(1, 1, 2)
            .unwrap();
        assert_eq!(
            Runs::of_range(&layout, 4, 4..20).collect::<Vec<_>>(),
            [12..24, 40..44]
        );
        let beyond = Runs::of_range(&layout, 4, 16..99);
        assert_eq!((beyond.len(), beyond.last()), (1, Some(40..56)));
        assert_eq!(Runs::of_range(&layout, 4, 40..50).count(), 0);
        assert_eq!(Runs::of_range(&layout, 4, 4..20).len(), 2);
    }
}
