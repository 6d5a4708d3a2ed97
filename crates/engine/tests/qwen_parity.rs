//! The Qwen models against transformers in f32 on CPU, on tiny random checkpoints.
//!
//! The goldens under `tests/reference/goldens` name the versions and what float noise to
//! expect; `tests/reference/README.md` says how they were made.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

mod qwen_support;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use prefill_engine::WorkingType;
use prefill_test_support::{DType, Golden, compare_logits};
use qwen_support::{Loaded, at, check_prompt, load};

/// transformers' own f32 is up to 4.3e-6 from its f64 on these features.
const FEATURES: f32 = 2e-5;

/// The prompt, features, and the logits of every step when the golden's own ids are fed, and
/// those ids when it goes its own way.
fn check(loaded: &Loaded, golden: &Golden) {
    let Loaded { model, prepared } = loaded;
    check_prompt(prepared, golden);
    let name = &golden.document()["case"];
    let mut span = 0;
    for medium in &prepared.media {
        let rows = model.features(medium).unwrap();
        let mut found = rows.iter();
        while found.len() > 0 {
            let expected = golden.features(span).unwrap();
            let part: Vec<f32> = found
                .by_ref()
                .take(expected.rows())
                .flatten()
                .copied()
                .collect();
            let features = compare_logits(&expected, &part, FEATURES).unwrap();
            println!("{name}: features {span}: {:.1e}", features.max_abs);
            span += 1;
        }
    }
    assert_eq!(span, golden.spans().len());

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
    println!("{name}: logits: {comparison}");

    let mut sequence = model
        .prefill(prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut greedy = sequence.greedy().unwrap();
    let ids: Vec<u32> = (1..=steps.len())
        .map(|step| greedy.step(step == steps.len()).unwrap().id)
        .collect();
    assert_eq!(ids, steps);
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

            #[test]
            fn every_golden_has_its_test() {
                let mut tested = [$(stringify!($case)),+];
                tested.sort_unstable();
                let cases = super::Golden::cases(stringify!($model)).unwrap();
                assert_eq!(cases, tested);
            }
        }
    };
}

tiny!(
    qwen3: text,
    longtext,
    ids_1,
);

tiny!(
    qwen3_vl: text,
    longtext,
    image_png,
    image_jpg,
    image_tall,
    image_between,
    three_images,
    image_turns,
    video,
    video_odd,
    image_video,
);

tiny!(
    qwen3_vl_moe: text,
    longtext,
    image_png,
    three_images,
    video_odd,
    image_video,
);

tiny!(
    qwen3_5: text,
    longtext,
    image_png,
    image_jpg,
    image_tall,
    image_between,
    three_images,
    image_turns,
    video,
    video_odd,
    image_video,
    ids_1,
    ids_2,
    ids_3,
    ids_4,
);

tiny!(
    qwen3_5_moe: text,
    longtext,
    image_png,
    three_images,
    video_odd,
    image_video,
    ids_2,
);

/// Where a prompt is cut into forward calls changes nothing but rounding: inside a picture
/// whose deepstack features then come in two calls, inside the convolution's kernel, one token
/// at a time, or nowhere.
#[test]
fn chunks() {
    for (model, case) in [
        ("qwen3_vl", "three_images"),
        ("qwen3_vl", "image_video"),
        ("qwen3_vl_moe", "image_video"),
        ("qwen3_5", "longtext"),
        ("qwen3_5", "three_images"),
        ("qwen3_5_moe", "image_video"),
    ] {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        for size in [1, 7, 64, 4096] {
            let Loaded { model, prepared } = load(folder.path(), &golden, WorkingType::AsStored);
            let model = model.with_prefill_chunk(NonZeroUsize::new(size).unwrap());
            println!("chunks of {size}");
            check(&Loaded { model, prepared }, &golden);
        }
    }
}

/// In bf16 the logits are as near to f32 as transformers' own bf16 is, on the whole. (Not asked
/// of Qwen3.5's experts: of its many near ties, one falls the other way in one of the cases.)
#[test]
fn bf16() {
    for model in ["qwen3_vl", "qwen3_vl_moe", "qwen3_5"] {
        for case in ["longtext", "image_png"] {
            let golden = Golden::read(model, case).unwrap();
            let checkpoint = golden.checkpoint().unwrap().dtype(DType::Bf16);
            let folder = checkpoint.build().unwrap();
            let Loaded { model, prepared } = load(folder.path(), &golden, WorkingType::AsStored);
            let mut sequence = model
                .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
                .unwrap();
            let mut logits = sequence.logits().unwrap();
            for &id in &golden.greedy_ids()[..golden.greedy_ids().len() - 1] {
                sequence.feed(id).unwrap();
                logits.extend(sequence.logits().unwrap());
            }
            let measured = at(golden.document(), "/measured/bf16_against_f32_rms");
            let noise = measured.as_f64().unwrap() as f32;
            let found = compare_logits(&golden.logits().unwrap(), &logits, f32::MAX).unwrap();
            println!("{case}: {found} (transformers' rms: {noise:.1e})");
            assert!(found.rms < 1.25 * noise, "{} of {noise}", found.rms);
        }
    }
}
