//! Qwen checkpoints that do not fit: each is an error that names what is wrong.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::path::Path;

use prefill_engine::{
    Checkpoint, Conversation, Error, MediaKind, MlxThread, Model, Preparer, TemplateOptions,
    WorkingType,
};
use prefill_test_support::{Checkpoint as Tiny, StoredTensor, reference_dir};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

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

/// With one setting changed, added, or taken away by null.
fn patched(model: &str, pointer: &str, value: &Value) -> Error {
    let folder = Tiny::named(model).unwrap().build().unwrap();
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match config.pointer_mut(parent).unwrap() {
        Value::Array(entries) => entries[key.parse::<usize>().unwrap()] = value.clone(),
        object if value.is_null() => {
            object.as_object_mut().unwrap().remove(key).unwrap();
        }
        object => object[key] = value.clone(),
    }
    fs::write(&path, config.to_string()).unwrap();
    refusal(folder.path())
}

/// With tensors changed.
fn with_tensors(model: &str, change: impl FnOnce(&mut Vec<StoredTensor>)) -> Error {
    let folder = Tiny::named(model).unwrap().build().unwrap();
    let path = folder.path().join("model.safetensors");
    let mut tensors = StoredTensor::read_file(&path).unwrap();
    change(&mut tensors);
    StoredTensor::write_file(&tensors, &path).unwrap();
    refusal(folder.path())
}

fn find<'t>(tensors: &'t mut [StoredTensor], name: &str) -> &'t mut StoredTensor {
    tensors
        .iter_mut()
        .find(|tensor| tensor.name == name)
        .unwrap()
}

/// Model, setting, its value (null takes it away), and what the error must name.
type Setting<'s> = (&'s str, &'s str, Value, &'s str);

fn check_settings(settings: &[Setting<'_>]) {
    for (model, pointer, value, named) in settings {
        let error = patched(model, pointer, value).to_string();
        assert!(
            error.contains("config.json") && error.contains(named),
            "{model} {pointer}: {error}"
        );
    }
}

#[test]
fn settings_of_the_text_that_are_not_served_are_named() {
    check_settings(&[
        ("qwen3_vl", "/model_type", json!("qwen9"), "qwen9"),
        ("qwen3_vl", "/text_config/hidden_act", json!("relu"), "relu"),
        (
            "qwen3_vl",
            "/text_config/attention_bias",
            json!(true),
            "attention_bias",
        ),
        ("qwen3_vl", "/text_config/head_dim", json!(0), "head_dim"),
        ("qwen3_vl", "/text_config/head_dim", Value::Null, "head_dim"),
        (
            "qwen3_vl",
            "/text_config/vocab_size",
            json!(1 << 24),
            "vocab_size",
        ),
        (
            "qwen3_vl",
            "/text_config/num_key_value_heads",
            json!(3),
            "num_key_value_heads",
        ),
        (
            "qwen3_vl",
            "/text_config/num_hidden_layers",
            json!(4_000_000_000u64),
            "num_hidden_layers",
        ),
        ("qwen3_vl", "/text_config/rope_theta", json!(-1.0), "base"),
        (
            "qwen3_vl",
            "/text_config/rope_theta",
            Value::Null,
            "rope_theta",
        ),
        (
            "qwen3_vl",
            "/text_config/rope_scaling/rope_type",
            json!("yarn"),
            "yarn",
        ),
        (
            "qwen3_vl",
            "/text_config/rope_scaling/factor",
            json!(4.0),
            "factor",
        ),
        (
            "qwen3_vl",
            "/text_config/rope_scaling/mrope_section",
            json!([6, 5, 6]),
            "mrope_section",
        ),
        (
            "qwen3_vl",
            "/text_config/rope_scaling/mrope_section",
            json!([26, -5, -5]),
            "mrope_section",
        ),
        (
            "qwen3_vl",
            "/text_config/rope_scaling/mrope_interleaved",
            json!(false),
            "interleaved",
        ),
        (
            "qwen3_vl",
            "/quantization_config",
            json!({"quant_method": "fp8"}),
            "fp8",
        ),
    ]);
}

#[test]
fn settings_of_the_tower_that_are_not_served_are_named() {
    check_settings(&[
        (
            "qwen3_vl",
            "/vision_config/hidden_act",
            json!("silu"),
            "silu",
        ),
        (
            "qwen3_vl",
            "/vision_config/num_heads",
            json!(5),
            "num_heads",
        ),
        (
            "qwen3_vl",
            "/vision_config/num_heads",
            json!(24),
            "num_heads",
        ),
        (
            "qwen3_vl",
            "/vision_config/in_channels",
            json!(4),
            "in_channels",
        ),
        (
            "qwen3_vl",
            "/vision_config/out_hidden_size",
            json!(48),
            "out_hidden_size",
        ),
        (
            "qwen3_vl",
            "/vision_config/num_position_embeddings",
            json!(65),
            "square",
        ),
        (
            "qwen3_vl",
            "/vision_config/spatial_merge_size",
            json!(0),
            "spatial_merge_size",
        ),
        (
            "qwen3_vl",
            "/vision_config/deepstack_visual_indexes",
            json!([0, 4]),
            "deepstack",
        ),
        (
            "qwen3_vl",
            "/vision_config/deepstack_visual_indexes",
            json!([2, 0]),
            "deepstack",
        ),
        ("qwen3_vl", "/vision_config/depth", json!(0), "depth"),
        (
            "qwen3_5",
            "/vision_config/deepstack_visual_indexes",
            json!([1]),
            "deepstack",
        ),
    ]);
}

#[test]
fn settings_of_experts_and_linear_layers_that_are_not_served_are_named() {
    check_settings(&[
        (
            "qwen3_vl_moe",
            "/text_config/num_experts_per_tok",
            json!(9),
            "num_experts_per_tok",
        ),
        (
            "qwen3_vl_moe",
            "/text_config/moe_intermediate_size",
            Value::Null,
            "moe_intermediate_size",
        ),
        (
            "qwen3_vl_moe",
            "/text_config/decoder_sparse_step",
            json!(0),
            "decoder_sparse_step",
        ),
        (
            "qwen3_5",
            "/text_config/layer_types/0",
            json!("sliding_attention"),
            "sliding_attention",
        ),
        (
            "qwen3_5",
            "/text_config/num_hidden_layers",
            json!(5),
            "layer_types",
        ),
        (
            "qwen3_5",
            "/text_config/linear_num_value_heads",
            json!(3),
            "linear_num_key_heads",
        ),
        (
            "qwen3_5",
            "/text_config/linear_num_value_heads",
            Value::Null,
            "linear_num_value_heads",
        ),
        (
            "qwen3_5",
            "/text_config/linear_conv_kernel_dim",
            json!(1),
            "linear_conv_kernel_dim",
        ),
        (
            "qwen3_5",
            "/text_config/linear_key_head_dim",
            json!(4_000_000_000u64),
            "config.json",
        ),
        (
            "qwen3_5",
            "/text_config/attn_output_gate",
            json!(false),
            "attn_output_gate",
        ),
        (
            "qwen3_5",
            "/text_config/rope_parameters/partial_rotary_factor",
            json!(0.0),
            "partial_rotary_factor",
        ),
        (
            "qwen3_5_moe",
            "/text_config/shared_expert_intermediate_size",
            Value::Null,
            "shared_expert",
        ),
        ("qwen3", "/use_sliding_window", json!(true), "sliding"),
    ]);
    let only_linear = json!(vec!["linear_attention"; 6]);
    check_settings(&[(
        "qwen3_5",
        "/text_config/layer_types",
        only_linear,
        "layer_types",
    )]);
}

#[test]
fn missing_and_unexpected_tensors_are_listed() {
    for (model, name) in [
        ("qwen3_vl", "model.visual.deepstack_merger_list.2.norm.bias"),
        (
            "qwen3_vl_moe",
            "model.language_model.layers.3.mlp.experts.down_proj",
        ),
        ("qwen3_5", "model.language_model.layers.1.linear_attn.A_log"),
        (
            "qwen3_5",
            "model.language_model.layers.0.linear_attn.conv1d.weight",
        ),
        ("qwen3_5", "lm_head.weight"),
        (
            "qwen3_5_moe",
            "model.language_model.layers.2.mlp.shared_expert_gate.weight",
        ),
    ] {
        let error = with_tensors(model, |tensors| {
            let before = tensors.len();
            tensors.retain(|tensor| tensor.name != name);
            assert_eq!(tensors.len(), before - 1);
        });
        let Error::MissingTensors { names } = error else {
            panic!("{error}");
        };
        let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
        assert_eq!(names.len(), 1);
        assert!(names[0].ends_with(last), "{names:?}");
    }
    let error = with_tensors("qwen3_5", |tensors| {
        let mut other = find(tensors, "model.language_model.norm.weight").clone();
        "model.language_model.layers.0.self_attn.k_norm.weight".clone_into(&mut other.name);
        tensors.push(other);
    });
    let Error::UnexpectedTensors { names } = error else {
        panic!("{error}");
    };
    assert_eq!(
        names,
        ["model.language_model.layers.0.self_attn.k_norm.weight"]
    );
}

#[test]
fn tensors_of_another_shape_or_type_are_named() {
    for (model, name) in [
        ("qwen3_vl", "model.visual.patch_embed.proj.weight"),
        (
            "qwen3_vl_moe",
            "model.language_model.layers.0.mlp.experts.gate_up_proj",
        ),
        (
            "qwen3_5",
            "model.language_model.layers.0.linear_attn.conv1d.weight",
        ),
        (
            "qwen3_5_moe",
            "model.language_model.layers.0.mlp.experts.gate_up_proj",
        ),
    ] {
        let error = with_tensors(model, |tensors| find(tensors, name).shape.reverse());
        assert!(
            matches!(&error, Error::TensorShape { name: found, .. } if found == name),
            "{error}"
        );
        let error = with_tensors(model, |tensors| find(tensors, name).dtype = Dtype::I32);
        assert!(
            matches!(&error, Error::TensorType { name: found, .. } if found == name),
            "{error}"
        );
    }
}

/// The experts of one family's files, laid out as the other's.
#[test]
fn experts_of_the_other_layout_are_refused() {
    let name = "model.language_model.layers.0.mlp.experts.gate_up_proj";
    for model in ["qwen3_vl_moe", "qwen3_5_moe"] {
        let error = with_tensors(model, |tensors| find(tensors, name).shape.swap(1, 2));
        assert!(matches!(&error, Error::TensorShape { .. }), "{error}");
    }
}

#[test]
fn each_file_that_is_missing_or_broken_is_named() {
    for name in ["config.json", "tokenizer.json", "preprocessor_config.json"] {
        let folder = Tiny::named("qwen3_5").unwrap().build().unwrap();
        fs::remove_file(folder.path().join(name)).unwrap();
        let error = refusal(folder.path()).to_string();
        assert!(error.contains(name), "without {name}: {error}");
        fs::write(folder.path().join(name), "{\"cut off").unwrap();
        let error = refusal(folder.path()).to_string();
        assert!(error.contains(name), "with a broken {name}: {error}");
    }
}

#[test]
fn a_truncated_file_is_refused_at_any_length() {
    let folder = Tiny::named("qwen3_5").unwrap().build().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for length in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = refusal(folder.path());
        assert!(matches!(error, Error::BadFile { .. }), "{length}: {error}");
    }
}

/// Kinds of media that a checkpoint does not take are refused before they are read.
#[test]
fn media_without_a_tower_are_refused() {
    let photo = reference_dir().join("media/photo.png");
    for (model, kind) in [
        ("qwen3_vl", MediaKind::Audio),
        ("qwen3", MediaKind::Image),
        ("qwen3", MediaKind::Video),
    ] {
        let folder = Tiny::named(model).unwrap().build().unwrap();
        let preparer = Preparer::open(&Checkpoint::open(folder.path()).unwrap()).unwrap();
        let question = Conversation::user("What is here?", [(kind, photo.clone().into())]);
        let error = preparer.prepare(&question, &TemplateOptions::default());
        let error = error.unwrap_err();
        assert!(
            matches!(error, Error::NoTower { kind: found } if found == kind),
            "{error}"
        );
    }
}
