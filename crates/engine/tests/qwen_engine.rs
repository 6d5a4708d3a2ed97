//! Qwen checkpoints behind the engine's handle, as programs embed it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_engine::{Conversation, Engine, Event, FinishReason, Request};
use prefill_test_support::Golden;

/// A picture beside a video among its questions: the golden's text, in the golden's tokens.
#[test]
fn answers_are_the_references() {
    for (model, case) in [
        ("qwen3", "text"),
        ("qwen3_vl", "image_video"),
        ("qwen3_vl_moe", "three_images"),
        ("qwen3_5", "image_video"),
        ("qwen3_5_moe", "video_odd"),
    ] {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let engine = Engine::builder(folder.path()).build().unwrap();
        let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
        let steps = golden.greedy_ids().len();
        let request = Request::new(conversation).max_tokens(steps);
        let mut text = String::new();
        let mut end = None;
        for event in engine.generate(request).unwrap() {
            match event.unwrap() {
                Event::Text(more) => text += &more,
                Event::Finished(finished) => end = Some(finished),
                _ => {}
            }
        }
        let end = end.unwrap();
        assert_eq!(text, golden.document()["text"], "{model} {case}");
        assert_eq!(end.reason, FinishReason::Length);
        assert_eq!(end.statistics.generated_tokens, steps);
        assert_eq!(end.statistics.prompt_tokens, golden.prompt_ids().len());
    }
}

/// Sequences of one model leave no trace in each other.
#[test]
fn answers_repeat() {
    let golden = Golden::read("qwen3_5", "text").unwrap();
    let folder = golden.checkpoint().unwrap().build().unwrap();
    let engine = Engine::builder(folder.path()).build().unwrap();
    let conversation = Conversation::from_json(&golden.messages_with_paths()).unwrap();
    let ask = || Request::new(conversation.clone()).max_tokens(12);
    let expected = engine.generate(ask()).unwrap().text().unwrap();
    let other = engine.clone();
    drop(engine);
    for _ in 0..3 {
        assert_eq!(other.generate(ask()).unwrap().text().unwrap(), expected);
    }
}
