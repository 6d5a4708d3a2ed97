//! The engine as programs embed it, on the bundled model.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::mpsc;
use std::thread;

use prefill_engine::{
    Conversation, Engine, Error, Event, FinishReason, MediaKind, MlxThread, Request,
};
use prefill_test_support::{Golden, assets_dir};

fn demo() -> Engine {
    Engine::builder(assets_dir().join("demo-model"))
        .build()
        .unwrap()
}

fn ask(question: &str) -> Request {
    let picture = assets_dir().join("demo/shapes.png");
    Request::new(Conversation::user(
        question,
        [(MediaKind::Image, picture.into())],
    ))
}

#[test]
fn every_question_about_the_demo_picture_is_answered_right() {
    let engine = demo();
    let text = std::fs::read_to_string(assets_dir().join("demo/shapes.json")).unwrap();
    let picture: serde_json::Value = serde_json::from_str(&text).unwrap();
    let questions = picture["questions"].as_array().unwrap();
    assert!(questions.len() >= 10);
    for entry in questions {
        let (question, answer) = (entry["question"].as_str(), entry["answer"].as_str());
        let found = engine.generate(ask(question.unwrap())).unwrap().text();
        assert_eq!(found.unwrap(), answer.unwrap(), "{question:?}");
    }
}

#[test]
fn events_come_in_order_and_add_up() {
    let golden = Golden::read("demo", "list").unwrap();
    let mut text = String::new();
    let mut prefilled = None;
    let mut finished = None;
    for event in demo().generate(ask("What is in the picture?")).unwrap() {
        assert!(finished.is_none(), "nothing follows the end");
        match event.unwrap() {
            Event::Prefill(progress) => {
                assert!(text.is_empty(), "the prompt is fed before the answer");
                prefilled = Some(progress);
            }
            Event::Text(more) => {
                assert!(!more.is_empty());
                text += &more;
            }
            Event::Finished(end) => finished = Some(end),
            other => panic!("unknown event {other:?}"),
        }
    }
    assert_eq!(text, golden.document()["text"]);
    let progress = prefilled.unwrap();
    assert_eq!(progress.done, progress.total);
    assert_eq!(progress.total, golden.prompt_ids().len() as u64);
    let end = finished.unwrap();
    assert_eq!(end.reason, FinishReason::Stop);
    let statistics = end.statistics;
    assert_eq!(statistics.prompt_tokens, golden.prompt_ids().len());
    assert_eq!(statistics.generated_tokens, golden.greedy_ids().len());
    assert!(statistics.prefill_time >= statistics.encode_time);
    assert!(statistics.time_to_first_token >= statistics.prefill_time);
    assert!(
        statistics.peak_memory > 3_000_000,
        "the weights alone are more"
    );
}

#[test]
fn an_answer_ends_at_its_limit() {
    let engine = demo();
    let question = "What is in the picture?";
    let whole = engine.generate(ask(question)).unwrap().text().unwrap();
    for limit in [0, 1, 5] {
        let mut text = String::new();
        let mut end = None;
        for event in engine.generate(ask(question).max_tokens(limit)).unwrap() {
            match event.unwrap() {
                Event::Text(more) => text += &more,
                Event::Finished(finished) => end = Some(finished),
                _ => {}
            }
        }
        let end = end.unwrap();
        assert_eq!(end.reason, FinishReason::Length);
        assert_eq!(end.statistics.generated_tokens, limit);
        assert!(whole.starts_with(&text) && text.len() < whole.len());
    }
}

#[test]
fn a_dropped_generation_makes_way_for_the_next() {
    let engine = demo();
    for _ in 0..20 {
        let mut generation = engine.generate(ask("What is in the picture?")).unwrap();
        generation.next().unwrap().unwrap();
    }
    let answer = engine.generate(ask("How many shapes are in the picture?"));
    assert_eq!(answer.unwrap().text().unwrap(), "There are four shapes.");
}

#[test]
fn a_generation_outlives_its_engine() {
    let engine = demo();
    let generation = engine.generate(ask("How many shapes are in the picture?"));
    drop(engine);
    assert_eq!(
        generation.unwrap().text().unwrap(),
        "There are four shapes."
    );
}

#[test]
fn handles_work_from_many_threads() {
    let engine = demo();
    let (answers, received) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (engine, answers) = (engine.clone(), answers.clone());
            scope.spawn(move || {
                let answer = engine.generate(ask("What colour is the circle in the picture?"));
                answers.send(answer.unwrap().text().unwrap()).unwrap();
            });
        }
    });
    drop(answers);
    let answers: Vec<String> = received.iter().collect();
    assert_eq!(answers, vec!["The circle is blue."; 4]);
}

#[test]
fn models_come_and_go_and_give_their_memory_back() {
    /// What a GPU's fused functions keep once they were made: a few numbers. The demo's
    /// smallest matrix of weights is larger.
    const CONSTANTS: usize = 256;
    let first = demo();
    drop(
        first
            .generate(ask("What is in the picture?"))
            .unwrap()
            .text(),
    );
    drop(demo());
    let one = mlx_rs::memory::active_memory().unwrap();
    for _ in 0..10 {
        let second = demo();
        assert!(mlx_rs::memory::active_memory().unwrap() > one);
        let answer = second.generate(ask("How many shapes are in the picture?"));
        assert_eq!(answer.unwrap().text().unwrap(), "There are four shapes.");
        drop(second);
        assert!(mlx_rs::memory::active_memory().unwrap() <= one + CONSTANTS);
    }
    drop(first);
    assert!(mlx_rs::memory::active_memory().unwrap() <= CONSTANTS);
}

#[test]
fn mlx_has_one_owner() {
    let engine = demo();
    assert!(matches!(MlxThread::claim(), Err(Error::MlxTaken { .. })));
    drop(engine);
    // The runtime thread stays: another engine may follow.
    assert!(matches!(MlxThread::claim(), Err(Error::MlxTaken { .. })));
}

#[test]
fn a_panicking_callback_is_an_error_and_nothing_more() {
    let refused = Engine::builder(assets_dir().join("demo-model"))
        .on_progress(|_| panic!("no bar to draw"))
        .build();
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, Error::Panicked(message) if message == "no bar to draw"),
        "{error}"
    );
    let answer = demo().generate(ask("How many shapes are in the picture?"));
    assert_eq!(answer.unwrap().text().unwrap(), "There are four shapes.");
}

#[test]
fn a_callback_cannot_wait_for_its_own_thread() {
    let engine = demo();
    let inner = engine.clone();
    let (refusals, received) = mpsc::channel();
    let other = Engine::builder(assets_dir().join("demo-model"))
        .on_progress(move |_| {
            let refused = inner.generate(ask("What is in the picture?"));
            refusals.send(refused.is_err()).unwrap();
        })
        .build()
        .unwrap();
    assert!(received.recv().unwrap());
    drop((engine, other));
}

#[test]
fn requests_that_cannot_be_served_say_why() {
    let engine = demo();
    let refused = |media: Vec<(MediaKind, prefill_engine::MediaSource)>| {
        let request = Request::new(Conversation::user("What?", media));
        engine.generate(request).unwrap_err()
    };
    let missing = refused(vec![(MediaKind::Image, "no-such.png".into())]);
    assert!(
        missing.to_string().starts_with("no-such.png: "),
        "{missing}"
    );
    let text = refused(vec![(MediaKind::Image, b"not a picture".to_vec().into())]);
    assert!(matches!(text, Error::Media { index: 0, .. }), "{text}");
    let video = refused(vec![(MediaKind::Video, "no-such.mp4".into())]);
    assert!(video.to_string().starts_with("no-such.mp4: "), "{video}");
    let long = Conversation::user("How many shapes are in the picture? ".repeat(800), []);
    let refused = engine.generate(Request::new(long)).unwrap_err();
    assert!(
        matches!(refused, Error::ContextLength { limit: 4096, .. }),
        "{refused}"
    );
    let answer = engine.generate(ask("How many shapes are in the picture?"));
    assert_eq!(answer.unwrap().text().unwrap(), "There are four shapes.");
}
