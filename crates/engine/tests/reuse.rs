//! What programs see of reuse: engines, requests and folders, on the bundled model.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod engine_support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use engine_support::run;
use prefill_engine::{
    CacheOptions, CachePolicy, Conversation, DiskOptions, Engine, EngineBuilder, Gate, MediaKind,
    Message, Request, Reused, Shortfall,
};
use prefill_test_support::{assets_dir, reference_dir};

const QUESTIONS: [&str; 3] = [
    "What is in the picture?",
    "How many shapes are in the picture?",
    "What colour is the circle in the picture?",
];

fn shapes() -> PathBuf {
    assets_dir().join("demo/shapes.png")
}

fn photo() -> PathBuf {
    reference_dir().join("media/photo.png")
}

fn small_blocks() -> CacheOptions {
    CacheOptions::default().block_size(32).gate(Gate::Open)
}

fn on_disk(folder: &Path) -> CacheOptions {
    small_blocks().disk(disk(folder))
}

fn disk(folder: &Path) -> DiskOptions {
    DiskOptions::new(folder).free_floor(0)
}

fn demo(cache: CacheOptions) -> Engine {
    builder(cache).build().unwrap()
}

fn builder(cache: CacheOptions) -> EngineBuilder {
    Engine::builder(assets_dir().join("demo-model")).cache(cache)
}

fn about(picture: PathBuf, question: &str) -> Request {
    Request::new(Conversation::user(
        question,
        [(MediaKind::Image, picture.into())],
    ))
}

fn reused(engine: &Engine, request: Request) -> Reused {
    run(engine, request).1.statistics.reused
}

/// The answers of an engine that keeps nothing.
fn answers() -> [String; 3] {
    let engine = demo(small_blocks().ram_bytes(0));
    QUESTIONS.map(|question| {
        let (text, end) = run(&engine, about(shapes(), question));
        assert_eq!(end.statistics.reused.tokens(), 0);
        text
    })
}

#[test]
fn the_second_question_about_a_picture_feeds_only_the_question() {
    let engine = demo(small_blocks());
    let expected = answers();
    for (index, question) in QUESTIONS.iter().enumerate() {
        let (text, end) = run(&engine, about(shapes(), question));
        assert_eq!(text, expected[index]);
        let found = end.statistics.reused;
        let first = index == 0;
        assert_eq!(found.encoded_media, usize::from(first), "{found:?}");
        assert_eq!(found.media_in_prefix, usize::from(!first), "{found:?}");
        // A picture takes 64 of the places.
        assert_eq!(found.tokens() > 64, !first, "{found:?}");
    }
    // The same again computes one token.
    let (text, end) = run(&engine, about(shapes(), QUESTIONS[0]));
    assert_eq!(text, expected[0]);
    assert_eq!(end.statistics.computed_tokens(), 1);
    assert_eq!(end.statistics.reused.shortfall, None);
    // Another picture under the same words is another prompt.
    let found = reused(&engine, about(photo(), QUESTIONS[0]));
    assert!(found.tokens() < 8 && found.encoded_media == 1, "{found:?}");
    assert_eq!(found.shortfall, Some(Shortfall::NotStored));
}

#[test]
fn another_engine_finds_it_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    let engine = demo(on_disk(folder.path()));
    let (_, first) = run(&engine, about(shapes(), QUESTIONS[0]));
    assert!(first.statistics.reused.kept_bytes > 0);
    drop(engine);

    let engine = demo(on_disk(folder.path()));
    let (text, end) = run(&engine, about(shapes(), QUESTIONS[1]));
    assert_eq!(text, expected[1]);
    let found = end.statistics.reused;
    assert!(found.disk_tokens > 64 && found.ram_tokens == 0, "{found:?}");
    assert!(
        found.restored_bytes > 0 && found.encoded_media == 0,
        "{found:?}"
    );
    // What was read is in memory now.
    let found = reused(&engine, about(shapes(), QUESTIONS[2]));
    assert!(found.ram_tokens > 64 && found.disk_tokens == 0, "{found:?}");
    let stats = engine.cache_stats();
    assert!(
        stats.disk_records > 0 && stats.restored_bytes > 0,
        "{stats:?}"
    );
    // Features are found where the prompt is not.
    let elsewhere = Conversation::from_json(&serde_json::json!([
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": [
            {"type": "image", "path": shapes()},
            {"type": "text", "text": "What is here?"},
        ]},
    ]));
    drop(engine);
    let engine = demo(on_disk(folder.path()));
    let found = reused(&engine, Request::new(elsewhere.unwrap()));
    assert_eq!((found.disk_media, found.encoded_media), (1, 0), "{found:?}");
}

#[test]
fn what_is_kept_is_written_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let disk = disk(folder.path()).write_after(Duration::from_millis(300));
    let engine = demo(small_blocks().disk(disk));
    run(&engine, about(shapes(), QUESTIONS[0]));
    assert_eq!(engine.cache_stats().written_bytes, 0, "not at once");
    let until = Instant::now() + Duration::from_secs(20);
    while engine.cache_stats().written_bytes == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    let written = engine.cache_stats().written_bytes;
    assert!(written > 0);
    // What is durable is not written again.
    run(&engine, about(shapes(), QUESTIONS[0]));
    engine.flush_cache().unwrap();
    assert_eq!(engine.cache_stats().written_bytes, written);
}

#[test]
fn nothing_is_written_where_that_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    drop(demo(on_disk(folder.path())));
    let engine = demo(small_blocks().disk(disk(folder.path()).never_write()));
    run(&engine, about(shapes(), QUESTIONS[0]));
    drop(engine);
    let engine = demo(on_disk(folder.path()));
    assert_eq!(engine.cache_stats().disk_records, 0);
}

#[test]
fn a_day_has_only_so_many_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let engine = demo(small_blocks().disk(disk(folder.path()).daily_bytes(0)));
    run(&engine, about(shapes(), QUESTIONS[0]));
    engine.flush_cache().unwrap();
    let stats = engine.cache_stats();
    assert_eq!(
        (stats.written_bytes, stats.disk_records),
        (0, 0),
        "{stats:?}"
    );
    assert!(stats.ram_bytes > 0);
}

/// A disk that takes nothing costs no answer.
#[test]
fn a_full_disk_costs_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    for options in [
        disk(folder.path()).limit(1),
        disk(folder.path()).limit(4096).queue_bytes(1),
        disk(folder.path()).free_floor(u64::MAX / 2),
    ] {
        let engine = demo(small_blocks().ram_bytes(0).disk(options));
        for (question, expected) in QUESTIONS.iter().zip(&expected) {
            let (text, end) = run(&engine, about(shapes(), question));
            assert_eq!(text, *expected);
            assert_eq!(end.statistics.reused.tokens(), 0);
            engine.flush_cache().unwrap();
        }
        let stats = engine.cache_stats();
        assert!(stats.failed_writes + stats.dropped_bytes > 0, "{stats:?}");
    }
}

/// A store that vanishes under a running engine is a miss.
#[test]
fn a_wiped_folder_costs_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    let engine = demo(on_disk(folder.path()));
    run(&engine, about(shapes(), QUESTIONS[0]));
    engine.clear_memory_cache().unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    for (question, expected) in QUESTIONS.iter().zip(&expected) {
        let (text, end) = run(&engine, about(shapes(), question));
        assert_eq!(text, *expected);
        assert_eq!(end.statistics.reused.disk_tokens, 0);
    }
    drop(engine);
}

/// Every byte that is turned over is noticed: what cannot be trusted is computed again, and
/// counted.
#[test]
fn damaged_files_are_noticed_and_healed() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    drop(run(
        &demo(on_disk(folder.path())),
        about(shapes(), QUESTIONS[0]),
    ));
    for path in files(folder.path()) {
        let is_pack = fs::metadata(&path).unwrap().len() > 16 << 10;
        if is_pack {
            let mut bytes = fs::read(&path).unwrap();
            for byte in bytes.iter_mut().step_by(64) {
                *byte ^= 0x10;
            }
            fs::write(&path, bytes).unwrap();
        }
    }
    let engine = demo(on_disk(folder.path()));
    let (text, end) = run(&engine, about(shapes(), QUESTIONS[0]));
    assert_eq!(text, expected[0]);
    let found = end.statistics.reused;
    assert_eq!((found.tokens(), found.encoded_media), (0, 1), "{found:?}");
    assert_eq!(found.shortfall, Some(Shortfall::Damaged));
    assert!(engine.cache_stats().faults > 0);
    drop(engine);
    let engine = demo(on_disk(folder.path()));
    let found = reused(&engine, about(shapes(), QUESTIONS[0]));
    assert_eq!(found.shortfall, None, "{found:?}");
    assert!(found.disk_tokens > 64);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

/// Fifty conversations with one system prompt hold it once.
#[test]
fn a_shared_beginning_is_kept_once() {
    let engine = demo(small_blocks());
    let system = "You are asked about shapes and colours. ".repeat(12);
    let ask = |index: usize| {
        let messages = serde_json::json!([
            {"role": "system", "content": system},
            {"role": "user", "content": format!("How many shapes are in picture {index}?")},
        ]);
        Request::new(Conversation::from_json(&messages).unwrap()).max_tokens(2)
    };
    let first = run(&engine, ask(0)).1.statistics;
    let alone = engine.cache_stats().ram_bytes;
    let mut each = Vec::new();
    for index in 1..50 {
        let before = engine.cache_stats().ram_bytes;
        let statistics = run(&engine, ask(index)).1.statistics;
        assert!(statistics.reused.tokens() * 10 > first.prompt_tokens * 7);
        each.push(engine.cache_stats().ram_bytes - before);
    }
    let most = each.iter().max().unwrap();
    assert!(
        most * 2 < alone,
        "{most} bytes each beside {alone} for the first"
    );
}

/// A long beginning and its pictures are fed once, whatever follows them.
#[test]
fn a_long_beginning_with_pictures_is_fed_once() {
    let engine = demo(CacheOptions::default().gate(Gate::Open));
    let media = reference_dir().join("media");
    let mut conversation = Conversation::default();
    let rule = "You are asked about shapes and colours. ";
    conversation.push(Message::system().text(rule.repeat(130)));
    let pictures = [
        shapes(),
        photo(),
        media.join("small.png"),
        media.join("tall.png"),
    ];
    let (first_pictures, fourth) = pictures.split_at(3);
    let mut ask = Message::user();
    for picture in first_pictures {
        ask = ask.image(picture.clone());
    }
    conversation.push(ask.text(QUESTIONS[0]));
    // Of each turn: everything before it is found, and what is new is fed and encoded.
    let next = [
        Message::user().text(QUESTIONS[1]),
        Message::user().image(fourth[0].clone()).text(QUESTIONS[2]),
    ];
    let mut known = 0;
    for (turn, encoded) in [3, 0, 1].into_iter().enumerate() {
        let request = Request::new(conversation.clone()).max_tokens(12);
        let (text, end) = run(&engine, request.clone());
        let statistics = end.statistics;
        let found = &statistics.reused;
        assert!(statistics.prompt_tokens > 2000 + 3 * 64);
        assert!(found.tokens() >= known, "{known} known, {found:?}");
        let fed = statistics.prompt_tokens - known;
        assert!(statistics.computed_tokens() <= fed, "{fed} are new");
        assert_eq!(found.encoded_media, encoded, "{found:?}");
        assert_eq!(found.media_in_prefix, if turn == 0 { 0 } else { 3 });
        // The same again computes one token.
        let (again, end) = run(&engine, request);
        assert_eq!(again, text);
        assert_eq!(end.statistics.computed_tokens(), 1);
        // So far out the small model thinks aloud at times, and thoughts are not repeated to it:
        // what is sure to be asked again is the prompt, but for its last token.
        known = statistics.prompt_tokens - 1;
        if let Some(message) = next.get(turn) {
            conversation.push(Message::assistant().text(text));
            conversation.push(message.clone());
        }
    }
}

/// However long a conversation grows, it has two ends inside blocks: its prompt's and its
/// answer's.
#[test]
fn ends_do_not_pile_up() {
    let folder = tempfile::tempdir().unwrap();
    let engine = demo(on_disk(folder.path()));
    let mut messages = serde_json::json!([]);
    let mut records = Vec::new();
    for turn in 0..8 {
        let list = messages.as_array_mut().unwrap();
        list.push(serde_json::json!({
            "role": "user", "content": format!("How many shapes are in picture {turn}?"),
        }));
        let request = Request::new(Conversation::from_json(&messages).unwrap());
        let (text, end) = run(&engine, request.max_tokens(6));
        if turn > 0 {
            assert!(end.statistics.reused.tokens() > 0);
        }
        let list = messages.as_array_mut().unwrap();
        list.push(serde_json::json!({"role": "assistant", "content": text}));
        engine.flush_cache().unwrap();
        let blocks = end.statistics.prompt_tokens / 32;
        records.push(engine.cache_stats().ram_records - blocks);
    }
    let most = records[2..].iter().max().unwrap();
    let least = records[2..].iter().min().unwrap();
    // Within a checkpoint and its rows of each other.
    assert!(most - least <= 2, "{records:?}");
    let stats = engine.cache_stats();
    assert!(stats.disk_records <= stats.ram_records + 2, "{stats:?}");
}

/// Many threads, cancellations at any time, little memory, one folder: right answers, and the
/// memory comes back.
#[test]
fn crowds_get_right_answers_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    let options = on_disk(folder.path()).ram_bytes(200 << 10);
    let engine = demo(options);
    run(&engine, about(shapes(), QUESTIONS[0]));
    engine.clear_memory_cache().unwrap();
    let level = mlx_rs::memory::active_memory().unwrap();
    thread::scope(|scope| {
        for worker in 0..4u64 {
            let (engine, expected) = (&engine, &expected);
            scope.spawn(move || {
                let mut state = worker;
                for _ in 0..50 {
                    // Knuth's linear congruential generator (MMIX).
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let which = (state >> 33) as usize;
                    let question = which % 3;
                    let request = about(shapes(), QUESTIONS[question]);
                    let policy = match which / 3 % 8 {
                        0 => CachePolicy::Bypass,
                        1 => CachePolicy::ReadOnly,
                        _ => CachePolicy::ReadWrite,
                    };
                    let mut generation = engine.generate(request.cache(policy)).unwrap();
                    if (which / 24).is_multiple_of(3) {
                        for _ in 0..which / 72 % 6 {
                            generation.next().unwrap().unwrap();
                        }
                        generation.cancel_token().cancel();
                    } else {
                        assert_eq!(generation.text().unwrap(), expected[question]);
                    }
                }
            });
        }
    });
    let stats = engine.cache_stats();
    assert!(stats.ram_bytes <= stats.ram_limit, "{stats:?}");
    assert!(stats.ram_tokens > 0 && stats.faults == 0, "{stats:?}");
    engine.clear_memory_cache().unwrap();
    assert_eq!(engine.cache_stats().ram_bytes, 0);
    let until = Instant::now() + Duration::from_secs(10);
    while mlx_rs::memory::active_memory().unwrap() > level && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let after = mlx_rs::memory::active_memory().unwrap();
    assert!(after <= level, "{after} bytes after {level}");
}

/// Requests that need the same picture at once have it encoded once.
#[test]
fn what_is_needed_twice_at_once_is_computed_once() {
    let engine = demo(small_blocks());
    let generations: Vec<_> = (0..6)
        .map(|index| about(shapes(), QUESTIONS[index % 3]))
        .map(|request| engine.generate(request).unwrap())
        .collect();
    let texts: Vec<String> = generations
        .into_iter()
        .map(|generation| generation.text().unwrap())
        .collect();
    assert_eq!(texts[..3], answers());
    assert_eq!(engine.cache_stats().encoded_media, 1);
    // In one prompt, too.
    let twice = [
        (MediaKind::Image, photo().into()),
        (MediaKind::Image, photo().into()),
    ];
    let request = Request::new(Conversation::user("What is in the pictures?", twice));
    assert_eq!(reused(&engine, request.max_tokens(1)).encoded_media, 1);
}

/// What is kept gives way to what is asked for.
#[test]
fn memory_pressure_drops_what_is_kept_first() {
    let engine = demo(small_blocks());
    let weights = mlx_rs::memory::active_memory().unwrap();
    for question in QUESTIONS {
        run(&engine, about(shapes(), question));
    }
    let kept = engine.cache_stats().ram_bytes;
    let in_use = mlx_rs::memory::active_memory().unwrap();
    // Room for another model's weights only if some of what is kept goes.
    let limit = in_use + weights - kept as usize / 2;
    let second = builder(small_blocks()).memory_limit(limit).build().unwrap();
    let left = engine.cache_stats().ram_bytes;
    assert!(left <= kept / 2 && left > 0, "{left} bytes of {kept}");
    drop(second);
}

const KILLED_IN: &str = "PREFILL_TEST_KILLED_IN";

/// Asks and writes until it is killed, by the test below.
#[test]
#[ignore = "a part of the next test, in a process of its own"]
fn a_process_that_is_killed() {
    let Some(folder) = std::env::var_os(KILLED_IN) else {
        return;
    };
    let disk = disk(Path::new(&folder)).write_after(Duration::ZERO);
    let engine = demo(small_blocks().disk(disk));
    println!("ready");
    for question in QUESTIONS.iter().cycle() {
        for picture in [shapes(), photo()] {
            run(&engine, about(picture, question).max_tokens(8));
            engine.flush_cache().unwrap();
            engine.clear_memory_cache().unwrap();
        }
    }
}

/// A process that dies at any moment leaves a folder from which the next one answers right.
#[test]
fn a_killed_process_leaves_a_sound_folder() {
    let folder = tempfile::tempdir().unwrap();
    let expected = answers();
    for delay in [0, 20, 60, 110, 170, 260] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "a_process_that_is_killed",
            ])
            .env(KILLED_IN, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();

        let engine = demo(on_disk(folder.path()));
        for (question, expected) in QUESTIONS.iter().zip(&expected) {
            assert_eq!(run(&engine, about(shapes(), question)).0, *expected);
        }
        assert_eq!(engine.cache_stats().faults, 0);
    }
}
