//! Ways back for models whose layers can't be cut back to a prefix.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod parity_support;

use std::ops::ControlFlow;

use parity_support::{Loaded, load};
use prefill_engine::{Error, Snapshot, WorkingType};
use prefill_test_support::Golden;

fn loaded(model: &str, case: &str) -> (Golden, Loaded) {
    let golden = Golden::read(model, case).unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let loaded = load(folder.path(), &golden, WorkingType::AsStored);
    (golden, loaded)
}

#[test]
fn only_models_without_states_can_be_trimmed() {
    for (model, trimmable) in [("qwen3_vl", true), ("qwen3_5", false)] {
        let (_, Loaded { model, prepared }) = loaded(model, "text");
        let sequence = model.prefill(&prepared, &mut |_| ControlFlow::Continue(()));
        assert_eq!(sequence.unwrap().is_trimmable(), trimmable);
    }
}

/// From a snapshot inside the prompt, what follows is bit for bit what followed before: the
/// rest of the prompt token by token, positions after a picture among it, and the answer.
#[test]
fn a_rewound_sequence_goes_on_as_it_did() {
    for model in ["qwen3_5", "qwen3_5_moe", "qwen3_vl"] {
        let (golden, Loaded { model, prepared }) = loaded(model, "image_png");
        let ids = golden.prompt_ids();
        let after_picture = golden.spans()[0].start + golden.spans()[0].length;
        let wanted = [4, after_picture, ids.len() - 1];
        let (mut sequence, snapshots) = model
            .prefill_with_snapshots(&prepared, &wanted, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let places: Vec<usize> = snapshots.iter().map(Snapshot::position).collect();
        assert_eq!(places, wanted);

        let mut answers = Vec::new();
        for _ in 0..2 {
            sequence.rewind(&snapshots[1]).unwrap();
            assert_eq!(sequence.position(), after_picture);
            let mut logits = sequence.logits().unwrap();
            for &id in ids[after_picture..].iter().chain(golden.greedy_ids()) {
                sequence.feed(id).unwrap();
                logits.extend(sequence.logits().unwrap());
            }
            answers.push(logits);
        }
        assert!(answers[0] == answers[1]);

        // The same tokens in other forward calls: the golden's logits, up to rounding.
        let steps = golden.logits().unwrap();
        let first = (ids.len() - after_picture) * steps.columns();
        let found = &answers[0][first..][..steps.values().len()];
        let difference = steps.values().iter().zip(found).map(|(a, b)| (a - b).abs());
        assert!(difference.fold(0.0, f32::max) < golden.tolerance());
    }
}

/// A way back leads to what was before, not only to the number of tokens.
#[test]
fn other_tokens_leave_no_trace() {
    let (golden, Loaded { model, prepared }) = loaded("qwen3_5", "text");
    let mut sequence = model
        .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let here = sequence.snapshot();
    let next = golden.greedy_ids()[0];
    sequence.feed(next).unwrap();
    let expected = sequence.logits().unwrap();
    for other in [3, 77, 210] {
        sequence.rewind(&here).unwrap();
        sequence.feed(other).unwrap();
        assert!(sequence.logits().unwrap() != expected);
        sequence.feed(other).unwrap();
    }
    sequence.rewind(&here).unwrap();
    sequence.feed(next).unwrap();
    assert!(sequence.logits().unwrap() == expected);
}

#[test]
fn there_is_no_way_forward() {
    let (_, Loaded { model, prepared }) = loaded("qwen3_5", "text");
    let wanted = [8, prepared.prompt.ids.len(), 100_000];
    let (mut sequence, snapshots) = model
        .prefill_with_snapshots(&prepared, &wanted, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(snapshots.len(), 2);
    sequence.rewind(&snapshots[0]).unwrap();
    let error = sequence.rewind(&snapshots[1]).unwrap_err();
    assert!(
        matches!(error, Error::NotRestorable { tokens: 8, .. }),
        "{error}"
    );
}
