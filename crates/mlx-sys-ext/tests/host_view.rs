//! Views of arrays whose memory lies in every way that MLX knows.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::thread;

use mlx_rs::ops::broadcast_to;
use mlx_rs::ops::indexing::{TryIndexMutOp, TryIndexOp};
use mlx_rs::transforms::async_eval;
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::{Error, HostView, is_available};

/// The elements in row-major order, found by shape and strides alone.
fn elements(view: &HostView) -> Vec<&[u8]> {
    let mut offsets = vec![view.first_byte() as isize];
    for (&size, &stride) in view.shape().iter().zip(view.byte_strides()) {
        offsets = offsets
            .iter()
            .flat_map(|&offset| (0..size as isize).map(move |index| offset + index * stride))
            .collect();
    }
    let bytes = view.bytes();
    offsets
        .into_iter()
        .map(|offset| {
            let start = usize::try_from(offset).unwrap();
            &bytes[start..start + view.item_size()]
        })
        .collect()
}

fn check(array: &Array) -> HostView {
    array.eval().unwrap();
    let rows = array.contiguous().unwrap();
    let expected: Vec<i32> = rows.to_vec_exact().unwrap();
    let view = HostView::new(array.clone()).unwrap();
    let found: Vec<i32> = elements(&view)
        .into_iter()
        .map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(view.shape(), array.shape());
    assert_eq!(view.dtype(), Dtype::Int32);
    view
}

fn matrix() -> Array {
    let values: Vec<i32> = (0..24).collect();
    Array::from_slice(&values, &[4, 6])
}

#[test]
fn rows() {
    let view = check(&matrix());
    assert_eq!((view.byte_strides(), view.first_byte()), (&[24, 4][..], 0));
    assert_eq!(view.bytes().len(), 96);
}

#[test]
fn transposed() {
    let view = check(&matrix().transpose().unwrap());
    assert_eq!(view.byte_strides(), [4, 24]);
}

#[test]
fn reversed_axes_have_negative_strides() {
    use mlx_rs::ops::indexing::IntoStrideBy;

    let down = matrix().try_index(((..).stride_by(-1), ..)).unwrap();
    let view = check(&down);
    assert_eq!(
        (view.byte_strides(), view.first_byte()),
        (&[-24, 4][..], 72)
    );
    let both = matrix()
        .try_index(((..).stride_by(-1), (..).stride_by(-1)))
        .unwrap();
    let view = check(&both);
    assert_eq!(
        (view.byte_strides(), view.first_byte()),
        (&[-24, -4][..], 92)
    );
    let steps = matrix()
        .try_index(((..).stride_by(-2), (..).stride_by(3)))
        .unwrap();
    check(&steps);
}

#[test]
fn broadcast_axes_have_no_stride() {
    let row = Array::from_slice(&[7i32, 8, 9], &[1, 3]);
    let view = check(&broadcast_to(&row, &[5, 3]).unwrap());
    assert_eq!(view.byte_strides(), [0, 4]);
    assert_eq!(view.bytes().len(), 12);
}

#[test]
fn slices_show_no_more_than_their_extent() {
    let view = check(&matrix().try_index((1..3, 2..5)).unwrap());
    assert_eq!(view.byte_strides(), [24, 4]);
    assert_eq!(view.bytes().len(), 24 + 3 * 4);
}

#[test]
fn scalars_and_empty_arrays() {
    assert_eq!(check(&Array::from_int(5)).bytes(), 5i32.to_le_bytes());
    let empty = mlx_rs::ops::zeros::<i32>(&[3, 0, 2]).unwrap();
    empty.eval().unwrap();
    let view = HostView::new(empty).unwrap();
    assert!(view.bytes().is_empty() && elements(&view).is_empty());
    let none = matrix().try_index((2..2, ..)).unwrap();
    none.eval().unwrap();
    assert!(HostView::new(none).unwrap().bytes().is_empty());
}

#[test]
fn every_type() {
    for dtype in [
        Dtype::Bool,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Float32,
        Dtype::Complex64,
    ] {
        let array = matrix().as_dtype(dtype).unwrap();
        array.eval().unwrap();
        let view = HostView::new(array).unwrap();
        assert_eq!(view.dtype(), dtype);
        assert_eq!(view.bytes().len(), 24 * view.item_size());
        assert_eq!(elements(&view).len(), 24);
    }
    // 1.0 in bfloat16.
    let one = Array::from_f32(1.0).as_dtype(Dtype::Bfloat16).unwrap();
    one.eval().unwrap();
    assert_eq!(HostView::new(one).unwrap().bytes(), 0x3f80u16.to_le_bytes());
}

#[test]
fn what_is_not_evaluated_is_an_error() {
    let lazy = matrix().add(Array::from_int(1)).unwrap();
    assert!(!is_available(&lazy).unwrap());
    let error = HostView::new(lazy.clone()).unwrap_err();
    assert_eq!(error, Error::NotEvaluated { shape: vec![4, 6] });
    async_eval([&lazy]).unwrap();
    lazy.eval().unwrap();
    assert!(is_available(&lazy).unwrap());
    check(&lazy);
}

#[cfg(target_os = "linux")]
#[test]
fn strides_beyond_the_memory_are_refused() {
    use mlx_rs::ops::as_strided;

    let inside = as_strided(matrix(), &[5, 3][..], &[4, 1][..], 2).unwrap();
    check(&inside);
    for (shape, strides, offset) in [
        (&[1_000_000][..], &[1][..], 0),
        (&[4, 6], &[7, 1], 0),
        (&[4, 6], &[6, 1], 1),
        (&[2], &[1], usize::MAX / 8),
    ] {
        let outside = as_strided(matrix(), shape, strides, offset);
        // MLX may refuse it too.
        let Ok(outside) = outside else { continue };
        if outside.eval().is_err() {
            continue;
        }
        let error = HostView::new(outside).unwrap_err();
        assert!(matches!(error, Error::Extent { .. }), "{error}");
    }
}

#[test]
fn a_view_keeps_what_it_shows() {
    let mut array = matrix().add(Array::from_int(0)).unwrap();
    array.eval().unwrap();
    let view = HostView::new(array.clone()).unwrap();
    let before = view.bytes().to_vec();
    // An update in place, were there no view.
    array
        .try_index_mut((0..1, ..), mlx_rs::ops::zeros::<i32>(&[1, 6]).unwrap())
        .unwrap();
    array.eval().unwrap();
    drop(array);
    for _ in 0..50 {
        matrix().add(Array::from_int(9)).unwrap().eval().unwrap();
    }
    assert_eq!(view.bytes(), before);
}

#[test]
fn views_are_read_and_dropped_on_other_threads() {
    let view = check(&matrix());
    let expected = view.bytes().to_vec();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(view.bytes(), expected));
        }
    });
    let array = thread::spawn(move || view.into_array()).join().unwrap();
    assert_eq!(array.to_vec_exact::<i32>().unwrap().len(), 24);
}
