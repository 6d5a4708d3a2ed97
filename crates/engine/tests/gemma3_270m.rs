//! A real pretrained model, Gemma 3 270M, against mlx-lm: `tests/reference/gemma3_270m.py` makes
//! the checkpoint and says how to run this.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use prefill_engine::{Checkpoint, MlxThread, Model, PreparedPrompt, Prompt, WorkingType};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
#[ignore = "needs a checkpoint of half a gigabyte, named by PREFILL_GEMMA3_270M"]
fn the_greedy_text_is_mlx_lms() {
    let folder = PathBuf::from(env::var_os("PREFILL_GEMMA3_270M").unwrap());
    let expected = fs::read(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let thread = MlxThread::claim().unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let model = Model::load(&thread, &checkpoint, WorkingType::F32, &mut |_| {}).unwrap();
    for case in expected["cases"].as_array().unwrap() {
        let prepared = PreparedPrompt {
            text: String::new(),
            prompt: Prompt::from_ids(ids(&case["prompt_ids"])),
            media: Vec::new(),
        };
        let mut sequence = model
            .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let greedy = ids(&case["greedy_ids"]);
        let mut decoder = sequence.greedy().unwrap();
        let found: Vec<u32> = (1..=greedy.len())
            .map(|step| decoder.step(step == greedy.len()).unwrap().id)
            .collect();
        assert_eq!(found, greedy, "{}", case["text"]);
    }
}
