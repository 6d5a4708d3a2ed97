//! Gemma 4's decoders against mlx-vlm on the same libmlx and the same BLAS, bit for bit.
//!
//! mlx-vlm runs in Python: `PREFILL_REFERENCE_PYTHON` names an interpreter that has
//! `tests/reference/requirements.txt`. Run with `--run-ignored all` (nextest) or `--ignored`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod bits_support;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use prefill_engine::{Checkpoint, LoadOptions, MlxThread, Model, PreparedPrompt, Prompt};
use prefill_test_support::Golden;

fn check(model: &str) {
    let thread = MlxThread::claim().unwrap();
    for case in ["text", "longtext"] {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let options = LoadOptions::default().prefill_chunk(NonZeroUsize::MIN);
        let loaded = Model::load_with(&thread, &checkpoint, options, &mut |_| {}).unwrap();
        let prepared = PreparedPrompt {
            text: String::new(),
            prompt: Prompt::from_ids(golden.prompt_ids().to_vec()),
            media: Vec::new(),
        };
        let mut sequence = loaded
            .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let mut ours = sequence.logits().unwrap();
        let steps = golden.greedy_ids();
        for &id in &steps[..steps.len() - 1] {
            sequence.feed(id).unwrap();
            ours.extend(sequence.logits().unwrap());
        }
        let script = "mlx_vlm_gemma4_bits.py";
        let theirs = bits_support::logits(script, folder.path(), model, case);
        bits_support::check(&format!("{model} {case}"), &ours, &theirs);
    }
}

#[test]
#[ignore = "runs mlx-vlm in Python"]
fn gemma4_e2b() {
    check("gemma4_e2b");
}

#[test]
#[ignore = "runs mlx-vlm in Python"]
fn gemma4_26b() {
    check("gemma4_26b");
}

#[test]
#[ignore = "runs mlx-vlm in Python"]
fn gemma4_unified() {
    check("gemma4_unified");
}
