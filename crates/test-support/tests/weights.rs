//! The Rust generator gives the values that Python wrote, and checkpoints hold them.
#![allow(
    clippy::unwrap_used,
    reason = "a panic in a test's helper is the report"
)]

use std::collections::{BTreeMap, BTreeSet};

use half::bf16;
use prefill_test_support::{Checkpoint, DType, Error, ModelDescription, Patch, reference_dir};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MODEL: &str = "gemma4_e2b";

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .filter_map(|d| char::from_digit(d.into(), 16))
        .collect()
}

#[test]
fn values_equal_those_that_python_wrote() {
    for model in [
        "gemma4_e2b",
        "gemma4_26b",
        "gemma4_unified",
        "qwen3",
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
        "qwen3_5_moe",
    ] {
        check_values(model);
    }
}

fn check_values(model: &str) {
    let path = reference_dir()
        .join("goldens")
        .join(model)
        .join("weights.json");
    let golden: BTreeMap<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let model = ModelDescription::named(model).unwrap();
    assert_eq!(golden.len(), model.tensors().len());
    for tensor in model.tensors() {
        let values = tensor.values(model.seed());
        let expected = &golden[&tensor.name];
        let bits: Vec<_> = values.iter().take(3).map(|v| v.to_bits()).collect();
        assert_eq!(json!(bits), expected["first_bits"], "{}", tensor.name);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            hex(&Sha256::digest(&bytes)),
            expected["sha256"],
            "{}",
            tensor.name
        );
    }
}

#[test]
fn one_file_holds_every_tensor_exactly() {
    let model = ModelDescription::named(MODEL).unwrap();
    let folder = Checkpoint::new(model.clone()).build().unwrap();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), model.tensors().len());
    for tensor in model.tensors() {
        let view = file.tensor(&tensor.name).unwrap();
        let values = tensor.values(model.seed());
        let expected: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            (view.dtype(), view.shape()),
            (Dtype::F32, &tensor.shape[..])
        );
        assert_eq!(view.data(), expected, "{}", tensor.name);
    }
    assert!(!folder.path().join("tensors.json").exists());
}

#[test]
fn shards_in_bf16_are_complete_and_indexed() {
    let model = ModelDescription::named(MODEL).unwrap();
    let folder = Checkpoint::new(model.clone())
        .dtype(DType::Bf16)
        .shards(3)
        .build()
        .unwrap();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let index: Value = serde_json::from_slice(&read("model.safetensors.index.json")).unwrap();
    let map = index["weight_map"].as_object().unwrap();
    let files: BTreeSet<_> = map.values().map(|f| f.as_str().unwrap()).collect();
    assert_eq!((map.len(), files.len()), (model.tensors().len(), 3));
    let mut size = 0;
    for file in files {
        let bytes = read(file);
        let shard = SafeTensors::deserialize(&bytes).unwrap();
        for (name, view) in shard.iter() {
            assert_eq!(map[name], file);
            assert_eq!(view.dtype(), Dtype::BF16);
            size += view.data().len();
            let tensor = model.tensors().iter().find(|t| t.name == name).unwrap();
            let first = bf16::from_f32(tensor.values(model.seed())[0]);
            assert_eq!(view.data()[..2], first.to_le_bytes());
        }
    }
    assert_eq!(index["metadata"]["total_size"], size);
    let config: Value = serde_json::from_slice(&read("config.json")).unwrap();
    assert_eq!(config["dtype"], "bfloat16");
}

#[test]
fn text_only_and_pruned_leave_the_rest_out() {
    let checkpoint = Checkpoint::named(MODEL).unwrap().text_only().prune_unused();
    let folder = checkpoint.build().unwrap();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let names: Vec<_> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .names()
        .iter()
        .map(|n| (*n).to_owned())
        .collect();
    assert!(names.iter().all(|n| n.starts_with("model.language_model.")));
    assert!(
        names
            .iter()
            .any(|n| n.ends_with("layers.3.self_attn.k_proj.weight"))
    );
    assert!(
        names
            .iter()
            .any(|n| n.ends_with("layers.4.self_attn.q_proj.weight"))
    );
    assert!(
        !names
            .iter()
            .any(|n| n.ends_with("layers.4.self_attn.k_proj.weight"))
    );
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["vision_config"], Value::Null);
}

#[test]
fn patches_replace_one_value_or_fail() {
    let patch = |pointer: &str| Patch {
        file: "processor_config.json".to_owned(),
        pointer: pointer.to_owned(),
        value: json!(140),
    };
    let checkpoint = Checkpoint::named(MODEL).unwrap();
    let folder = checkpoint
        .clone()
        .patch(patch("/image_processor/max_soft_tokens"))
        .build()
        .unwrap();
    let text = std::fs::read_to_string(folder.path().join("processor_config.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["image_processor"]["max_soft_tokens"], 140);
    let error = checkpoint
        .patch(patch("/image_processor/none"))
        .build()
        .unwrap_err();
    assert!(matches!(error, Error::Pointer { .. }), "{error}");
}
