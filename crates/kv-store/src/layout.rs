use crate::{Error, Result};

/// The greatest number of dimensions.
pub const MAX_RANK: usize = 8;

/// Where the elements of a tensor lie in a buffer: shape, signed strides and an offset, all in
/// elements, as MLX and `PyTorch` count them.
///
/// ```
/// use prefill_kv_store::Layout;
/// // Rows 2 to 5 of a [8 heads, 16 rows of capacity, 4] cache.
/// let cache = Layout::contiguous(&[8, 16, 4])?;
/// let rows = cache.narrow(1, 2, 3)?;
/// assert_eq!((rows.shape(), rows.strides(), rows.offset()), (&[8, 3, 4][..], &[64, 4, 1][..], 8));
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
    elements: usize,
}

impl Layout {
    /// A layout with these dimensions and strides, whose first element is `offset`.
    /// Strides may be negative, or zero where an element stands for many.
    ///
    /// # Errors
    /// [`Error::Rank`] if the numbers differ or exceed [`MAX_RANK`]; [`Error::Limit`] if the
    /// element count does not fit in 60 bits.
    pub fn new(shape: &[usize], strides: &[isize], offset: usize) -> Result<Self> {
        if shape.len() != strides.len() || shape.len() > MAX_RANK {
            return Err(Error::Rank {
                shape: shape.len(),
                strides: strides.len(),
                limit: MAX_RANK,
            });
        }
        let elements = count(shape)?;
        Ok(Self {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            elements,
        })
    }

    /// The row-major layout of a shape, from element 0.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn contiguous(shape: &[usize]) -> Result<Self> {
        // Every suffix product must fit, even where a leading zero makes the tensor empty.
        let positive: Vec<usize> = shape.iter().map(|&n| n.max(1)).collect();
        count(&positive)?;
        let mut strides = vec![1isize; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * positive[axis] as isize;
        }
        Self::new(shape, &strides, 0)
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The step of each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The element at index 0 of every dimension.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// How many elements there are: the product of the dimensions, 1 for a scalar.
    #[must_use]
    pub const fn elements(&self) -> usize {
        self.elements
    }

    /// The part of it from `start`, `len` long, along one axis.
    ///
    /// # Errors
    /// [`Error::Index`] if there is no such axis or part.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        let Some(&n) = self.shape.get(axis) else {
            return Err(Error::Index {
                what: "axis",
                index: axis,
                count: self.shape.len(),
            });
        };
        let end = start.checked_add(len).filter(|&end| end <= n);
        if end.is_none() {
            return Err(Error::Index {
                what: "end of rows",
                index: start.saturating_add(len),
                count: n,
            });
        }
        let mut part = self.clone();
        part.shape[axis] = len;
        part.elements = count(&part.shape)?;
        if part.elements > 0 {
            let offset = self.offset as i128 + start as i128 * self.strides[axis] as i128;
            part.offset = usize::try_from(offset).map_err(|_| Error::OutOfBounds {
                lowest: offset,
                highest: offset,
                available: 0,
            })?;
        }
        Ok(part)
    }

    /// The same elements with the dimensions in another order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `order` is not a permutation of the axes.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.shape.len()) {
            return Err(Error::Invalid {
                what: "the order is not a permutation of the axes",
            });
        }
        let mut moved = self.clone();
        for (to, &from) in order.iter().enumerate() {
            moved.shape[to] = self.shape[from];
            moved.strides[to] = self.strides[from];
        }
        Ok(moved)
    }

    /// Proves that every element lies in a buffer of `available` elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] with the extremes that the view reaches.
    pub fn check(&self, available: usize) -> Result<()> {
        if self.elements == 0 {
            return Ok(());
        }
        let (mut lowest, mut highest) = (self.offset as i128, self.offset as i128);
        for (&n, &stride) in self.shape.iter().zip(&self.strides) {
            // |(n - 1) * stride| < 2^127, and eight of them are far from overflowing after the
            // element count was found to fit in 60 bits.
            let reach = (n as i128 - 1) * stride as i128;
            lowest += reach.min(0);
            highest += reach.max(0);
        }
        if lowest < 0 || highest >= available as i128 {
            return Err(Error::OutOfBounds {
                lowest,
                highest,
                available,
            });
        }
        Ok(())
    }

    /// Whether no two indices share an element, by a test that is sufficient, and exact for
    /// every slice, step and permutation of a dense tensor: in order of their strides, each
    /// dimension steps over all that the smaller ones reach.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        if self.elements == 0 {
            return true;
        }
        let mut steps: Vec<(u128, u128)> = self
            .shape
            .iter()
            .zip(&self.strides)
            .filter(|&(&n, _)| n > 1)
            .map(|(&n, &s)| (s.unsigned_abs() as u128, n as u128 - 1))
            .collect();
        steps.sort_unstable();
        let mut reach = 0;
        steps.iter().all(|&(step, last)| {
            let clear = step > reach;
            reach += step * last;
            clear
        })
    }

    /// The layout without dimensions of one element, and with neighbours merged that step alike.
    pub(crate) fn collapse(&self) -> Vec<(usize, isize)> {
        let mut dims: Vec<(usize, isize)> = Vec::with_capacity(self.shape.len());
        for (&n, &stride) in self.shape.iter().zip(&self.strides) {
            if n == 1 {
                continue;
            }
            match dims.last_mut() {
                Some((outer, step)) if stride.checked_mul(n as isize) == Some(*step) => {
                    *outer *= n;
                    *step = stride;
                }
                _ => dims.push((n, stride)),
            }
        }
        dims
    }
}

fn count(shape: &[usize]) -> Result<usize> {
    const LIMIT: u64 = 1 << 60;
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape
        .iter()
        .try_fold(1usize, |product, &n| product.checked_mul(n));
    product.filter(|&n| n as u64 <= LIMIT).ok_or(Error::Limit {
        what: "element count",
        found: u64::MAX,
        limit: LIMIT,
    })
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::Error;

    #[test]
    fn bounds_are_proven() {
        let check = |shape: &[usize], strides: &[isize], offset, available| {
            Layout::new(shape, strides, offset)
                .unwrap()
                .check(available)
        };
        assert!(check(&[4], &[-1], 3, 4).is_ok());
        assert!(matches!(
            check(&[4], &[-1], 2, 4),
            Err(Error::OutOfBounds { lowest: -1, .. })
        ));
        assert!(check(&[2, 3], &[3, 1], 0, 6).is_ok());
        assert!(check(&[2, 3], &[3, 1], 1, 6).is_err());
        assert!(check(&[5, 3], &[0, 1], 0, 3).is_ok());
        assert!(check(&[0, 3], &[isize::MIN, isize::MAX], usize::MAX, 0).is_ok());
        assert!(check(&[9, 9], &[isize::MIN, isize::MAX], 0, 81).is_err());
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        assert!(matches!(
            Layout::contiguous(&[usize::MAX, 2]),
            Err(Error::Limit {
                what: "element count",
                ..
            })
        ));
        assert!(Layout::contiguous(&[0, usize::MAX, 2]).is_err());
        assert!(Layout::contiguous(&[1; 9]).is_err());
        assert_eq!(Layout::contiguous(&[]).unwrap().elements(), 1);
    }

    #[test]
    fn injective_layouts_are_told_from_broadcasts() {
        let layout = |s: &[usize], t: &[isize]| Layout::new(s, t, 0).unwrap();
        assert!(layout(&[3, 4], &[1, 3]).is_injective());
        assert!(layout(&[3, 4], &[-8, 2]).is_injective());
        assert!(!layout(&[3, 4], &[0, 1]).is_injective());
        assert!(!layout(&[3, 4], &[2, 1]).is_injective());
    }

    #[test]
    fn collapsing_merges_what_is_contiguous() {
        assert_eq!(
            Layout::contiguous(&[2, 1, 3, 4]).unwrap().collapse(),
            [(24, 1)]
        );
        let rows = Layout::contiguous(&[2, 8, 4])
            .unwrap()
            .narrow(1, 1, 3)
            .unwrap();
        assert_eq!(rows.collapse(), [(2, 32), (12, 1)]);
    }
}
