//! The bundled model's answers to questions about pictures and clips that training never had.
//!
//! ```text
//! cargo test --release -p prefill-engine --test demo_eval -- --nocapture            # 20 of each
//! PREFILL_EVAL_SAMPLES=200 cargo test --release -p prefill-engine --test demo_eval -- --ignored --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![allow(clippy::print_stdout, reason = "the figures are what it is run for")]

mod demo_support;

use std::collections::BTreeMap;

use demo_support::{Answer, demo, expected, four_bits, request, result_request, run};
use prefill_demo_scenes::{Kind, Mode, Sample};
use prefill_engine::{Engine, WorkingType};

/// The seed of `train.TEST_SEED`.
const SEED: u64 = 2026;

/// Whether the answer is the one right answer, and what it is.
fn is_right(engine: &Engine, sample: &Sample) -> (bool, Answer) {
    let found = run(engine, request(sample));
    if found != expected(sample) {
        return (false, found);
    }
    let Some(call) = sample.call() else {
        return (true, found);
    };
    let found = run(engine, result_request(sample, &call));
    let is_right = found.text == sample.question.answer && found.calls.is_empty();
    (is_right, found)
}

/// The samples of `count` that are not answered right; they are printed.
fn wrong(engine: &Engine, name: &str, kind: Kind, mode: Mode, count: usize) -> Vec<Sample> {
    let (mut wrong, mut tasks) = (Vec::new(), BTreeMap::<&str, (usize, usize)>::new());
    for index in 0..count {
        let sample = Sample::held_out(SEED, kind, mode, index);
        let (is_right, found) = is_right(engine, &sample);
        let task = tasks.entry(sample.question.task).or_default();
        *task = (task.0 + usize::from(is_right), task.1 + 1);
        if !is_right {
            let (text, answer) = (&sample.question.text, &sample.question.answer);
            println!("  {index}: {text} | {found:?} | {answer}");
            wrong.push(sample);
        }
    }
    let right = count - wrong.len();
    let share = percent(right, count);
    let (kind, mode) = (kind.name(), mode.name());
    println!("{name}, {kind}/{mode}: {right} of {count} ({share:.1} %) {tasks:?}");
    wrong
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// The share of right answers, in percent.
fn share(engine: &Engine, name: &str, kind: Kind, mode: Mode, count: usize) -> f64 {
    let wrong = wrong(engine, name, kind, mode, count).len();
    percent(count - wrong, count)
}

/// What the issue of the model asks for.
fn least(kind: Kind) -> f64 {
    match kind {
        Kind::One | Kind::Two | Kind::Clip => 97.0,
        Kind::Three | Kind::Both => 95.0,
    }
}

fn full_count() -> usize {
    let count = std::env::var("PREFILL_EVAL_SAMPLES");
    count.map_or(200, |count| count.parse().unwrap())
}

/// A few of each kind: none or one of twenty may be wrong. In f32, which a CPU is quicker at.
#[test]
fn a_few_of_each_kind_are_right() {
    let engine = demo().working_type(WorkingType::F32).build().unwrap();
    for kind in Kind::ALL {
        let found = share(&engine, "f32", kind, Mode::Plain, 20);
        assert!(found >= 95.0, "{kind:?}: {found}");
    }
}

/// The shares of all kinds are not below what is asked for.
fn check(engine: &Engine, name: &str) {
    for kind in Kind::ALL {
        let found = share(engine, name, kind, Mode::Plain, full_count());
        assert!(found >= least(kind), "{name}, {kind:?}: {found}");
    }
}

#[test]
#[ignore = "takes minutes"]
fn all_kinds_are_right_in_f32() {
    check(
        &demo().working_type(WorkingType::F32).build().unwrap(),
        "f32",
    );
}

#[test]
#[ignore = "takes minutes"]
fn all_kinds_are_right_in_bf16() {
    check(&demo().build().unwrap(), "bf16");
}

/// Of what is right in bf16, at most two in a hundred are wrong in 4 bits.
#[test]
#[ignore = "takes minutes"]
fn hardly_fewer_are_right_in_four_bits() {
    let folder = four_bits();
    let stored = demo().build().unwrap();
    let engine = Engine::builder(folder.path()).build().unwrap();
    for kind in Kind::ALL {
        let wrong = wrong(&engine, "4 bits", kind, Mode::Plain, full_count());
        let lost = wrong.iter().filter(|sample| is_right(&stored, sample).0);
        let lost = percent(lost.count(), full_count());
        println!("lost in 4 bits, {}: {lost:.1} %", kind.name());
        assert!(lost <= 2.0, "{kind:?}: {lost}");
    }
}

#[test]
#[ignore = "takes minutes: thinking, JSON and tools"]
fn thoughts_json_and_calls_are_right() {
    let engine = demo().build().unwrap();
    for (kind, mode) in [
        (Kind::One, Mode::Think),
        (Kind::Two, Mode::Think),
        (Kind::Clip, Mode::Think),
        (Kind::One, Mode::Json),
        (Kind::Clip, Mode::Json),
        (Kind::One, Mode::Tools),
        (Kind::Clip, Mode::Tools),
    ] {
        let found = share(&engine, "bf16", kind, mode, full_count());
        assert!(found >= 95.0, "{kind:?} {mode:?}: {found}");
    }
}
