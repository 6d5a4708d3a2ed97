//! What the tests of the Qwen models share.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod stored;

use std::ops::ControlFlow;
use std::path::Path;

use prefill_engine::{
    Checkpoint, Conversation, MlxThread, Model, PreparedPrompt, Preparer, Prompt, TemplateOptions,
    WorkingType,
};
use prefill_test_support::{Golden, compare_logits};
use serde_json::Value;

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
    for axis in 0..3 {
        let expected = at(golden.document(), &format!("/position_ids/{axis}"));
        for (index, expected) in expected.as_array().unwrap().iter().enumerate() {
            assert_eq!(positions.at(index)[axis], expected.as_i64().unwrap());
        }
    }
    let delta = at(golden.document(), "/rope_delta").as_i64().unwrap();
    assert_eq!(positions.delta(), delta);
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
    logits
}

/// That a folder's model answers as the golden has it.
pub(crate) fn check_folder(folder: &Path, golden: &Golden) {
    let loaded = load(folder, golden, WorkingType::AsStored);
    let found = logits(&loaded, golden);
    let comparison = compare_logits(&golden.logits().unwrap(), &found, golden.tolerance()).unwrap();
    assert!(comparison.other_argmax.is_empty(), "{comparison}");
}
