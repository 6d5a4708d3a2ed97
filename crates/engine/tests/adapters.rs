//! Low-rank adapters: the same logits as weights into which they were merged.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use prefill_engine::{
    Checkpoint, Conversation, Error, MlxThread, Model, Preparer, TemplateOptions, WorkingType,
};
use prefill_test_support::{Golden, StoredTensor};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

const RANK: usize = 4;
const SCALE: f32 = 2.5;

fn tensor(name: String, shape: [usize; 2], values: &[f32]) -> StoredTensor {
    StoredTensor {
        name,
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

fn floats(tensor: &StoredTensor) -> Vec<f32> {
    let values = tensor.bytes.chunks(4);
    values
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

fn noise(seed: u64, count: usize) -> Vec<f32> {
    prefill_test_support::weights::generate(seed, "adapter", 0.0, 0.2)
        .take(count)
        .collect()
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| values[row * columns + column]))
        .collect()
}

/// Adapters of both layouts for some linear layers of the folder's checkpoint, of the text and
/// of the vision tower, and merges them into the checkpoint itself.
fn adapt(folder: &Path) -> (TempDir, TempDir) {
    let weights = folder.join("model.safetensors");
    let mut tensors = StoredTensor::read_file(&weights).unwrap();
    let (mut mlx, mut peft) = (Vec::new(), Vec::new());
    let chosen = [
        "layers.0.self_attn.q_proj.weight",
        "layers.1.mlp.down_proj.weight",
        "layers.3.self_attn.o_proj.weight",
        "layers.0.mlp.gate_proj.linear.weight",
    ];
    for (index, stored) in tensors.iter_mut().enumerate() {
        if !chosen.iter().any(|end| stored.name.ends_with(end)) {
            continue;
        }
        let module = stored.name.strip_suffix(".weight").unwrap().to_owned();
        let [out, input] = stored.shape[..] else {
            panic!("{} is no matrix", stored.name);
        };
        let a = noise(2 * index as u64, input * RANK);
        let b = noise(2 * index as u64 + 1, RANK * out);
        let mut merged = floats(stored);
        for row in 0..out {
            for column in 0..input {
                let change: f32 = (0..RANK)
                    .map(|rank| a[column * RANK + rank] * b[rank * out + row])
                    .sum();
                merged[row * input + column] += SCALE * change;
            }
        }
        // mlx-lm names modules as MLX does.
        let mlx_module = module
            .replace("model.language_model.", "language_model.model.")
            .replace("model.vision_tower.", "vision_tower.");
        mlx.push(tensor(format!("{mlx_module}.lora_a"), [input, RANK], &a));
        mlx.push(tensor(format!("{mlx_module}.lora_b"), [RANK, out], &b));
        let peft_module = format!("base_model.model.{module}");
        let (a, b) = (transposed(&a, input, RANK), transposed(&b, RANK, out));
        peft.push(tensor(
            format!("{peft_module}.lora_A.weight"),
            [RANK, input],
            &a,
        ));
        peft.push(tensor(
            format!("{peft_module}.lora_B.weight"),
            [out, RANK],
            &b,
        ));
        *stored = tensor(stored.name.clone(), [out, input], &merged);
    }
    assert_eq!(mlx.len(), 2 * chosen.len());
    StoredTensor::write_file(&tensors, &weights).unwrap();
    let folder = |file: &str, tensors: &[StoredTensor], config: Value| {
        let folder = tempfile::tempdir().unwrap();
        StoredTensor::write_file(tensors, &folder.path().join(file)).unwrap();
        fs::write(
            folder.path().join("adapter_config.json"),
            config.to_string(),
        )
        .unwrap();
        folder
    };
    (
        folder(
            "adapters.safetensors",
            &mlx,
            json!({"fine_tune_type": "lora", "num_layers": 4,
                   "lora_parameters": {"rank": RANK, "scale": SCALE, "dropout": 0.0}}),
        ),
        folder(
            "adapter_model.safetensors",
            &peft,
            json!({"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK as f32,
                   "bias": "none", "target_modules": ["q_proj"]}),
        ),
    )
}

fn logits(thread: &MlxThread, checkpoint: &Checkpoint, golden: &Golden) -> Vec<f32> {
    let model = Model::load(thread, checkpoint, WorkingType::AsStored, &mut |_| {}).unwrap();
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    let prepared = Preparer::open(checkpoint)
        .unwrap()
        .prepare(&conversation, &TemplateOptions::default())
        .unwrap();
    let mut sequence = model
        .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut logits = sequence.logits().unwrap();
    sequence.feed(golden.greedy_ids()[0]).unwrap();
    logits.extend(sequence.logits().unwrap());
    logits
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn an_adapter_is_what_merging_it_gives() {
    let thread = MlxThread::claim().unwrap();
    let golden = Golden::read("gemma4_e2b", "image_png").unwrap();
    let base = golden.checkpoint().unwrap().build().unwrap();
    let merged = golden.checkpoint().unwrap().build().unwrap();
    let (mlx, peft) = adapt(merged.path());
    let open = |folder: &TempDir| Checkpoint::open(folder.path()).unwrap();
    let plain = logits(&thread, &open(&base), &golden);
    let expected = logits(&thread, &open(&merged), &golden);
    assert!(
        largest_difference(&plain, &expected) > 0.5,
        "it changes something"
    );
    for adapter in [&mlx, &peft] {
        let adapted = open(&base).with_adapter(adapter.path()).unwrap();
        let found = logits(&thread, &adapted, &golden);
        let difference = largest_difference(&found, &expected);
        assert!(difference < 3e-4, "{difference}");
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let thread = MlxThread::claim().unwrap();
    let golden = Golden::read("gemma4_e2b", "text").unwrap();
    let base = golden.checkpoint().unwrap().build().unwrap();
    let merged = golden.checkpoint().unwrap().build().unwrap();
    let (mlx, peft) = adapt(merged.path());
    let refusal = |adapter: &TempDir| -> Error {
        let opened = Checkpoint::open(base.path()).unwrap();
        match opened.with_adapter(adapter.path()) {
            Err(error) => error,
            Ok(checkpoint) => {
                Model::load(&thread, &checkpoint, WorkingType::AsStored, &mut |_| {}).unwrap_err()
            }
        }
    };
    let file = mlx.path().join("adapters.safetensors");
    let good = StoredTensor::read_file(&file).unwrap();
    let rename = |from: &str, to: &str| {
        let renamed: Vec<_> = good
            .iter()
            .cloned()
            .map(|mut tensor| {
                tensor.name = tensor.name.replace(from, to);
                tensor
            })
            .collect();
        StoredTensor::write_file(&renamed, &file).unwrap();
        refusal(&mlx)
    };
    // A module that the model does not have, and one of other sizes.
    let error = rename("layers.3.", "layers.33.");
    assert!(
        matches!(&error, Error::UnexpectedTensors { names } if names.len() == 1),
        "{error}"
    );
    let error = rename("mlp.down_proj", "mlp.up_proj");
    assert!(matches!(error, Error::TensorShape { .. }), "{error}");
    let error = rename(".lora_b", ".lora_c");
    assert!(matches!(error, Error::BadFile { .. }), "{error}");
    let mut halves = good.clone();
    halves.pop();
    StoredTensor::write_file(&halves, &file).unwrap();
    let error = refusal(&mlx);
    assert!(
        error.to_string().contains("only one of its two matrices"),
        "{error}"
    );

    let config = peft.path().join("adapter_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    settings["use_dora"] = json!(true);
    fs::write(&config, settings.to_string()).unwrap();
    let error = refusal(&peft);
    assert!(error.to_string().contains("only plain LoRA"), "{error}");
    fs::remove_file(config).unwrap();
    assert!(matches!(refusal(&peft), Error::File { .. }));
}
