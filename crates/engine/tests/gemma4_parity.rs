//! Gemma 4 against transformers in f32 on CPU, on tiny random checkpoints and on the demo's.
//!
//! The goldens under `tests/reference/goldens` name the versions and what float noise to
//! expect; `tests/reference/README.md` says how they were made.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

#[macro_use]
mod parity_support;

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use parity_support::stored::{read, write};
use parity_support::{Loaded, check, load, logits};
use prefill_engine::WorkingType;
use prefill_test_support::{DType, Golden, StoredTensor, assets_dir, compare_logits};
use serde_json::Value;

tiny!(
    gemma4_e2b:     text,
    longtext,
    image_png,
    image_jpg,
    two_images,
    image_between,
    image_tall,
    image_exact,
    image_turns,
    image_budget_140,
    image_budget_280,
    image_budget_1120,
    three_images,
    audio,
    two_sounds,
    image_audio,
    video,
    image_video,
);

tiny!(
    gemma4_26b: text,
    longtext,
    image_png,
    image_jpg,
    two_images,
    three_images,
    image_between,
    image_tall,
    image_turns,
    image_budget_280,
    video,
    image_video,
);

tiny!(
    gemma4_unified: text,
    longtext,
    image_png,
    image_jpg,
    two_images,
    three_images,
    image_between,
    image_tall,
    image_turns,
    image_budget_280,
    audio,
    two_sounds,
    image_audio,
    video,
    image_video,
);

tiny!(gemma3_text: text, longtext);

/// The same numbers from every layout that checkpoints come in.
#[test]
fn layouts() {
    let golden = Golden::read("gemma4_e2b", "image_png").unwrap();
    let checkpoint = || golden.checkpoint().unwrap();
    for layout in [checkpoint().shards(3), checkpoint().prune_unused()] {
        let folder = layout.build().unwrap();
        check(
            &load(folder.path(), &golden, WorkingType::AsStored),
            &golden,
        );
    }
    let golden = Golden::read("gemma4_e2b", "longtext").unwrap();
    let folder = golden.checkpoint().unwrap().text_only().build().unwrap();
    check(
        &load(folder.path(), &golden, WorkingType::AsStored),
        &golden,
    );
}

/// Where a prompt is cut into forward calls changes nothing but rounding: inside a picture
/// (but never inside one whose positions see each other), inside a window, one token at a time.
#[test]
fn chunks() {
    for (model, case) in [
        ("gemma3_text", "longtext"),
        ("gemma4_e2b", "longtext"),
        ("gemma4_e2b", "two_images"),
        ("gemma4_26b", "two_images"),
        ("gemma4_unified", "image_turns"),
    ] {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        for size in [1, 7, 32] {
            let Loaded { model, prepared } = load(folder.path(), &golden, WorkingType::AsStored);
            let model = model.with_prefill_chunk(NonZeroUsize::new(size).unwrap());
            check(&Loaded { model, prepared }, &golden);
        }
    }
}

/// mlx-community's names: `language_model.model.X` for `model.language_model.X`, no `model.`
/// before towers, experts as three stacks, and channels last in the kernels of convolutions.
#[test]
fn mlx_names() {
    for (model, case) in [("gemma4_e2b", "image_audio"), ("gemma4_26b", "image_png")] {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        rewrite(folder.path(), |mut tensor| {
            let name = tensor.name.strip_prefix("model.").unwrap();
            tensor.name = match name.strip_prefix("language_model.") {
                Some(rest) => format!("language_model.model.{rest}"),
                None => name.to_owned(),
            };
            if tensor.name.contains("conv") && tensor.shape.len() > 2 {
                channels_last(&mut tensor);
            }
            tensor.split_experts()
        });
        check(
            &load(folder.path(), &golden, WorkingType::AsStored),
            &golden,
        );
    }
}

/// `[out, in, ...]` to `[out, ..., in]`.
fn channels_last(tensor: &mut StoredTensor) {
    let (input, taps) = (tensor.shape[1], tensor.shape[2..].iter().product::<usize>());
    let kernels = tensor.bytes.chunks(4 * input * taps);
    tensor.bytes = kernels
        .flat_map(|kernel| {
            (0..taps).flat_map(move |tap| {
                (0..input)
                    .flat_map(move |channel| kernel[4 * (channel * taps + tap)..][..4].to_vec())
            })
        })
        .collect();
    tensor.shape[1..].rotate_left(1);
}

/// Decoders saved alone: the text's settings at the top of `config.json`, and no
/// `language_model.` in names.
#[test]
fn text_alone() {
    for model in ["gemma4_e2b", "gemma4_26b", "gemma4_unified"] {
        let golden = Golden::read(model, "longtext").unwrap();
        let folder = golden.checkpoint().unwrap().text_only().build().unwrap();
        rewrite(folder.path(), |mut tensor| {
            tensor.name = tensor.name.replace("language_model.", "");
            vec![tensor]
        });
        let path = folder.path().join("config.json");
        let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut text = config["text_config"].clone();
        text["eos_token_id"] = config["eos_token_id"].clone();
        fs::write(&path, text.to_string()).unwrap();
        check(
            &load(folder.path(), &golden, WorkingType::AsStored),
            &golden,
        );
    }
}

/// The folder's only weight file with each tensor replaced.
fn rewrite(folder: &Path, change: impl FnMut(StoredTensor) -> Vec<StoredTensor>) {
    let changed: Vec<_> = read(folder).into_iter().flat_map(change).collect();
    write(folder, &changed);
}

/// The bundled model in half precision: the answers stay the same, and the logits as near to
/// f32 as the type allows. transformers' own bf16 is up to 0.061 away at the first step.
#[test]
fn half_precision() {
    for (working_type, bound) in [(WorkingType::Bf16, 0.25), (WorkingType::F16, 0.03)] {
        for case in Golden::cases("demo").unwrap() {
            let golden = Golden::read("demo", &case).unwrap();
            let folder = assets_dir().join("demo-model");
            let logits = logits(&load(&folder, &golden, working_type), &golden);
            let comparison = compare_logits(&golden.logits().unwrap(), &logits, bound).unwrap();
            println!("{case} in {working_type:?}: {comparison}");
        }
    }
}

/// The vision tower's residual stream leaves the range of f16, and nothing becomes NaN.
#[test]
fn towers_do_not_overflow_in_f16() {
    let golden = Golden::read("gemma4_e2b", "image_png").unwrap();
    let folder = golden
        .checkpoint()
        .unwrap()
        .dtype(DType::F16)
        .build()
        .unwrap();
    rewrite(folder.path(), |mut tensor| {
        if tensor
            .name
            .ends_with("layers.0.post_feedforward_layernorm.weight")
            && tensor.name.contains("vision_tower")
        {
            let large = half::f16::from_f32(60_000.0).to_le_bytes();
            tensor.bytes = large.repeat(tensor.shape[0]);
        }
        vec![tensor]
    });
    let features = |working_type| {
        let Loaded { model, prepared } = load(folder.path(), &golden, working_type);
        model.features(&prepared.media[0]).unwrap().concat()
    };
    let (wide, half) = (features(WorkingType::F32), features(WorkingType::AsStored));
    let largest = wide.iter().fold(0f32, |most, value| most.max(value.abs()));
    for (wide, half) in wide.iter().zip(&half) {
        assert!((wide - half).abs() < 2e-3 * largest, "{half} for {wide}");
    }
}

/// The bundled model, which really sees: its answers are the golden's and right.
#[test]
fn demo() {
    for case in Golden::cases("demo").unwrap() {
        let golden = Golden::read("demo", &case).unwrap();
        let folder = assets_dir().join("demo-model");
        check(&load(&folder, &golden, WorkingType::F32), &golden);
    }
}
