//! Keys and values that the cache keeps quantised.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use prefill_engine::{
    Checkpoint, Conversation, Error, KvQuantization, LoadOptions, MlxThread, Model, PreparedPrompt,
    Preparer, TemplateOptions, WorkingType,
};
use prefill_test_support::{Golden, assets_dir};

fn prepared(checkpoint: &Checkpoint, golden: &Golden) -> PreparedPrompt {
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    Preparer::open(checkpoint)
        .unwrap()
        .prepare(&conversation, &TemplateOptions::default())
        .unwrap()
}

fn load(thread: &MlxThread, checkpoint: &Checkpoint, options: LoadOptions) -> Result<Model, Error> {
    let options = options.working_type(WorkingType::F32);
    Model::load_with(thread, checkpoint, options, &mut |_| {})
}

/// The logits of the prompt and of each of the golden's steps.
fn logits(model: &Model, prepared: &PreparedPrompt, golden: &Golden) -> Vec<Vec<f32>> {
    let mut sequence = model
        .prefill(prepared, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let mut logits = vec![sequence.logits().unwrap()];
    for &id in golden.greedy_ids() {
        sequence.feed(id).unwrap();
        logits.push(sequence.logits().unwrap());
    }
    logits
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

/// The bundled model answers as before, and its logits move by little, but do move.
#[test]
fn eight_bits_change_no_answer() {
    let thread = MlxThread::claim().unwrap();
    let checkpoint = Checkpoint::open(assets_dir().join("demo-model")).unwrap();
    let plain = load(&thread, &checkpoint, LoadOptions::default()).unwrap();
    let options = LoadOptions::default()
        .quantized_kv(KvQuantization::new(8).group_size(32))
        .prefill_chunk(NonZeroUsize::new(48).unwrap());
    let quantised = load(&thread, &checkpoint, options).unwrap();
    for case in Golden::cases("demo").unwrap() {
        let golden = Golden::read("demo", &case).unwrap();
        let prepared = prepared(&checkpoint, &golden);
        let expected = logits(&plain, &prepared, &golden);
        let found = logits(&quantised, &prepared, &golden);
        for (found, expected) in found.iter().zip(&expected) {
            let difference = largest_difference(found, expected);
            assert!(difference < 0.5, "{case}: {difference}");
            assert!(difference > 0.0, "nothing was quantised");
        }
        let mut sequence = quantised
            .prefill(&prepared, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let steps = golden.greedy_ids().len();
        let mut decoder = sequence.greedy().unwrap();
        let ids: Vec<u32> = (1..=steps)
            .map(|step| decoder.step(step == steps).unwrap().id)
            .collect();
        assert_eq!(ids, golden.greedy_ids(), "{case}");
    }
}

/// Until the position is reached, every bit is that of the plain cache. Models with windows,
/// shared layers, experts and states take it.
#[test]
fn quantisation_begins_where_it_is_told_to() {
    let thread = MlxThread::claim().unwrap();
    for (name, group) in [("gemma4_e2b", 32), ("gemma4_26b", 32), ("qwen3_5", 32)] {
        let golden = Golden::read(name, "text").unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let prepared = prepared(&checkpoint, &golden);
        let start = prepared.prompt.ids.len() + 3;
        let kv = KvQuantization::new(4).group_size(group).start(start);
        let plain = load(&thread, &checkpoint, LoadOptions::default()).unwrap();
        let plain = logits(&plain, &prepared, &golden);
        let late = match load(
            &thread,
            &checkpoint,
            LoadOptions::default().quantized_kv(kv),
        ) {
            Ok(model) => logits(&model, &prepared, &golden),
            Err(Error::KvQuantization { .. }) if name == "qwen3_5" => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        for (step, (late, plain)) in late.iter().zip(&plain).enumerate() {
            let difference = largest_difference(late, plain);
            // The step that reaches the position still attends to plain rows.
            assert_eq!(difference > 0.0, step > 3, "{name}: {difference} at {step}");
        }
    }
}

#[test]
fn what_does_not_fit_names_the_layer() {
    let thread = MlxThread::claim().unwrap();
    let golden = Golden::read("gemma4_e2b", "text").unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let refusal = |kv| {
        load(
            &thread,
            &checkpoint,
            LoadOptions::default().quantized_kv(kv),
        )
        .unwrap_err()
    };
    // Heads of 32 in sliding layers, of 64 in full ones.
    let error = refusal(KvQuantization::new(8));
    assert!(
        matches!(error, Error::KvQuantization { layer: 0, .. }),
        "{error}"
    );
    let error = refusal(KvQuantization::new(7).group_size(32));
    assert!(
        matches!(error, Error::KvQuantization { layer: 0, .. }),
        "{error}"
    );
    let error = refusal(KvQuantization::new(8).group_size(32).plain_layer(4));
    assert!(
        matches!(error, Error::KvQuantization { layer: 4, .. }),
        "{error}"
    );
    // The third layer is full: only it is quantised.
    let kv = (0..4)
        .filter(|&layer| layer != 2)
        .fold(KvQuantization::new(8), KvQuantization::plain_layer);
    load(
        &thread,
        &checkpoint,
        LoadOptions::default().quantized_kv(kv),
    )
    .unwrap();
}
