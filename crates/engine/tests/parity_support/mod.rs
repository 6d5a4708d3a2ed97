//! What the tests against goldens share.
#![allow(dead_code, unused_macros, reason = "each test uses a part")]
#![allow(
    clippy::print_stdout,
    reason = "the measured differences are worth reading"
)]

pub(crate) mod stored;

use std::ops::ControlFlow;
use std::path::Path;

use prefill_engine::{
    Checkpoint, Conversation, MlxThread, Model, PreparedPrompt, Preparer, Prompt, TemplateOptions,
    WorkingType,
};
use prefill_test_support::{Golden, compare_logits};
use serde_json::Value;

/// transformers' own f32 is up to 4.3e-6 from its f64 on features.
const FEATURES: f32 = 2e-5;

/// A model, and a golden's prompt for it.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) prepared: PreparedPrompt,
}

pub(crate) fn load(folder: &Path, golden: &Golden, working_type: WorkingType) -> Loaded {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let thread = MlxThread::claim().unwrap();
    let model = Model::load(&thread, &checkpoint, working_type, &mut |_| {}).unwrap();
    let prepared = prepare(&checkpoint, golden);
    Loaded { model, prepared }
}

/// The golden's prompt, made from its messages; or from its ids, where it has no messages.
pub(crate) fn prepare(checkpoint: &Checkpoint, golden: &Golden) -> PreparedPrompt {
    if golden.messages().as_array().unwrap().is_empty() {
        return PreparedPrompt {
            text: String::new(),
            prompt: Prompt::from_ids(golden.prompt_ids().to_vec()),
            media: Vec::new(),
        };
    }
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    Preparer::open(checkpoint)
        .unwrap()
        .prepare(&conversation, &TemplateOptions::default())
        .unwrap()
}

/// Rendered text, ids, spans and positions are the golden's.
pub(crate) fn check_prompt(prepared: &PreparedPrompt, golden: &Golden) {
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
    let positions = &prepared.prompt.positions;
    let Some(expected) = golden.document().get("position_ids") else {
        return;
    };
    for axis in 0..3 {
        let expected = expected[axis].as_array().unwrap();
        assert_eq!(expected.len(), prepared.prompt.ids.len());
        for (index, expected) in expected.iter().enumerate() {
            assert_eq!(positions.at(index)[axis], expected.as_i64().unwrap());
        }
    }
    let delta = at(golden.document(), "/rope_delta").as_i64().unwrap();
    assert_eq!(positions.delta(), delta);
}

/// The prompt, features, and the logits of every step when the golden's own ids are fed, and
/// those ids when it goes its own way.
pub(crate) fn check(loaded: &Loaded, golden: &Golden) {
    let Loaded { model, prepared } = loaded;
    check_prompt(prepared, golden);
    let name = &golden.document()["case"];
    let rows: Vec<_> = prepared
        .media
        .iter()
        .map(|medium| model.features(medium).unwrap())
        .collect();
    for (index, span) in prepared.prompt.spans.iter().enumerate() {
        let found = rows[span.medium][span.offset..span.offset + span.length].concat();
        let expected = golden.features(index).unwrap();
        let features = compare_logits(&expected, &found, FEATURES).unwrap();
        println!("{name}: features {index}: {features}");
    }

    let logits = logits(loaded, golden);
    let comparison =
        compare_logits(&golden.logits().unwrap(), &logits, golden.tolerance()).unwrap();
    println!("{name}: logits: {comparison}");
    check_greedy(loaded, golden);
}

/// That the model chooses the golden's ids.
pub(crate) fn check_greedy(loaded: &Loaded, golden: &Golden) {
    let mut sequence = loaded
        .model
        .prefill(&loaded.prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let expected = golden.greedy_ids();
    let mut greedy = sequence.greedy().unwrap();
    let found: Vec<u32> = (1..=expected.len())
        .map(|step| greedy.step(step == expected.len()).unwrap().id)
        .collect();
    assert_eq!(found, expected);
}

/// [`check`] of a case on its tiny checkpoint.
pub(crate) fn check_tiny(model: &str, case: &str) {
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
                    crate::parity_support::check_tiny(stringify!($model), stringify!($case));
                }
            )+

            #[test]
            fn every_golden_has_its_test() {
                let mut tested = [$(stringify!($case)),+];
                tested.sort_unstable();
                let cases = prefill_test_support::Golden::cases(stringify!($model)).unwrap();
                assert_eq!(cases, tested);
            }
        }
    };
}

/// One value of a JSON document.
pub(crate) fn at<'v>(document: &'v Value, pointer: &str) -> &'v Value {
    document.pointer(pointer).unwrap()
}

/// The logits before each of the golden's greedy ids.
pub(crate) fn logits(loaded: &Loaded, golden: &Golden) -> Vec<f32> {
    let Loaded { model, prepared } = loaded;
    let mut sequence = model
        .prefill(prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut logits = sequence.logits().unwrap();
    for &id in &golden.greedy_ids()[..golden.greedy_ids().len() - 1] {
        sequence.feed(id).unwrap();
        logits.extend(sequence.logits().unwrap());
    }
    let fed = golden.prompt_ids().len() + golden.greedy_ids().len() - 1;
    assert_eq!(sequence.position(), fed);
    logits
}

/// That a folder's model answers as the golden has it.
pub(crate) fn check_folder(folder: &Path, golden: &Golden) {
    let loaded = load(folder, golden, WorkingType::AsStored);
    let found = logits(&loaded, golden);
    let comparison = compare_logits(&golden.logits().unwrap(), &found, golden.tolerance()).unwrap();
    assert!(comparison.other_argmax.is_empty(), "{comparison}");
}
