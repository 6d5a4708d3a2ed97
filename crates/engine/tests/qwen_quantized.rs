//! Quantised Qwen checkpoints against the same weights dequantised: the logits are the same.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

mod parity_support;

use std::path::Path;

use mlx_rs::Array;
use mlx_sys_ext::{HostView, Quantization, dequantize, quantize};
use parity_support::stored::{read, to_mlx, values, write};
use parity_support::{load, logits};
use prefill_engine::WorkingType;
use prefill_test_support::{Golden, StoredTensor};
use safetensors::tensor::Dtype;

fn stored(name: String, dtype: Dtype, array: &Array) -> StoredTensor {
    let rows = array.contiguous().unwrap();
    rows.eval().unwrap();
    let view = HostView::new(rows).unwrap();
    StoredTensor {
        name,
        dtype,
        shape: view.shape().iter().map(|&extent| extent as usize).collect(),
        bytes: view.bytes().to_vec(),
    }
}

/// What mlx-vlm quantises: linear layers, embeddings (the tower's table of places among them)
/// and experts.
fn is_matrix(tensor: &StoredTensor) -> bool {
    let name = &tensor.name;
    (2..=3).contains(&tensor.shape.len())
        && name.ends_with(".weight")
        && !name.contains("conv1d")
        && !name.contains("patch_embed")
}

/// The tensors with their matrices quantised, and with the same dequantised; how many.
fn quantised(
    tensors: &[StoredTensor],
    mode_of: impl Fn(&str) -> Quantization,
) -> (Vec<StoredTensor>, Vec<StoredTensor>, usize) {
    let (mut packed, mut floats, mut count) = (Vec::new(), Vec::new(), 0);
    for tensor in tensors {
        let mode = mode_of(&tensor.name);
        let fits = tensor
            .shape
            .last()
            .is_some_and(|&columns| columns % mode.group_size() as usize == 0);
        if !is_matrix(tensor) || !fits {
            packed.push(tensor.clone());
            floats.push(tensor.clone());
            continue;
        }
        count += 1;
        let extents: Vec<i32> = tensor.shape.iter().map(|&extent| extent as i32).collect();
        let exact = Array::from_slice(&values(tensor), &extents);
        let quantised = quantize(&exact, mode).unwrap();
        let back = dequantize(&quantised, mode, Some(mlx_rs::Dtype::Float32)).unwrap();
        floats.push(stored(tensor.name.clone(), Dtype::F32, &back));
        let path = tensor.name.strip_suffix(".weight").unwrap();
        packed.push(stored(tensor.name.clone(), Dtype::U32, &quantised.weight));
        let scales = if mode.has_biases() {
            Dtype::F32
        } else {
            Dtype::U8
        };
        packed.push(stored(format!("{path}.scales"), scales, &quantised.scales));
        if let Some(biases) = quantised.biases {
            packed.push(stored(format!("{path}.biases"), Dtype::F32, &biases));
        }
    }
    (packed, floats, count)
}

fn answer(folder: &Path, golden: &Golden) -> Vec<f32> {
    logits(&load(folder, golden, WorkingType::AsStored), golden)
}

fn check(model: &str, mode_of: impl Fn(&str) -> Quantization, least: usize) {
    let golden = Golden::read(model, "image_png").unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let exact = answer(folder.path(), &golden);
    let turned = to_mlx(read(folder.path()), model);
    let (packed, floats, count) = quantised(&turned, mode_of);
    assert!(count >= least, "only {count} matrices fit the groups");
    write(folder.path(), &packed);
    let found = answer(folder.path(), &golden);
    write(folder.path(), &floats);
    let expected = answer(folder.path(), &golden);
    let difference = |a: &[f32], b: &[f32]| {
        let pairs = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        pairs.max_by(f32::total_cmp).unwrap()
    };
    let (error, effect) = (difference(&found, &expected), difference(&found, &exact));
    println!("{model}: {count} matrices, {error:.1e} from dequantised, {effect:.1e} from exact");
    assert!(error < golden.tolerance(), "{error}");
    assert!(
        effect > 10.0 * golden.tolerance(),
        "nothing was quantised: {effect}"
    );
}

#[test]
fn affine_4_bits() {
    for (model, least) in [("qwen3_vl", 30), ("qwen3_5", 40)] {
        check(model, |_| Quantization::affine(32, 4).unwrap(), least);
    }
}

#[test]
fn every_mode() {
    for bits in [2, 3, 5, 6, 8] {
        check("qwen3_5", |_| Quantization::affine(32, bits).unwrap(), 40);
    }
    for mode in [
        Quantization::Mxfp4,
        Quantization::Mxfp8,
        Quantization::Nvfp4,
    ] {
        check("qwen3_5", |_| mode, 40);
    }
}

/// Routers of 8 bits beside experts of 4, as mlx-vlm quantises them.
#[test]
fn experts_and_routers() {
    let mode_of = |name: &str| {
        let bits = if name.contains("mlp.gate.") || name.contains("shared_expert_gate") {
            8
        } else {
            4
        };
        Quantization::affine(32, bits).unwrap()
    };
    for model in ["qwen3_vl_moe", "qwen3_5_moe"] {
        check(model, mode_of, 30);
    }
}
