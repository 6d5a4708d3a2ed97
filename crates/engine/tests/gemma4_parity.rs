//! Gemma 4 against transformers in f32 on CPU, on tiny random checkpoints and on the demo's.
//!
//! The goldens under `tests/reference/goldens` name the versions and what float noise to
//! expect; `tests/reference/README.md` says how they were made.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use prefill_engine::{
    Checkpoint, Conversation, MediaKind, MlxThread, Model, PreparedPrompt, Preparer,
    TemplateOptions, WorkingType,
};
use prefill_test_support::{DType, Golden, assets_dir, compare_logits};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

/// transformers' own f32 is up to 4.1e-6 from its f64 on these features.
const FEATURES: f32 = 2e-5;

struct Loaded {
    model: Model,
    prepared: PreparedPrompt,
}

fn load(folder: &std::path::Path, golden: &Golden, working_type: WorkingType) -> Loaded {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let thread = MlxThread::claim().unwrap();
    let model = Model::load(&thread, &checkpoint, working_type, &mut |_| {}).unwrap();
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    let preparer = Preparer::open(&checkpoint).unwrap();
    let prepared = preparer
        .prepare(&conversation, &TemplateOptions::default())
        .unwrap();
    Loaded { model, prepared }
}

/// Rendered text, ids, spans, features, and the logits of every step when the golden's own
/// ids are fed.
fn check(loaded: &Loaded, golden: &Golden) {
    let Loaded { model, prepared } = loaded;
    assert_eq!(prepared.text, golden.prompt());
    assert_eq!(prepared.prompt.ids, golden.prompt_ids());
    let spans: Vec<_> = prepared
        .prompt
        .spans
        .iter()
        .map(|span| (span.kind.name(), span.start, span.length))
        .collect();
    let expected: Vec<_> = golden
        .spans()
        .iter()
        .map(|span| (span.kind.as_str(), span.start, span.length))
        .collect();
    assert_eq!(spans, expected);

    for (index, medium) in prepared.media.iter().enumerate() {
        assert_eq!(medium.kind(), MediaKind::Image);
        let found = model.features(medium).unwrap().concat();
        let expected = golden.features(index).unwrap();
        let features = compare_logits(&expected, &found, FEATURES).unwrap();
        println!("{}: features {index}: {features}", golden_name(golden));
    }

    let mut sequence = model
        .prefill(prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut logits = Vec::new();
    let steps = golden.greedy_ids();
    for (step, &id) in steps.iter().enumerate() {
        logits.extend(sequence.logits().unwrap());
        if step + 1 < steps.len() {
            sequence.feed(id).unwrap();
        }
    }
    assert_eq!(
        sequence.position(),
        golden.prompt_ids().len() + steps.len() - 1
    );
    let comparison =
        compare_logits(&golden.logits().unwrap(), &logits, golden.tolerance()).unwrap();
    println!("{}: logits: {comparison}", golden_name(golden));

    let mut sequence = model
        .prefill(prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut greedy = sequence.greedy().unwrap();
    let ids: Vec<u32> = (1..=steps.len())
        .map(|step| greedy.step(step == steps.len()).unwrap())
        .collect();
    assert_eq!(ids, steps);
}

fn golden_name(golden: &Golden) -> String {
    format!("{}", golden.document()["case"])
}

fn check_tiny(model: &str, case: &str) {
    let golden = Golden::read(model, case).unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    check(
        &load(folder.path(), &golden, WorkingType::AsStored),
        &golden,
    );
}

/// One test a case, in a module named after the model.
macro_rules! tiny {
    ($model:ident: $($case:ident),+ $(,)?) => {
        mod $model {
            $(
                #[test]
                fn $case() {
                    super::check_tiny(stringify!($model), stringify!($case));
                }
            )+
        }
    };
}

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
    three_images,
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
);

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
/// before towers, and experts as three stacks.
#[test]
fn mlx_names() {
    for model in ["gemma4_e2b", "gemma4_26b"] {
        let golden = Golden::read(model, "image_png").unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let path = folder.path().join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let stored = SafeTensors::deserialize(&bytes).unwrap();
        let mut renamed = Vec::new();
        for (name, tensor) in stored.tensors() {
            let name = name.strip_prefix("model.").unwrap();
            let name = match name.strip_prefix("language_model.") {
                Some(rest) => format!("language_model.model.{rest}"),
                None => name.to_owned(),
            };
            let (shape, data) = (tensor.shape().to_vec(), tensor.data().to_vec());
            if let Some(path) = name.strip_suffix("experts.gate_up_proj") {
                // [experts, 2 width, hidden]: the gates' rows first in each expert.
                let half = data.len() / shape[0] / 2;
                let halves = [vec![shape[0], shape[1] / 2, shape[2]], shape];
                for (index, part) in ["gate_proj", "up_proj"].into_iter().enumerate() {
                    let rows: Vec<u8> = data
                        .chunks(2 * half)
                        .flat_map(|expert| &expert[index * half..(index + 1) * half])
                        .copied()
                        .collect();
                    let name = format!("{path}experts.switch_glu.{part}.weight");
                    renamed.push((name, halves[0].clone(), rows));
                }
            } else if let Some(path) = name.strip_suffix("experts.down_proj") {
                let name = format!("{path}experts.switch_glu.down_proj.weight");
                renamed.push((name, shape, data));
            } else {
                renamed.push((name, shape, data));
            }
        }
        let views = renamed.iter().map(|(name, shape, data)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), data).unwrap();
            (name.clone(), view)
        });
        serialize_to_file(views, None, &path).unwrap();
        check(
            &load(folder.path(), &golden, WorkingType::AsStored),
            &golden,
        );
    }
}

/// In bf16 the logits stay as near to f32 as transformers' own bf16 does.
#[test]
fn bf16() {
    for case in ["longtext", "image_png"] {
        let golden = Golden::read("gemma4_e2b", case).unwrap();
        let folder = golden
            .checkpoint()
            .unwrap()
            .dtype(DType::Bf16)
            .build()
            .unwrap();
        let Loaded { model, prepared } = load(folder.path(), &golden, WorkingType::AsStored);
        let mut sequence = model
            .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let mut logits = sequence.logits().unwrap();
        for &id in &golden.greedy_ids()[..golden.greedy_ids().len() - 1] {
            sequence.feed(id).unwrap();
            logits.extend(sequence.logits().unwrap());
        }
        let noise = golden.document()["measured"]["bf16_against_f32"]
            .as_f64()
            .unwrap() as f32;
        let comparison = compare_logits(&golden.logits().unwrap(), &logits, 1.5 * noise).unwrap();
        println!("{case}: {comparison} (transformers' bf16: {noise})");
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
