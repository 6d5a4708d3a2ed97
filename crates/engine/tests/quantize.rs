//! Quantised checkpoints that the engine makes: it reads them, they answer right, and the
//! files are as MLX's tools write them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use mlx_rs::Array;
use mlx_sys_ext::{Quantization, Quantized, dequantize};
use prefill_engine::{
    Checkpoint, Conversation, Error, MlxThread, Model, Preparer, QuantizationMode, QuantizeOptions,
    TemplateOptions, WorkingType, quantize_checkpoint,
};
use prefill_test_support::{Golden, StoredTensor, assets_dir};
use safetensors::tensor::Dtype;
use serde_json::Value;

fn logits(thread: &MlxThread, folder: &Path, golden: &Golden) -> Vec<f32> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let model = Model::load(thread, &checkpoint, WorkingType::AsStored, &mut |_| {}).unwrap();
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    let prepared = Preparer::open(&checkpoint)
        .unwrap()
        .prepare(&conversation, &TemplateOptions::default())
        .unwrap();
    let sequence = model.prefill(&prepared, &mut |_| ControlFlow::Continue(()));
    sequence.unwrap().logits().unwrap()
}

fn config(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// The matrices `[..., out, in]` that MLX makes of a stored tensor.
fn matrices(tensor: StoredTensor, is_turned: bool) -> Vec<StoredTensor> {
    if !is_turned || !tensor.name.contains(".experts.") {
        return tensor.split_experts();
    }
    let [experts, rows, columns] = tensor.shape[..] else {
        panic!("{} is no stack", tensor.name);
    };
    let size = 4 * rows * columns;
    let bytes = (0..experts)
        .flat_map(|expert| {
            let matrix = &tensor.bytes[expert * size..(expert + 1) * size];
            let at = move |row: usize, column: usize| 4 * (row * columns + column);
            (0..columns).flat_map(move |column| {
                (0..rows).flat_map(move |row| matrix[at(row, column)..][..4].to_vec())
            })
        })
        .collect();
    let turned = StoredTensor {
        shape: vec![experts, columns, rows],
        bytes,
        ..tensor
    };
    let parts = turned.split_experts().into_iter();
    parts
        .map(|mut part| {
            part.name = part.name.replace("experts.switch_glu", "switch_mlp");
            part
        })
        .collect()
}

/// Every quantised matrix stands for its original, to a step of its scale (MLX moves the
/// steps so that zero is one of them); the others
/// are copied.
#[test]
fn every_matrix_is_near_its_original_in_every_family() {
    let thread = MlxThread::claim().unwrap();
    let affine = QuantizationMode::affine(32, 8).unwrap();
    let options = QuantizeOptions::new(affine).with("*", Some(affine));
    for model in [
        "gemma4_e2b",
        "gemma4_26b",
        "gemma4_unified",
        "gemma3_text",
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
    ] {
        let golden = Golden::read(model, "longtext").unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let output = tempfile::tempdir().unwrap();
        let mut seen = (0, 0);
        let report = quantize_checkpoint(&thread, &checkpoint, output.path(), &options, &mut |p| {
            seen = (p.done, p.total);
        })
        .unwrap();
        assert_eq!(seen.0, seen.1);
        assert!(
            report.bytes_after < report.bytes_before,
            "{model}: {report:?}"
        );
        let written = StoredTensor::read_file(&output.path().join("model.safetensors")).unwrap();
        let array = |name: &str| {
            let tensor = written.iter().find(|tensor| tensor.name == name)?;
            let shape: Vec<i32> = tensor.shape.iter().map(|&extent| extent as i32).collect();
            let words = tensor.bytes.chunks(4).map(|word| word.try_into().unwrap());
            Some(if tensor.dtype == Dtype::U32 {
                let words: Vec<u32> = words.map(u32::from_le_bytes).collect();
                Array::from_slice(&words, &shape)
            } else {
                let words: Vec<f32> = words.map(f32::from_le_bytes).collect();
                Array::from_slice(&words, &shape)
            })
        };
        let originals = StoredTensor::read_file(&folder.path().join("model.safetensors")).unwrap();
        let mut quantised = 0;
        for original in originals
            .into_iter()
            .flat_map(|tensor| matrices(tensor, model == "qwen3_vl_moe"))
        {
            let module = original.name.trim_end_matches(".weight").to_owned();
            let Some(scales) = array(&format!("{module}.scales")) else {
                assert!(written.contains(&original), "{model}: {}", original.name);
                continue;
            };
            quantised += 1;
            let largest: f32 = scales.abs().unwrap().max(false).unwrap().item_exact();
            let tensors = Quantized {
                weight: array(&original.name).unwrap(),
                scales,
                biases: array(&format!("{module}.biases")),
            };
            let mode = Quantization::affine(32, 8).unwrap();
            let found = dequantize(&tensors, mode, Some(mlx_rs::Dtype::Float32)).unwrap();
            let values = found.to_vec_exact::<f32>().unwrap();
            assert_eq!(
                values.len() * 4,
                original.bytes.len(),
                "{model}: {}",
                original.name
            );
            for (value, bytes) in values.iter().zip(original.bytes.chunks(4)) {
                let expected = f32::from_le_bytes(bytes.try_into().unwrap());
                assert!(
                    (value - expected).abs() <= 1.01 * largest,
                    "{model}: {}: {value} for {expected}",
                    original.name
                );
            }
        }
        assert_eq!(quantised, report.quantised);
        assert!(quantised > 20, "{model}: {quantised}");
        // And the engine takes it.
        assert!(
            logits(&thread, output.path(), &golden)
                .iter()
                .all(|value| value.is_finite())
        );
        let config = config(output.path());
        assert_eq!(config["quantization"]["bits"], 8);
        assert_eq!(config["quantization"], config["quantization_config"]);
    }
}

#[test]
fn modules_can_have_modes_of_their_own() {
    let thread = MlxThread::claim().unwrap();
    let checkpoint = Checkpoint::open(assets_dir().join("demo-model")).unwrap();
    let output = tempfile::tempdir().unwrap();
    let options = QuantizeOptions::new(QuantizationMode::affine(32, 4).unwrap())
        .with("*.layers.0.*", Some(QuantizationMode::mxfp8()))
        .with("*.layers.1.*", None);
    let report =
        quantize_checkpoint(&thread, &checkpoint, output.path(), &options, &mut |_| {}).unwrap();
    assert!(report.left > 0);
    let tensors = StoredTensor::read_file(&output.path().join("model.safetensors")).unwrap();
    let of = |end: &str| tensors.iter().find(|tensor| tensor.name.ends_with(end));
    let scales = of("language_model.layers.0.mlp.up_proj.scales").unwrap();
    assert_eq!(scales.dtype, Dtype::U8);
    assert!(of("language_model.layers.0.mlp.up_proj.biases").is_none());
    assert!(of("language_model.layers.1.mlp.up_proj.scales").is_none());
    let scales = of("language_model.layers.2.mlp.up_proj.scales").unwrap();
    assert_eq!(scales.dtype, Dtype::BF16);
    let config = config(output.path());
    let path = "language_model.model.layers.0.mlp.up_proj";
    assert_eq!(config["quantization"][path]["mode"], "mxfp8");
    let model = Model::load(
        &thread,
        &Checkpoint::open(output.path()).unwrap(),
        WorkingType::AsStored,
        &mut |_| {},
    );
    model.unwrap();

    // It is neither quantised again nor overwritten.
    let again = tempfile::tempdir().unwrap();
    let quantised = Checkpoint::open(output.path()).unwrap();
    let refused = |checkpoint: &Checkpoint, output: &Path| {
        let done = quantize_checkpoint(&thread, checkpoint, output, &options, &mut |_| {});
        done.unwrap_err()
    };
    let error = refused(&quantised, again.path());
    assert!(
        error.to_string().contains("is quantised already"),
        "{error}"
    );
    let error = refused(&checkpoint, output.path());
    assert!(
        matches!(&error, Error::BadFile { fact, .. } if fact.contains("not empty")),
        "{error}"
    );
}

/// The bundled model in 4 bits still answers right.
#[test]
fn the_demo_in_four_bits_answers_the_golden_questions() {
    let thread = MlxThread::claim().unwrap();
    let checkpoint = Checkpoint::open(assets_dir().join("demo-model")).unwrap();
    let output = tempfile::tempdir().unwrap();
    let options = QuantizeOptions::new(QuantizationMode::affine(32, 4).unwrap());
    quantize_checkpoint(&thread, &checkpoint, output.path(), &options, &mut |_| {}).unwrap();
    let checkpoint = Checkpoint::open(output.path()).unwrap();
    let model = Model::load(&thread, &checkpoint, WorkingType::AsStored, &mut |_| {}).unwrap();
    let preparer = Preparer::open(&checkpoint).unwrap();
    for case in Golden::cases("demo").unwrap() {
        let golden = Golden::read("demo", &case).unwrap();
        let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
        let prepared = preparer
            .prepare(&conversation, &TemplateOptions::default())
            .unwrap();
        let mut sequence = model
            .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let steps = golden.greedy_ids().len();
        let mut decoder = sequence.greedy().unwrap();
        let ids: Vec<u32> = (1..=steps)
            .map(|step| decoder.step(step == steps).unwrap().id)
            .collect();
        assert_eq!(ids, golden.greedy_ids(), "{case}");
    }
}
