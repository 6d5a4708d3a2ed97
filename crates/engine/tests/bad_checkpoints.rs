//! Checkpoints that do not fit: each is an error that names what is wrong.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::path::Path;

use prefill_engine::{Checkpoint, Error, MlxThread, Model, Preparer, WorkingType};
use prefill_test_support::{Checkpoint as Tiny, StoredTensor};
use serde_json::{Value, json};

fn tiny() -> Tiny {
    Tiny::named("gemma4_e2b").unwrap()
}

/// What opening or loading the folder says.
fn refusal(folder: &Path) -> Error {
    fn load(folder: &Path) -> Result<(), Error> {
        let checkpoint = Checkpoint::open(folder)?;
        Preparer::open(&checkpoint)?;
        let thread = MlxThread::claim()?;
        Model::load(&thread, &checkpoint, WorkingType::AsStored, &mut |_| {})?;
        Ok(())
    }
    load(folder).unwrap_err()
}

/// With one setting changed, or added where there was none.
fn patched(pointer: &str, value: Value) -> Error {
    let folder = tiny().build().unwrap();
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match config.pointer_mut(parent).unwrap() {
        Value::Array(entries) => entries[key.parse::<usize>().unwrap()] = value,
        object => object[key] = value,
    }
    fs::write(&path, config.to_string()).unwrap();
    refusal(folder.path())
}

/// The checkpoint's only safetensors file, its header changed.
fn with_header(change: impl Fn(&mut serde_json::Map<String, Value>)) -> Error {
    let folder = tiny().build().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Map<String, Value> =
        serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    change(&mut header);
    let header = serde_json::to_vec(&header).unwrap();
    let mut changed = (header.len() as u64).to_le_bytes().to_vec();
    changed.extend(header);
    changed.extend(&bytes[8 + length..]);
    fs::write(&path, changed).unwrap();
    refusal(folder.path())
}

#[test]
fn each_file_that_is_missing_is_named() {
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
        "processor_config.json",
    ] {
        let folder = tiny().build().unwrap();
        fs::remove_file(folder.path().join(name)).unwrap();
        let error = refusal(folder.path()).to_string();
        // Any file of a pattern will do for the weights.
        let named = name.strip_prefix("model").unwrap_or(name);
        assert!(error.contains(named), "without {name}: {error}");
    }
}

#[test]
fn each_file_that_is_broken_is_named() {
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "processor_config.json",
        "model.safetensors",
    ] {
        let folder = tiny().build().unwrap();
        fs::write(folder.path().join(name), "{\"cut off").unwrap();
        let error = refusal(folder.path()).to_string();
        assert!(error.contains(name), "with a broken {name}: {error}");
    }
}

#[test]
fn a_truncated_file_is_refused_at_any_length() {
    let folder = tiny().build().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for length in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = refusal(folder.path());
        assert!(matches!(error, Error::BadFile { .. }), "{length}: {error}");
        assert!(error.to_string().contains("model.safetensors"));
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = tiny().shards(2).build().unwrap();
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    let error = refusal(folder.path()).to_string();
    assert!(
        error.contains("model-00002-of-00002.safetensors"),
        "{error}"
    );
}

#[test]
fn an_index_that_lies_is_refused() {
    let folder = tiny().shards(2).build().unwrap();
    let path = folder.path().join("model.safetensors.index.json");
    let index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut outside = index.clone();
    outside["weight_map"]["x"] = json!("../other.safetensors");
    fs::write(&path, outside.to_string()).unwrap();
    assert!(
        refusal(folder.path())
            .to_string()
            .contains("../other.safetensors")
    );
    let mut absent = index;
    absent["weight_map"]["no.such.tensor"] = json!("model-00001-of-00002.safetensors");
    fs::write(&path, absent.to_string()).unwrap();
    assert!(
        refusal(folder.path())
            .to_string()
            .contains("no.such.tensor")
    );
}

#[test]
fn every_missing_tensor_is_listed() {
    let names = [
        "model.language_model.layers.0.self_attn.q_proj.weight",
        "model.vision_tower.encoder.layers.1.mlp.up_proj.input_max",
    ];
    let error = with_header(|header| {
        for name in names {
            header.remove(name).unwrap();
        }
    });
    let Error::MissingTensors { names: missing } = error else {
        panic!("{error}");
    };
    assert_eq!(missing.len(), names.len());
    for (found, name) in missing.iter().zip(names) {
        assert!(name.ends_with(found.as_str()), "{found} for {name}");
    }
}

#[test]
fn unexpected_tensors_are_listed() {
    let error = with_header(|header| {
        let entry = header["model.language_model.norm.weight"].clone();
        header.insert("model.language_model.layers.0.mystery".to_owned(), entry);
    });
    let Error::UnexpectedTensors { names } = error else {
        panic!("{error}");
    };
    assert_eq!(names, ["model.language_model.layers.0.mystery"]);
}

#[test]
fn a_tensor_of_another_shape_or_type_is_named() {
    let name = "model.language_model.norm.weight";
    let error = with_header(|header| {
        let size = header[name]["shape"][0].as_u64().unwrap();
        header[name]["shape"] = json!([1, size]);
    });
    assert!(
        matches!(&error, Error::TensorShape { name: found, .. } if found == name),
        "{error}"
    );
    let error = with_header(|header| header[name]["dtype"] = json!("I32"));
    assert!(
        matches!(&error, Error::TensorType { name: found, .. } if found == name),
        "{error}"
    );
}

#[test]
fn settings_that_are_not_served_are_named() {
    for (pointer, value, named) in [
        ("/model_type", json!("mystery"), "mystery"),
        ("/text_config/hidden_activation", json!("relu"), "relu"),
        ("/tie_word_embeddings", json!(false), "tie_word_embeddings"),
        (
            "/text_config/pad_token_id",
            json!(1_000_000_000),
            "pad_token_id",
        ),
        (
            "/text_config/num_attention_heads",
            json!(65_536),
            "num_attention_heads",
        ),
        (
            "/vision_config/num_hidden_layers",
            json!(4_000_000_000u64),
            "num_hidden_layers",
        ),
        (
            "/text_config/rope_parameters/sliding_attention/factor",
            json!(8.0),
            "factor",
        ),
        (
            "/text_config/rope_parameters/full_attention/beta_fast",
            json!(32),
            "beta_fast",
        ),
        ("/text_config/head_dim", json!(0), "head_dim"),
        ("/text_config/head_dim", json!(-8), "head_dim"),
        ("/text_config/head_dim", json!(7), "head_dim"),
        ("/text_config/hidden_size", json!(1 << 30), "hidden_size"),
        (
            "/text_config/num_key_value_heads",
            json!(3),
            "num_key_value_heads",
        ),
        ("/text_config/num_hidden_layers", json!(3), "layer_types"),
        (
            "/text_config/num_kv_shared_layers",
            json!(6),
            "num_kv_shared_layers",
        ),
        ("/text_config/enable_moe_block", json!(true), "num_experts"),
        ("/text_config/attention_bias", json!(true), "attention_bias"),
        (
            "/text_config/use_bidirectional_attention",
            json!("all"),
            "all",
        ),
        (
            "/text_config/layer_types/0",
            json!("linear_attention"),
            "linear_attention",
        ),
        (
            "/text_config/rope_parameters/full_attention/rope_type",
            json!("yarn"),
            "yarn",
        ),
        ("/vision_config/model_type", json!("mystery"), "mystery"),
        ("/vision_config/head_dim", json!(6), "head_dim"),
        (
            "/quantization_config",
            json!({"quant_method": "gptq", "bits": 4}),
            "gptq",
        ),
    ] {
        let error = patched(pointer, value).to_string();
        assert!(
            error.contains("config.json") && error.contains(named),
            "{pointer}: {error}"
        );
    }
}

#[test]
fn values_that_are_no_numbers_are_named() {
    for end in [
        "layers.0.mlp.up_proj.weight",
        "vision_tower.patch_embedder.position_embedding_table",
        "audio_tower.output_proj.bias",
    ] {
        let folder = tiny().build().unwrap();
        let path = folder.path().join("model.safetensors");
        let mut tensors = StoredTensor::read_file(&path).unwrap();
        let tensor = tensors.iter_mut().find(|tensor| tensor.name.ends_with(end));
        let tensor = tensor.unwrap();
        let last = tensor.bytes.len() - 4;
        tensor.bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        let name = tensor.name.clone();
        StoredTensor::write_file(&tensors, &path).unwrap();
        let error = refusal(folder.path());
        assert!(
            matches!(&error, Error::NotANumber { name: found } if *found == name),
            "{error}"
        );
    }
}
