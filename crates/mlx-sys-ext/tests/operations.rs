//! Owned memory, quantisation, bits, devices and errors.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_rs::{Array, DeviceType, Dtype};
use mlx_sys_ext::{
    Backend, Error, GatherIndices, HostView, Quantization, array_from_owner, array_read_from,
    bitwise_and, bitwise_invert, bitwise_or, bitwise_xor, dequantize, device_count, device_info,
    gather_qmm, is_device_available, left_shift, quantize, quantized_matmul, right_shift,
    synchronize, version,
};

/// Memory that says when it is dropped.
struct Owner {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn owner(bytes: Vec<u8>) -> (Owner, Arc<AtomicUsize>) {
    let drops = Arc::default();
    let owner = Owner {
        bytes,
        drops: Arc::clone(&drops),
    };
    (owner, drops)
}

#[test]
fn an_owner_is_dropped_once() {
    let bytes: Vec<u8> = [1i32, -2, 3].iter().flat_map(|x| x.to_le_bytes()).collect();
    let (owner, drops) = owner(bytes);
    let array = array_from_owner(owner, &[3], Dtype::Int32).unwrap();
    assert_eq!(array.as_slice::<i32>(), [1, -2, 3]);
    let sum = array.add(&array).unwrap();
    drop(array);
    assert_eq!(sum.as_slice::<i32>(), [2, -4, 6]);
    drop(sum);
    synchronize().unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn an_owner_that_does_not_fit_is_refused_and_dropped() {
    let (short, drops) = owner(vec![0; 11]);
    let error = array_from_owner(short, &[3], Dtype::Int32).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Length {
                expected: 12,
                found: 11,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let negative = array_from_owner(vec![0u8; 4], &[-1], Dtype::Int32).unwrap_err();
    assert!(matches!(negative, Error::Shape { .. }), "{negative}");
    let huge = array_from_owner(vec![0u8; 4], &[i32::MAX; 4], Dtype::Int32).unwrap_err();
    assert!(
        matches!(huge, Error::Shape { .. } | Error::Length { .. }),
        "{huge}"
    );
    let empty = array_from_owner(Vec::new(), &[0, 5], Dtype::Float32).unwrap();
    assert_eq!((empty.shape(), empty.size()), (&[0, 5][..], 0));
}

#[test]
fn a_boolean_is_0_or_1() {
    let array = array_from_owner(vec![1u8, 0], &[2], Dtype::Bool).unwrap();
    assert_eq!(array.as_slice::<bool>(), [true, false]);
    let error = array_from_owner(vec![0u8, 2], &[2], Dtype::Bool).unwrap_err();
    assert_eq!(error, Error::Bool { offset: 1, byte: 2 });
}

#[test]
fn memory_that_is_not_aligned_is_refused() {
    struct Odd(Vec<u64>);
    impl AsMut<[u8]> for Odd {
        fn as_mut(&mut self) -> &mut [u8] {
            // SAFETY-free: any u64 is eight bytes.
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
            &mut bytes[2..6]
        }
    }
    let error = array_from_owner(Odd(vec![0; 1]), &[1], Dtype::Float32).unwrap_err();
    assert_eq!(
        error,
        Error::Alignment {
            expected: 4,
            found: 2
        }
    );
    assert!(array_from_owner(Odd(vec![0; 1]), &[2], Dtype::Uint16).is_ok());
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn what_is_read_is_what_was_given() {
    // Long enough for several threads, and not a multiple of their parts.
    let numbers: Vec<u32> = (0..1_300_003u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let (owner, drops) = owner(bytemuck::cast_slice(&numbers).to_vec());
    let array = array_read_from(owner, &[1_300_003], Dtype::Uint32).unwrap();
    assert_eq!(
        drops.load(Ordering::SeqCst),
        0,
        "it is read when it is evaluated"
    );
    assert!(array.as_slice::<u32>() == numbers);
    synchronize().unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    // Memory may begin anywhere, and every type but one is read.
    for dtype in [
        Dtype::Bool,
        Dtype::Uint8,
        Dtype::Int8,
        Dtype::Uint16,
        Dtype::Int16,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Uint32,
        Dtype::Int32,
        Dtype::Float32,
        Dtype::Uint64,
        Dtype::Int64,
        Dtype::Complex64,
    ] {
        let size = array_from_owner(Vec::new(), &[0], dtype)
            .unwrap()
            .item_size();
        let bytes = vec![1; 6 * size];
        let read = array_read_from(bytes.clone(), &[2, 3], dtype).unwrap();
        let taken = array_from_owner(bytes, &[2, 3], dtype).unwrap();
        assert_eq!((read.shape(), read.dtype()), (&[2, 3][..], dtype));
        let [read, taken] = [read, taken].map(|array| {
            array.eval().unwrap();
            HostView::new(array).unwrap().bytes().to_vec()
        });
        assert_eq!(read, taken, "{dtype:?}");
    }
    let empty = array_read_from(Vec::new(), &[0, 5], Dtype::Float32).unwrap();
    empty.eval().unwrap();
    assert_eq!(empty.shape(), [0, 5]);
}

#[test]
fn what_can_not_be_read_is_refused_and_dropped() {
    let (short, drops) = owner(vec![0; 11]);
    let error = array_read_from(short, &[3], Dtype::Int32).unwrap_err();
    assert!(matches!(error, Error::Length { .. }), "{error}");
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let error = array_read_from(vec![0; 4], &[-1], Dtype::Int32).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let error = array_read_from(vec![0, 2], &[2], Dtype::Bool).unwrap_err();
    assert_eq!(error, Error::Bool { offset: 1, byte: 2 });
    let error = array_read_from(vec![0; 8], &[1], Dtype::Float64).unwrap_err();
    assert!(matches!(error, Error::Mlx { .. }), "{error}");
}

/// Smooth values, so that neighbours in a group are alike.
fn matrix(rows: i32, columns: i32) -> Array {
    let values: Vec<f32> = (0..rows * columns)
        .map(|i| (i as f32 * 0.37).sin())
        .collect();
    Array::from_slice(&values, &[rows, columns])
}

fn largest_difference(a: &Array, b: &Array) -> f32 {
    let difference = a.subtract(b).unwrap().abs().unwrap().max(false).unwrap();
    difference.as_dtype(Dtype::Float32).unwrap().item_exact()
}

fn modes() -> Vec<(Quantization, f32)> {
    let mut modes = vec![
        // The largest step between neighbours, halved, for values up to 1.
        (Quantization::Mxfp4, 0.26),
        (Quantization::Mxfp8, 0.07),
        (Quantization::Nvfp4, 0.20),
    ];
    for bits in [2, 3, 4, 5, 6, 8] {
        for group_size in [32, 64, 128] {
            let step = 2.0 / ((1 << bits) - 1) as f32;
            modes.push((Quantization::affine(group_size, bits).unwrap(), step));
        }
    }
    modes
}

#[test]
fn every_mode_comes_back_within_its_step() {
    let matrix = matrix(4, 256);
    for (mode, bound) in modes() {
        let quantized = quantize(&matrix, mode).unwrap();
        assert_eq!(
            quantized.weight.shape(),
            [4, 256 * mode.bits() / 32],
            "{mode:?}"
        );
        assert_eq!(quantized.scales.shape(), [4, 256 / mode.group_size()]);
        assert_eq!(quantized.biases.is_some(), mode.has_biases());
        let back = dequantize(&quantized, mode, Some(Dtype::Float32)).unwrap();
        let difference = largest_difference(&back, &matrix);
        assert!(difference <= bound, "{mode:?}: {difference} over {bound}");
        assert!(difference > 0.0, "{mode:?} can't be exact");
    }
}

#[test]
fn products_are_those_of_the_dequantised_matrix() {
    let (matrix, x) = (matrix(8, 128), matrix(3, 128));
    for (mode, _) in modes() {
        let quantized = quantize(&matrix, mode).unwrap();
        let floats = dequantize(&quantized, mode, Some(Dtype::Float32)).unwrap();
        let found = quantized_matmul(&x, &quantized, mode, true).unwrap();
        let expected = x.matmul(floats.transpose().unwrap()).unwrap();
        let difference = largest_difference(&found, &expected);
        assert!(difference < 1e-4, "{mode:?}: {difference}");
    }
}

#[test]
fn gathered_products_use_the_chosen_matrices() {
    let stack = matrix(4 * 8, 64).reshape(&[4, 8, 64]).unwrap();
    let x = matrix(2, 64).reshape(&[2, 1, 64]).unwrap();
    let right = Array::from_slice(&[3u32, 1], &[2]);
    for mode in [
        Quantization::Mxfp4,
        Quantization::Mxfp8,
        Quantization::Nvfp4,
        Quantization::affine(32, 4).unwrap(),
    ] {
        let quantized = quantize(&stack, mode).unwrap();
        let floats = dequantize(&quantized, mode, Some(Dtype::Float32)).unwrap();
        let indices = GatherIndices {
            right: Some(&right),
            ..GatherIndices::default()
        };
        let found = gather_qmm(&x, &quantized, mode, indices, true).unwrap();
        let chosen = floats.take_axis(&right, 0).unwrap();
        let expected = x
            .matmul(chosen.transpose_axes(&[0, 2, 1]).unwrap())
            .unwrap();
        assert_eq!(found.shape(), expected.shape());
        let difference = largest_difference(&found, &expected);
        assert!(difference < 1e-4, "{mode:?}: {difference}");
    }
}

#[test]
fn what_does_not_fit_a_mode_is_an_error() {
    assert_eq!(
        Quantization::affine(64, 7),
        Err(Error::Affine {
            group_size: 64,
            bits: 7
        })
    );
    let affine = Quantization::affine(32, 4).unwrap();
    let quantized = quantize(&matrix(2, 64), affine).unwrap();
    let error = dequantize(&quantized, Quantization::Mxfp4, None).unwrap_err();
    assert_eq!(error.to_string(), "mxfp4 quantisation has no biases");
    // 65 columns are no multiple of any group: MLX's own words come through.
    let error = quantize(&matrix(2, 65), affine).unwrap_err();
    assert!(
        matches!(&error, Error::Mlx { message } if message.contains("quantize")),
        "{error}"
    );
}

#[test]
fn bits() {
    let a = Array::from_slice(&[0b1100i32, -1, 7], &[3]);
    let b = Array::from_slice(&[0b1010i32, 1, 2], &[3]);
    let found = |array: mlx_sys_ext::Result<Array>| array.unwrap().to_vec_exact::<i32>().unwrap();
    assert_eq!(found(bitwise_and(&a, &b)), [0b1000, 1, 2]);
    assert_eq!(found(bitwise_or(&a, &b)), [0b1110, -1, 7]);
    assert_eq!(found(bitwise_xor(&a, &b)), [0b0110, -2, 5]);
    assert_eq!(found(left_shift(&a, &b)), [12 << 10, -2, 28]);
    assert_eq!(found(right_shift(&a, &b)), [0, -1, 1]);
    assert_eq!(found(bitwise_invert(&a)), [-13, 0, -8]);
    let floats = Array::from_slice(&[1.0f32], &[1]);
    assert!(matches!(
        bitwise_and(&floats, &floats),
        Err(Error::Mlx { .. })
    ));
}

#[test]
fn devices() {
    assert_eq!(version().unwrap(), "0.32.2");
    assert!(device_count(DeviceType::Cpu).unwrap() >= 1);
    assert!(is_device_available(DeviceType::Cpu, 0).unwrap());
    assert!(!device_info(DeviceType::Cpu, 0).unwrap().is_empty());
    let has_gpu = is_device_available(DeviceType::Gpu, 0).unwrap();
    assert_eq!(Backend::current().unwrap() != Backend::Cpu, has_gpu);
    assert!(!is_device_available(DeviceType::Gpu, 99).unwrap());
}

/// A raw call as the first call of all must not end the process, and mlx-rs must still get
/// its own messages afterwards.
#[test]
fn errors_reach_whoever_called() {
    let (two, three) = (
        Array::from_slice(&[1, 2], &[2]),
        Array::from_slice(&[1, 2, 3], &[3]),
    );
    let ours = bitwise_and(&two, &three).unwrap_err();
    assert!(
        matches!(&ours, Error::Mlx { message } if message.contains("(2)")),
        "{ours}"
    );
    let theirs = two.add(&three).unwrap_err();
    assert!(theirs.what().contains("(3)"), "{theirs}");
    let again = bitwise_or(&three, &two).unwrap_err();
    assert!(
        matches!(&again, Error::Mlx { message } if message.contains("(3)")),
        "{again}"
    );
}
