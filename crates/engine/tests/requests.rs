//! What a request may ask for: sampling, stops, limits, cancellation, ids, log-probabilities.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod engine_support;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use engine_support::run;
use futures_core::Stream;
use prefill_engine::{
    CancelToken, Conversation, Engine, Error, Event, FinishReason, MediaKind, Request, Sampling,
    TemplateOptions,
};
use prefill_test_support::{Golden, assets_dir};

fn demo() -> Engine {
    Engine::builder(assets_dir().join("demo-model"))
        .build()
        .unwrap()
}

fn list() -> Request {
    let picture = assets_dir().join("demo/shapes.png");
    Request::new(Conversation::user(
        "What is in the picture?",
        [(MediaKind::Image, picture.into())],
    ))
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let engine = demo();
    let (whole, _) = run(&engine, list());
    // Over token borders, inside a word, at the beginning, and one that is not there.
    for stop in ["purple star", "cros", "There", "nowhere"] {
        let (text, end) = run(&engine, list().stop(stop).stop("never"));
        let expected = whole.find(stop);
        assert_eq!(text, whole[..expected.unwrap_or(whole.len())], "{stop}");
        assert_eq!(end.reason, FinishReason::Stop);
        assert_eq!(end.stop_string.as_deref(), expected.map(|_| stop));
    }
}

#[test]
fn stop_ids_and_ends_can_be_added_and_ignored() {
    let engine = demo();
    let golden = Golden::read("demo", "list").unwrap();
    let ids = golden.greedy_ids();
    let (_, end) = run(&engine, list().stop_id(ids[4]));
    assert_eq!(end.reason, FinishReason::Stop);
    let first = ids.iter().position(|id| *id == ids[4]).unwrap();
    assert_eq!(end.statistics.generated_tokens, first + 1);

    let (_, end) = run(&engine, list().ignore_ends().max_tokens(ids.len() + 5));
    assert_eq!(end.reason, FinishReason::Length);
    assert_eq!(end.statistics.generated_tokens, ids.len() + 5);
}

#[test]
fn ids_and_prepared_prompts_give_what_the_conversation_gives() {
    let engine = demo();
    let question = Conversation::user("Hello, who are you?", []);
    let (expected, _) = run(&engine, Request::new(question.clone()));
    let prepared = engine
        .preparer()
        .prepare(&question, &TemplateOptions::default())
        .unwrap();
    let (by_ids, _) = run(&engine, Request::from_ids(prepared.prompt.ids.clone()));
    assert_eq!(by_ids, expected);
    let (by_prompt, _) = run(&engine, Request::from_prepared(prepared));
    assert_eq!(by_prompt, expected);
}

#[test]
fn equal_seeds_give_equal_draws_whatever_else_runs() {
    let engine = demo();
    let hot = |seed| {
        list()
            .sampling(Sampling::greedy().temperature(3.0).seed(seed))
            .max_tokens(24)
    };
    let (first, _) = run(&engine, hot(1));
    let answers: Vec<String> = thread::scope(|scope| {
        let run = |seed| {
            scope.spawn({
                let engine = engine.clone();
                move || run(&engine, hot(seed)).0
            })
        };
        let handles: Vec<_> = [2, 1, 3, 1].into_iter().map(run).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    assert_eq!(answers[1], first);
    assert_eq!(answers[3], first);
    assert_ne!(answers[0], first);
    assert_ne!(answers[2], answers[0]);
}

#[test]
fn top_k_of_one_is_greedy_and_a_bias_forbids() {
    let engine = demo();
    let (greedy, _) = run(&engine, list());
    let hot = Sampling::greedy().temperature(50.0).top_k(1);
    let (text, _) = run(&engine, list().sampling(hot));
    assert_eq!(text, greedy);

    let golden = Golden::read("demo", "list").unwrap();
    let forbidden = golden.greedy_ids()[0];
    let sampling = Sampling::greedy().bias(forbidden, f32::NEG_INFINITY);
    for event in engine
        .generate(list().sampling(sampling).logprobs(3))
        .unwrap()
    {
        if let Event::LogProbs(logprobs) = event.unwrap() {
            assert_ne!(logprobs.id, forbidden);
        }
    }
}

#[test]
fn log_probabilities_are_those_of_the_golden() {
    let engine = Engine::builder(assets_dir().join("demo-model"))
        .working_type(prefill_engine::WorkingType::F32)
        .build()
        .unwrap();
    let golden = Golden::read("demo", "list").unwrap();
    let logits = golden.logits().unwrap();
    let events: Vec<_> = engine
        .generate(list().logprobs(5))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let found: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::LogProbs(logprobs) => Some(logprobs),
            _ => None,
        })
        .collect();
    assert_eq!(found.len(), golden.greedy_ids().len());
    for (step, logprobs) in found.iter().enumerate() {
        let row = logits.row(step);
        let sum: f64 = row.iter().map(|&z| f64::from(z).exp()).sum();
        let expected = |id: u32| f64::from(row[id as usize]) - sum.ln();
        assert_eq!(logprobs.id, golden.greedy_ids()[step]);
        assert_eq!(logprobs.top.len(), 5);
        assert_eq!(logprobs.top[0].0, logprobs.id);
        assert!(logprobs.top.is_sorted_by(|a, b| a.1 >= b.1));
        for &(id, logprob) in logprobs
            .top
            .iter()
            .chain([&(logprobs.id, logprobs.logprob)])
        {
            assert!((f64::from(logprob) - expected(id)).abs() < 1e-3);
        }
    }
}

#[test]
fn a_token_cancels_and_a_deadline_ends() {
    let engine = demo();
    let token = CancelToken::new();
    let mut generation = engine
        .generate(
            list()
                .ignore_ends()
                .max_tokens(3000)
                .cancel_token(token.clone()),
        )
        .unwrap();
    let mut seen = 0;
    let end = loop {
        match generation.next().unwrap().unwrap() {
            Event::Text(_) => {
                seen += 1;
                if seen == 2 {
                    token.cancel();
                }
            }
            Event::Finished(end) => break end,
            _ => {}
        }
    };
    assert_eq!(end.reason, FinishReason::Cancelled);
    assert!(end.statistics.generated_tokens < 2000);
    assert!(generation.next().is_none());
    // Cancelled before it began: no token, and no error.
    let (text, end) = run(&engine, list().cancel_token(token));
    assert_eq!((text.as_str(), end.reason), ("", FinishReason::Cancelled));

    let started = Instant::now();
    let limit = Duration::from_millis(150);
    let request = list().ignore_ends().max_tokens(3900).deadline(limit);
    let (_, end) = run(&engine, request);
    assert_eq!(end.reason, FinishReason::Deadline);
    assert!(started.elapsed() >= limit);
    let (_, end) = run(&engine, list().deadline(Duration::ZERO));
    assert_eq!(end.reason, FinishReason::Deadline);
    assert_eq!(end.statistics.generated_tokens, 0);
}

#[test]
fn an_unloaded_model_says_so() {
    let (engine, other) = (demo(), demo());
    let handle = engine.clone();
    let waiting = handle
        .generate(list().ignore_ends().max_tokens(500))
        .unwrap();
    let queued = handle.generate(list()).unwrap();
    engine.unload().unwrap();
    let refused = handle.generate(list()).unwrap_err();
    assert!(matches!(refused, Error::Unloaded), "{refused}");
    // What ran when it was unloaded goes on; what waited does not.
    waiting.text().unwrap();
    let refused = queued.text().unwrap_err();
    assert!(matches!(refused, Error::Unloaded), "{refused}");
    assert!(!run(&other, list()).0.is_empty());
}

#[test]
fn what_does_not_fit_the_memory_limit_is_refused() {
    let error = Engine::builder(assets_dir().join("demo-model"))
        .memory_limit(1_000_000)
        .build()
        .unwrap_err();
    assert!(
        matches!(error, Error::Memory { needed, limit: 1_000_000, .. } if needed > 3_000_000),
        "{error}"
    );
    let engine = Engine::builder(assets_dir().join("demo-model"))
        .memory_limit(200_000_000)
        .build()
        .unwrap();
    let (text, end) = run(&engine, list());
    assert!(!text.is_empty());
    assert!(end.statistics.active_memory > 3_000_000);
    assert!(end.statistics.active_memory <= end.statistics.peak_memory);
    drop(engine);
    let engine = Engine::builder(assets_dir().join("demo-model"))
        // Calls of a prefill are as short as they get, and the keys and values are too many.
        .memory_limit(4_500_000)
        .build()
        .unwrap();
    let error = engine
        .generate(list().ignore_ends().max_tokens(3000))
        .unwrap()
        .text()
        .unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}

#[test]
fn settings_that_cannot_be_followed_are_refused_at_once() {
    let engine = demo();
    let refused = |request: Request| engine.generate(request).unwrap_err();
    let error = refused(list().sampling(Sampling::greedy().top_p(-1.0)));
    assert_eq!(error.to_string(), "sampling: top_p: -1 is not in 0 to 1");
    let error = refused(list().stop(""));
    assert!(matches!(
        error,
        Error::Request {
            setting: "stop",
            ..
        }
    ));
    let error = refused(Request::from_ids(vec![]));
    assert!(matches!(error, Error::EmptyPrompt));
    let error = refused(Request::from_ids(vec![1_000_000]));
    assert!(matches!(error, Error::TokenId { id: 1_000_000, .. }));
    let outside = Sampling::greedy().bias(1_000_000, 1.0);
    let error = engine.generate(list().sampling(outside)).unwrap().text();
    assert!(matches!(error, Err(Error::TokenId { .. })));
}

#[test]
fn the_stream_gives_the_same_events_without_blocking() {
    let engine = demo();
    let (expected, _) = run(&engine, list());
    let mut stream = pin!(engine.generate(list()).unwrap().into_stream());
    let mut context = Context::from_waker(Waker::noop());
    let (mut text, mut pending) = (String::new(), 0);
    loop {
        match stream.as_mut().poll_next(&mut context) {
            Poll::Ready(Some(event)) => {
                if let Event::Text(more) = event.unwrap() {
                    text += &more;
                }
            }
            Poll::Ready(None) => break,
            Poll::Pending => {
                pending += 1;
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert_eq!(text, expected);
    assert!(pending > 0, "the answer takes longer than one poll");
}

#[test]
fn little_time_a_token_is_spent_outside_mlx() {
    let engine = demo();
    let (_, end) = run(&engine, list().ignore_ends().max_tokens(400).stop("never"));
    let statistics = end.statistics;
    let each = statistics.host_time / statistics.generated_tokens as u32;
    assert!(each < Duration::from_micros(500), "{each:?} a token");
}

/// What MLX holds once the arrays of the last work are gone, which it frees a little later.
fn settled() -> usize {
    let levels = (0..50).map(|_| {
        thread::sleep(Duration::from_millis(5));
        mlx_rs::memory::active_memory().unwrap()
    });
    levels.min().unwrap()
}

/// Whether MLX comes to hold no more.
fn settles_at(level: usize) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if mlx_rs::memory::active_memory().unwrap() <= level {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_thousand_requests_and_their_cancellations_leak_nothing() {
    let engine = demo();
    drop(run(&engine, list()));
    // What is kept on purpose is no leak.
    engine.clear_memory_cache().unwrap();
    let before = settled();
    let mut state = 1u64;
    for index in 0..1000 {
        // Knuth's linear congruential generator (MMIX).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut generation = engine
            .generate(Request::from_ids(vec![2, 5, 9]).ignore_ends().max_tokens(3))
            .unwrap();
        for _ in 0..(state >> 33) % 6 {
            let Some(event) = generation.next() else {
                break;
            };
            event.unwrap();
        }
        if index % 3 == 0 {
            generation.cancel_token().cancel();
        }
    }
    engine.clear_memory_cache().unwrap();
    let after = mlx_rs::memory::active_memory().unwrap();
    assert!(settles_at(before), "{after} bytes after {before}");
}

#[test]
fn loading_fifty_times_returns_the_memory() {
    let keep = demo();
    drop(demo());
    let before = settled();
    for _ in 0..50 {
        let engine = demo();
        assert!(mlx_rs::memory::active_memory().unwrap() > before + 3_000_000);
        drop(engine);
    }
    assert!(settles_at(before));
    drop(keep);
}
