//! What is not the same is never taken for it: each change misses exactly where it must, and
//! gives the answer of a run without cache.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod reuse_support;

use prefill_engine::{
    CacheOptions, CachePolicy, DiskOptions, Gate, KvQuantization, LoadOptions, MediaKind,
    MlxThread, PrefixCache, PreparedMedium, PreparedPrompt, Preparer, Shortfall, TemplateOptions,
};
use prefill_media_preprocess::MediaDigest;
use prefill_test_support::Golden;
use reuse_support::{BLOCK, Loaded, Turn, go_on, join, load, push, small_blocks};

const SMALL: (MediaKind, &str) = (MediaKind::Image, "small.png");
const PHOTO: (MediaKind, &str) = (MediaKind::Image, "photo.png");

fn turn(prepared: PreparedPrompt) -> Turn {
    Turn {
        prepared,
        answer: vec![7, 8, 9],
    }
}

fn cold(loaded: &Loaded, cache: &PrefixCache, turn: &Turn) -> Vec<f32> {
    let stops = cache.stops(&loaded.model, &turn.prepared.prompt);
    loaded.cold(None, &stops, turn).1
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

/// Runs `first`, then `second` after it: how many tokens the second reused, and whether its
/// answer was that of a run of its own, up to the rounding of other calls.
fn after(loaded: &Loaded, options: CacheOptions, first: &Turn, second: &Turn) -> (usize, bool) {
    let cache = loaded.open(options);
    loaded.cached(&cache, first);
    let (found, reused) = loaded.cached(&cache, second);
    let expected = cold(loaded, &cache, second);
    (
        reused.tokens(),
        largest_difference(&found, &expected) < 2e-4,
    )
}

/// Another picture of the same size: the negative of the first.
fn negative(mut prepared: PreparedPrompt, medium: usize) -> PreparedPrompt {
    let digest = MediaDigest([medium as u8 + 1; 32]);
    let values = match &mut prepared.media[medium] {
        PreparedMedium::Image(image) => {
            image.digest = digest;
            &mut image.pixel_values
        }
        PreparedMedium::QwenImage(image) => {
            image.digest = digest;
            &mut image.pixel_values
        }
        other => panic!("no picture: {other:?}"),
    };
    for value in values {
        *value = 0.5 - *value;
    }
    for span in &mut prepared.prompt.spans {
        if span.medium == medium {
            span.digest = digest.0;
        }
    }
    prepared
}

/// Two pictures, of which the first of one prompt is the second of the other.
fn swapped(loaded: &Loaded) -> [Turn; 2] {
    let both = loaded.turn("What is this?", &[SMALL, SMALL]);
    [0, 1].map(|medium| turn(negative(both.clone(), medium)))
}

#[test]
fn another_picture_under_the_same_words_is_another_prompt() {
    let thread = MlxThread::claim().unwrap();
    for name in [
        "gemma4_e2b",
        "gemma4_26b",
        "gemma4_unified",
        "qwen3_vl",
        "qwen3_5",
    ] {
        let loaded = load(&thread, name, LoadOptions::default());
        let first = turn(loaded.turn("What is this?", &[SMALL]));
        let second = turn(negative(first.prepared.clone(), 0));
        assert_eq!(first.prepared.prompt.ids, second.prepared.prompt.ids);
        let start = first.prepared.prompt.spans[0].start;
        let (reused, is_right) = after(&loaded, small_blocks(), &first, &second);
        assert!(
            reused <= start,
            "{name}: {reused} tokens, the picture is at {start}"
        );
        assert!(is_right, "{name}");
        // And the same picture is the same prompt.
        let (reused, is_right) = after(&loaded, small_blocks(), &first, &first);
        assert_eq!(reused, first.prepared.prompt.len() - 1, "{name}");
        assert!(is_right, "{name}");
    }
}

#[test]
fn the_order_of_pictures_matters() {
    let thread = MlxThread::claim().unwrap();
    for name in ["gemma4_e2b", "gemma4_26b", "qwen3_vl", "qwen3_5"] {
        let loaded = load(&thread, name, LoadOptions::default());
        let [first, second] = swapped(&loaded);
        let (reused, is_right) = after(&loaded, small_blocks(), &first, &second);
        let start = first.prepared.prompt.spans[0].start;
        assert!(reused <= start && is_right, "{name}: {reused} tokens");
    }
}

/// With keys that are blind to pictures the tests of this file would fail: the answer about
/// some pictures is given for others.
#[test]
fn a_broken_key_is_noticed() {
    let thread = MlxThread::claim().unwrap();
    for name in ["gemma4_e2b", "gemma4_26b", "qwen3_vl", "qwen3_5"] {
        let loaded = load(&thread, name, LoadOptions::default());
        let [first, second] = swapped(&loaded);
        let blind = small_blocks().with_blind_keys();
        let (reused, is_right) = after(&loaded, blind, &first, &second);
        assert_eq!(reused, first.prepared.prompt.len() - 1, "{name}");
        assert!(!is_right, "{name}: another order gives another answer");
    }
}

/// A later picture changes nothing before it.
#[test]
fn what_comes_before_a_new_picture_is_reused() {
    let thread = MlxThread::claim().unwrap();
    for name in ["gemma4_e2b", "gemma4_26b", "qwen3_vl"] {
        let loaded = load(&thread, name, LoadOptions::default());
        let first = turn(loaded.turn("What is this?", &[SMALL]));
        let mut shared = first.prepared.clone();
        push(&mut shared.prompt, &first.answer);
        let second = turn(join(shared, &loaded.turn("And this?", &[SMALL])));
        let (reused, is_right) = after(&loaded, small_blocks(), &first, &second);
        assert_eq!(reused, first.end(), "{name}");
        assert!(is_right, "{name}");
    }
}

/// Where pictures see themselves as a whole, nothing ends inside one, wherever blocks end.
#[test]
fn no_prefix_ends_inside_a_picture_that_sees_itself() {
    let thread = MlxThread::claim().unwrap();
    let loaded = load(&thread, "gemma4_26b", LoadOptions::default());
    for words in 0..BLOCK {
        let text = vec!["two"; words + 1].join(" ");
        let first = loaded.turn(&text, &[PHOTO]);
        let group = first.prompt.attention.groups()[0].clone();
        // A prompt that parts from the first inside the picture, in what it holds of it.
        let second = loaded.turn(&text, &[SMALL]);
        let cache = loaded.open(small_blocks());
        for prepared in [&first, &second, &first, &second] {
            let run = cache.prefill(&loaded.model, prepared, CachePolicy::ReadWrite, &mut go_on);
            let reused = run.unwrap().1.reused().tokens();
            let inside = group.start + 1..group.end;
            assert!(!inside.contains(&reused), "{reused} in {group:?}");
        }
    }
}

/// Other resolutions of one picture are other pictures.
#[test]
fn another_budget_is_another_picture() {
    let thread = MlxThread::claim().unwrap();
    let loaded = load(&thread, "gemma4_e2b", LoadOptions::default());
    let turns = ["image_budget_140", "image_budget_280"].map(|case| {
        let golden = Golden::read("gemma4_e2b", case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let checkpoint = prefill_engine::Checkpoint::open(folder.path()).unwrap();
        let conversation =
            prefill_engine::Conversation::from_json(&golden.messages_with_paths()).unwrap();
        let preparer = Preparer::open(&checkpoint).unwrap();
        turn(
            preparer
                .prepare(&conversation, &TemplateOptions::default())
                .unwrap(),
        )
    });
    let [first, second] = &turns;
    assert_ne!(
        first.prepared.media[0].digest(),
        second.prepared.media[0].digest()
    );
    let (reused, is_right) = after(&loaded, small_blocks(), first, second);
    assert!(reused <= second.prepared.prompt.spans[0].start && is_right);
}

/// What one folder holds of another model, or of the same computed otherwise, is not found;
/// what it holds of the same is.
#[test]
fn another_model_finds_nothing() {
    let thread = MlxThread::claim().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskOptions::new(folder.path()).free_floor(0);
    let options = small_blocks().disk(disk).gate(Gate::Open);
    let kv = |kv: KvQuantization| LoadOptions::default().quantized_kv(kv.group_size(32));
    let runs = |name, load_options: LoadOptions| {
        let loaded = load(&thread, name, load_options);
        let turn = turn(loaded.turn("What is this?", &[SMALL]));
        let cache = loaded.open(options.clone());
        let (_, reused) = loaded.cached(&cache, &turn);
        drop(cache);
        (reused, turn.prepared.prompt.len() - 1)
    };
    for (index, load_options) in [
        LoadOptions::default(),
        kv(KvQuantization::new(8)),
        kv(KvQuantization::new(4)),
        kv(KvQuantization::new(8).start(32)),
    ]
    .into_iter()
    .enumerate()
    {
        let (reused, _) = runs("gemma4_e2b", load_options.clone());
        assert_eq!(reused.tokens(), 0, "{load_options:?}");
        // Features are the same however keys and values are kept.
        assert_eq!(
            reused.disk_media,
            usize::from(index > 0),
            "{load_options:?}"
        );
        let (reused, whole) = runs("gemma4_e2b", load_options);
        assert_eq!(reused.tokens(), whole);
    }
    // Other weights.
    assert_eq!(runs("gemma4_26b", LoadOptions::default()).0.tokens(), 0);
    assert_eq!(runs("gemma4_26b", LoadOptions::default()).0.disk_media, 0);
}

#[test]
fn tenants_find_nothing_of_each_other() {
    let thread = MlxThread::claim().unwrap();
    let loaded = load(&thread, "gemma4_e2b", LoadOptions::default());
    let cache = loaded.open(small_blocks());
    let prepared = loaded.turn("What is this?", &[SMALL]);
    let run = |tenant: Option<&[u8]>, policy| {
        let run = cache.prefill_for(&loaded.model, &prepared, policy, tenant, &mut go_on);
        run.unwrap().1.reused()
    };
    let whole = prepared.prompt.len() - 1;
    for tenant in [None, Some(&b"one"[..]), Some(b"two"), Some(b"")] {
        let first = run(tenant, CachePolicy::ReadWrite);
        assert_eq!(
            (first.tokens(), first.ram_media, first.encoded_media),
            (0, 0, 1)
        );
        let again = run(tenant, CachePolicy::ReadWrite);
        assert_eq!((again.tokens(), again.media_in_prefix), (whole, 1));
    }
    // A request may keep out of it, in either direction.
    let bypassed = run(None, CachePolicy::Bypass);
    assert_eq!((bypassed.tokens(), bypassed.encoded_media), (0, 1));
    assert_eq!(bypassed.shortfall, Some(Shortfall::NotAsked));
    let read = run(Some(b"three"), CachePolicy::ReadOnly);
    assert_eq!((read.tokens(), read.kept_bytes), (0, 0));
    assert_eq!(run(Some(b"three"), CachePolicy::ReadWrite).tokens(), 0);
}
