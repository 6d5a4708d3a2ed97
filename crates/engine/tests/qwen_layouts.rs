//! The Qwen models from every layout that their checkpoints come in: the same numbers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod parity_support;

use std::fs;
use std::path::Path;

use parity_support::stored::{experts, one_by_one, read, to_mlx, values, write};
use parity_support::{at, check_folder};
use prefill_test_support::{Golden, StoredTensor};
use serde_json::{Value, json};
use tempfile::TempDir;

const ALL: [&str; 4] = ["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"];

fn golden(model: &str, case: &str) -> (Golden, TempDir) {
    let golden = Golden::read(model, case).unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    (golden, folder)
}

fn edit_config(folder: &Path, edit: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut config);
    fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn shards() {
    for model in ALL {
        let golden = Golden::read(model, "image_png").unwrap();
        let folder = golden.checkpoint().unwrap().shards(3).build().unwrap();
        check_folder(folder.path(), &golden);
    }
}

/// mlx-vlm's names, kernels with channels last, norms as factors, experts in three stacks.
#[test]
fn mlx() {
    for model in ALL {
        let (golden, folder) = golden(model, "image_video");
        let tensors = read(folder.path());
        let count = tensors.len();
        let turned = to_mlx(tensors, model);
        assert!(turned.len() >= count);
        write(folder.path(), &turned);
        check_folder(folder.path(), &golden);
    }
}

#[test]
fn one_tensor_an_expert() {
    for model in ["qwen3_vl_moe", "qwen3_5_moe"] {
        let (golden, folder) = golden(model, "longtext");
        let apart: Vec<StoredTensor> = read(folder.path())
            .into_iter()
            .flat_map(|tensor| experts(tensor, model, one_by_one))
            .collect();
        let first = "model.language_model.layers.0.mlp.experts.7.up_proj.weight";
        assert!(apart.iter().any(|tensor| tensor.name == first));
        write(folder.path(), &apart);
        check_folder(folder.path(), &golden);
    }
}

/// Text without the tower, nested or flat, under the names of either.
#[test]
fn text_only() {
    for model in ALL {
        let golden = Golden::read(model, "longtext").unwrap();
        let folder = golden.checkpoint().unwrap().text_only().build().unwrap();
        check_folder(folder.path(), &golden);

        // The decoder's own configuration and names, as `Qwen3_5ForCausalLM` has them.
        edit_config(folder.path(), |config| {
            let mut text = at(config, "/text_config").clone();
            text["tie_word_embeddings"] = at(config, "/tie_word_embeddings").clone();
            *config = text;
        });
        let flat: Vec<StoredTensor> = read(folder.path())
            .into_iter()
            .map(|tensor| StoredTensor {
                name: tensor.name.replace("model.language_model.", "model."),
                ..tensor
            })
            .collect();
        write(folder.path(), &flat);
        check_folder(folder.path(), &golden);
    }
}

/// A tower that the configuration does not name is not read.
#[test]
fn towers_without_a_configuration_are_left() {
    let (golden, folder) = golden("qwen3_5", "text");
    edit_config(folder.path(), |config| {
        config["vision_config"] = Value::Null;
    });
    check_folder(folder.path(), &golden);
}

/// The draft head is dropped, and its kernels do not say how the norms are stored.
#[test]
fn draft_heads_are_dropped() {
    let (golden, folder) = golden("qwen3_5", "longtext");
    let plain = read(folder.path());
    for mlx in [false, true] {
        let mut tensors = plain.clone();
        if mlx {
            tensors = to_mlx(tensors, "qwen3_5");
        }
        for (like, name) in [
            ("mlp.gate_proj.weight", "mtp.layers.0.mlp.gate_proj.weight"),
            ("mlp.up_proj.weight", "model.mtp.fc.weight"),
        ] {
            let like = tensors.iter().find(|tensor| tensor.name.ends_with(like));
            let mut draft = like.unwrap().clone();
            name.clone_into(&mut draft.name);
            tensors.push(draft);
        }
        let kernel = plain
            .iter()
            .find(|tensor| tensor.name.ends_with("conv1d.weight"));
        let mut kernel = kernel.unwrap().clone();
        "mtp.layers.0.linear_attn.conv1d.weight".clone_into(&mut kernel.name);
        tensors.push(kernel);
        write(folder.path(), &tensors);
        check_folder(folder.path(), &golden);
    }
}

/// Rope as transformers 5 writes it, where 4.57 had `rope_scaling`; and types written twice.
#[test]
fn settings_in_both_forms() {
    let (golden, folder) = golden("qwen3_vl", "three_images");
    edit_config(folder.path(), |config| {
        let text = config["text_config"].as_object_mut().unwrap();
        let mut rope = text.remove("rope_scaling").unwrap();
        rope["rope_theta"] = text.remove("rope_theta").unwrap();
        rope["type"] = json!("default");
        text.insert("rope_parameters".to_owned(), rope);
    });
    check_folder(folder.path(), &golden);
    let (golden, folder) = self::golden("qwen3_5", "three_images");
    edit_config(folder.path(), |config| {
        let text = config["text_config"].as_object_mut().unwrap();
        text.remove("layer_types").unwrap();
    });
    check_folder(folder.path(), &golden);
}

/// A head of its own beside tied ones, and a tied one that is stored nevertheless.
#[test]
fn a_tied_head_is_the_embedding_whatever_else_is_stored() {
    let (golden, folder) = golden("qwen3_vl", "text");
    let mut tensors = read(folder.path());
    let embedding = tensors
        .iter()
        .find(|tensor| tensor.name.ends_with("embed_tokens.weight"));
    let mut head = embedding.unwrap().clone();
    "lm_head.weight".clone_into(&mut head.name);
    let doubled: Vec<u8> = values(&head)
        .iter()
        .flat_map(|value| (2.0 * value).to_le_bytes())
        .collect();
    head.bytes = doubled;
    tensors.push(head);
    write(folder.path(), &tensors);
    check_folder(folder.path(), &golden);
}

/// Some layers dense among those with experts (`mlp_only_layers`, `decoder_sparse_step`).
/// No second implementation loads such a file of this family, so the first layer's experts are
/// made all the same, and equal to a dense layer: whichever are chosen, their sum is it.
#[test]
fn dense_layers_among_sparse_ones() {
    let (golden, folder) = golden("qwen3_vl_moe", "longtext");
    let mut tensors = read(folder.path());
    let layer = "model.language_model.layers.1.mlp.";
    for tensor in &mut tensors {
        if tensor.name.starts_with(layer) && tensor.name.contains("experts.") {
            let one = tensor.bytes.len() / tensor.shape[0];
            tensor.bytes = tensor.bytes[..one].repeat(tensor.shape[0]);
        }
    }
    write(folder.path(), &tensors);
    let load = |folder: &Path| {
        let loaded = parity_support::load(folder, &golden, prefill_engine::WorkingType::AsStored);
        parity_support::logits(&loaded, &golden)
    };
    let sparse = load(folder.path());

    let dense: Vec<StoredTensor> = tensors
        .into_iter()
        .filter(|tensor| tensor.name != format!("{layer}gate.weight"))
        .flat_map(|tensor| {
            if !tensor.name.starts_with(layer) {
                return vec![tensor];
            }
            let apart = experts(tensor, "qwen3_vl_moe", one_by_one);
            let first = |tensor: StoredTensor| {
                let name = tensor.name.strip_prefix(&format!("{layer}experts.0."))?;
                Some(StoredTensor {
                    name: format!("{layer}{name}"),
                    ..tensor
                })
            };
            apart.into_iter().filter_map(first).collect()
        })
        .collect();
    write(folder.path(), &dense);
    edit_config(folder.path(), |config| {
        config["text_config"]["mlp_only_layers"] = json!([1]);
        config["text_config"]["intermediate_size"] =
            config["text_config"]["moe_intermediate_size"].clone();
    });
    let found = load(folder.path());
    let largest = sparse
        .iter()
        .zip(&found)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(largest < golden.tolerance(), "{largest}");
    assert!(largest > 0.0, "two ways to compute it differ by rounding");
}
