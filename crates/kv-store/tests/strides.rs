//! Strided views against a plain reference that visits every index.

#![allow(clippy::unwrap_used)]

use prefill_kv_store::{DType, Layout, Runs, View, ViewMut};
use proptest::prelude::*;

/// The bytes of every element in row-major order, by counting indices up.
fn reference(data: &[u8], layout: &Layout, item: usize) -> Vec<u8> {
    let shape = layout.shape();
    let mut out = Vec::new();
    for flat in 0..layout.elements() {
        let (mut rest, mut at) = (flat, layout.offset() as isize);
        for axis in (0..shape.len()).rev() {
            at += (rest % shape[axis]) as isize * layout.strides()[axis];
            rest /= shape[axis];
        }
        out.extend_from_slice(&data[at as usize * item..][..item]);
    }
    out
}

/// A dense tensor, sliced with steps of either sign, perhaps broadcast, permuted.
fn layouts(broadcast: bool) -> impl Strategy<Value = (Layout, usize)> {
    let dim = (1usize..7, 0usize..3, 1isize..3, any::<bool>(), 0u8..8);
    (prop::collection::vec(dim, 0..5), any::<u64>()).prop_map(move |(dims, seed)| {
        let base: Vec<usize> = dims.iter().map(|d| d.0).collect();
        let dense = Layout::contiguous(&base).unwrap();
        let (mut shape, mut strides, mut offset) = (vec![], vec![], 0isize);
        for (&(n, skip, step, reverse, special), &stride) in dims.iter().zip(dense.strides()) {
            let skip = skip.min(n - 1);
            let len = (n - skip).div_ceil(step as usize);
            match special {
                0 if broadcast => (shape.push(4), strides.push(0)),
                1 => (shape.push(0), strides.push(stride)),
                _ if reverse => {
                    offset += (skip as isize + (len as isize - 1) * step) * stride;
                    (shape.push(len), strides.push(-step * stride))
                }
                _ => {
                    offset += skip as isize * stride;
                    (shape.push(len), strides.push(step * stride))
                }
            };
        }
        let mut order: Vec<usize> = (0..shape.len()).collect();
        let mut state = seed;
        for i in (1..order.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            order.swap(i, (state >> 33) as usize % (i + 1));
        }
        let offset = if shape.contains(&0) {
            0
        } else {
            offset as usize
        };
        let layout = Layout::new(&shape, &strides, offset)
            .unwrap()
            .permute(&order)
            .unwrap();
        (layout, dense.elements())
    })
}

fn dtype(item: usize) -> DType {
    [DType::U8, DType::Bf16, DType::F32, DType::Complex64][item.trailing_zeros() as usize]
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 256) as u8).collect()
}

proptest! {
    #[test]
    fn gathering_equals_the_reference((layout, elements) in layouts(true), shift in 0u32..4) {
        let item = 1 << shift;
        let data = bytes(elements * item);
        let view = View::new(&data, dtype(item), layout.clone()).unwrap();
        let expected = reference(&data, &layout, item);
        prop_assert_eq!(view.to_vec(), expected.clone());
        prop_assert_eq!(view.slices().collect::<Vec<_>>().concat(), expected);
    }

    #[test]
    fn ranges_of_runs_join_to_the_whole((layout, _) in layouts(true), cut in 0usize..64) {
        let total = layout.elements() * 2;
        let cut = cut.min(total);
        let flat = |runs: Runs| runs.flatten().collect::<Vec<usize>>();
        let mut joined = flat(Runs::of_range(&layout, 2, 0..cut));
        joined.extend(flat(Runs::of_range(&layout, 2, cut..total)));
        prop_assert_eq!(joined, flat(Runs::new(&layout, 2)));
        let runs = Runs::new(&layout, 2);
        prop_assert_eq!(runs.len(), runs.count());
    }

    #[test]
    fn scattering_inverts_gathering((layout, elements) in layouts(false), shift in 0u32..4) {
        let item = 1 << shift;
        let packed = bytes(layout.elements() * item);
        let mut data = vec![0xaa; elements * item];
        ViewMut::new(&mut data, dtype(item), layout.clone()).unwrap().copy_from(&packed).unwrap();
        prop_assert_eq!(reference(&data, &layout, item), packed.clone());
        // What the layout does not reach is untouched.
        let touched = layout.elements() * item;
        let changed_at_most = data.iter().filter(|&&b| b != 0xaa).count();
        prop_assert!(changed_at_most <= touched);
        let mut again = vec![0xaa; elements * item];
        for (run, part) in Runs::new(&layout, item).zip(chunks(&layout, item, &packed)) {
            again[run].copy_from_slice(part);
        }
        prop_assert_eq!(data, again);
    }

    #[test]
    fn any_layout_is_checked(
        dims in prop::collection::vec((0usize..5, -40isize..40), 0..9),
        offset in 0usize..80,
        elements in 0usize..100,
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let data = bytes(elements);
        let Ok(layout) = Layout::new(&shape, &strides, offset) else { return Ok(()) };
        let inside = (0..layout.elements()).all(|flat| {
            let (mut rest, mut at) = (flat, offset as isize);
            for axis in (0..shape.len()).rev() {
                at += (rest % shape[axis]) as isize * strides[axis];
                rest /= shape[axis];
            }
            at >= 0 && (at as usize) < elements
        });
        let view = View::new(&data, DType::U8, layout.clone());
        prop_assert_eq!(view.is_ok(), inside);
        if let Ok(view) = view {
            prop_assert_eq!(view.to_vec(), reference(&data, &layout, 1));
        }
        // A layout that is called injective is.
        if inside && layout.is_injective() {
            let mut seen = std::collections::HashSet::new();
            prop_assert!(Runs::new(&layout, 1).flatten().all(|i| seen.insert(i)));
        }
    }
}

fn chunks<'a>(layout: &Layout, item: usize, packed: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = packed;
    Runs::new(layout, item).map(move |run| {
        let (head, tail) = rest.split_at(run.len());
        rest = tail;
        head
    })
}
