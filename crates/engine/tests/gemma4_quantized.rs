//! Quantised checkpoints against the same weights dequantised: the logits are the same, in
//! every mode that MLX has.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

mod parity_support;

use std::ops::ControlFlow;
use std::path::Path;

use mlx_rs::Array;
use mlx_sys_ext::{HostView, Quantization, dequantize, quantize};
use parity_support::stored::{read, write};
use prefill_engine::{
    Checkpoint, Conversation, Error, MlxThread, Model, Preparer, TemplateOptions, WorkingType,
};
use prefill_test_support::{Golden, StoredTensor};
use safetensors::tensor::Dtype;

fn stored(name: String, dtype: Dtype, array: Array) -> StoredTensor {
    array.eval().unwrap();
    let rows = array.contiguous().unwrap();
    rows.eval().unwrap();
    let view = HostView::new(rows).unwrap();
    let shape = view.shape().iter().map(|&extent| extent as usize).collect();
    StoredTensor {
        name,
        dtype,
        shape,
        bytes: view.bytes().to_vec(),
    }
}

/// The matrices of linear layers, embeddings and experts.
fn is_matrix(name: &str, shape: &[usize]) -> bool {
    shape.len() >= 2
        && name.ends_with(".weight")
        && !["conv", "audio", "norm"]
            .iter()
            .any(|part| name.contains(part))
}

/// The checkpoint's matrices quantised, and the same dequantised; how many there are.
fn quantised(
    tensors: &[StoredTensor],
    mode_of: impl Fn(&str) -> Quantization,
) -> (Vec<StoredTensor>, Vec<StoredTensor>, usize) {
    let (mut packed, mut floats, mut count) = (Vec::new(), Vec::new(), 0);
    for tensor in tensors {
        let StoredTensor {
            name, shape, bytes, ..
        } = tensor;
        let mode = mode_of(name);
        let fits = shape
            .last()
            .is_some_and(|&columns| columns % mode.group_size() as usize == 0);
        if !is_matrix(name, shape) || !fits {
            packed.push(tensor.clone());
            floats.push(tensor.clone());
            continue;
        }
        count += 1;
        let values: Vec<f32> = bytes
            .chunks(4)
            .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
            .collect();
        let extents: Vec<i32> = shape.iter().map(|&extent| extent as i32).collect();
        let quantised = quantize(&Array::from_slice(&values, &extents), mode).unwrap();
        let back = dequantize(&quantised, mode, Some(mlx_rs::Dtype::Float32)).unwrap();
        floats.push(stored(name.clone(), Dtype::F32, back));
        let path = name.strip_suffix(".weight").unwrap();
        packed.push(stored(name.clone(), Dtype::U32, quantised.weight));
        let scales = if mode.has_biases() {
            Dtype::F32
        } else {
            Dtype::U8
        };
        packed.push(stored(format!("{path}.scales"), scales, quantised.scales));
        if let Some(biases) = quantised.biases {
            packed.push(stored(format!("{path}.biases"), Dtype::F32, biases));
        }
    }
    (packed, floats, count)
}

/// The logits of the golden's prompt and of each of its steps.
fn logits(folder: &Path, golden: &Golden, thread: &MlxThread) -> Result<Vec<f32>, Error> {
    let checkpoint = Checkpoint::open(folder)?;
    let model = Model::load(thread, &checkpoint, WorkingType::AsStored, &mut |_| {})?;
    let conversation = Conversation::from_json(&golden.messages_with_paths())?;
    let prepared =
        Preparer::open(&checkpoint)?.prepare(&conversation, &TemplateOptions::default())?;
    let mut sequence = model.prefill(&prepared, &mut |_| ControlFlow::Continue(()))?;
    let mut logits = sequence.logits()?;
    for &id in golden.greedy_ids() {
        sequence.feed(id)?;
        logits.extend(sequence.logits()?);
    }
    Ok(logits)
}

fn check(model: &str, mode_of: impl Fn(&str) -> Quantization, least: usize) {
    let golden = Golden::read(model, "image_png").unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let thread = MlxThread::claim().unwrap();
    let exact = logits(folder.path(), &golden, &thread).unwrap();
    // As mlx-community stores them, since only such experts are ever quantised.
    let split = read(folder.path())
        .into_iter()
        .flat_map(StoredTensor::split_experts);
    let (packed, floats, count) = quantised(&split.collect::<Vec<_>>(), mode_of);
    assert!(count >= least, "only {count} matrices fit the groups");
    write(folder.path(), &packed);
    let found = logits(folder.path(), &golden, &thread).unwrap();
    write(folder.path(), &floats);
    let expected = logits(folder.path(), &golden, &thread).unwrap();
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
    check("gemma4_e2b", |_| Quantization::affine(32, 4).unwrap(), 60);
}

#[test]
fn affine_of_every_width() {
    for bits in [2, 3, 5, 6, 8] {
        check(
            "gemma4_e2b",
            |_| Quantization::affine(32, bits).unwrap(),
            60,
        );
    }
}

#[test]
fn fp_modes() {
    for mode in [
        Quantization::Mxfp4,
        Quantization::Mxfp8,
        Quantization::Nvfp4,
    ] {
        check("gemma4_e2b", |_| mode, 60);
    }
}

/// Each module may have its own mode: routers of 8 bits beside experts of 4, as
/// mlx-community has them.
#[test]
fn experts_and_overrides() {
    let mode_of = |name: &str| {
        let bits = if name.contains("router") { 8 } else { 4 };
        Quantization::affine(32, bits).unwrap()
    };
    check("gemma4_26b", mode_of, 30);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let golden = Golden::read("gemma4_e2b", "text").unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let thread = MlxThread::claim().unwrap();
    let mode = Quantization::affine(32, 4).unwrap();
    let (packed, _, _) = quantised(&read(folder.path()), |_| mode);
    let path = "model.language_model.layers.0.mlp.gate_proj";
    let refused = |change: &dyn Fn(&mut Vec<StoredTensor>)| {
        let mut tensors = packed.clone();
        change(&mut tensors);
        write(folder.path(), &tensors);
        logits(folder.path(), &golden, &thread).unwrap_err()
    };
    let find = |tensors: &mut Vec<StoredTensor>, part: &str| {
        let name = format!("{path}.{part}");
        tensors
            .iter()
            .position(|tensor| tensor.name == name)
            .unwrap()
    };
    let error = refused(&|tensors| {
        let index = find(tensors, "biases");
        tensors.remove(index);
    });
    assert!(
        matches!(&error, Error::Quantized { path: found, .. } if found == path),
        "{error}"
    );
    let error = refused(&|tensors| {
        let index = find(tensors, "scales");
        tensors[index].shape.reverse();
    });
    assert!(
        matches!(&error, Error::Quantized { path: found, .. } if found == path),
        "{error}"
    );
    let error = refused(&|tensors| {
        let index = find(tensors, "weight");
        tensors.remove(index);
    });
    assert!(
        matches!(&error, Error::MissingTensors { names } if names.len() == 1),
        "{error}"
    );
}
