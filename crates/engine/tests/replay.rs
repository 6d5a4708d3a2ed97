//! Replay equality: a resumed run gives, bit for bit, what a run without cache gives that makes
//! the same forward calls. Each test asserts how many tokens were reused: a miss agrees for
//! free.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod reuse_support;

use prefill_engine::{
    DiskOptions, Gate, KvQuantization, LoadOptions, MlxThread, PrefixCache, Reused,
};
use reuse_support::{Loaded, Random, Turn, argmax, load, small_blocks};

const TURNS: usize = 3;

/// Where what is kept is found again.
#[derive(Debug, Clone, Copy)]
enum Tier {
    Ram,
    /// The cache is opened anew before every turn, with no memory of its own.
    Disk,
    /// Every other turn is from disk, the rest from memory.
    Mixed,
}

/// The answers of a run without cache.
fn expected(loaded: &Loaded, cache: &PrefixCache, turns: &[Turn]) -> Vec<Vec<f32>> {
    let mut before = None;
    let mut all = Vec::new();
    for turn in turns {
        let stops = cache.stops(&loaded.model, &turn.prepared.prompt);
        let (sequence, logits) = loaded.cold(before.take(), &stops, turn);
        before = Some(sequence);
        all.push(logits);
    }
    all
}

fn check(loaded: &Loaded, tolerance: f32, seed: u64) {
    let turns = loaded.conversation(TURNS, &mut Random(seed));
    let name = loaded.name;
    let plain = loaded.open(small_blocks());
    let first = expected(loaded, &plain, &turns);
    // Without this, nothing could be said of the rest.
    assert!(
        first == expected(loaded, &plain, &turns),
        "{name}: two cold runs differ"
    );

    for tier in [Tier::Ram, Tier::Disk, Tier::Mixed] {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskOptions::new(folder.path()).free_floor(0);
        let options = small_blocks().disk(disk).gate(Gate::Open);
        let options = match tier {
            Tier::Ram => small_blocks(),
            Tier::Disk => options.ram_bytes(0),
            Tier::Mixed => options,
        };
        let mut cache = loaded.open(options.clone());
        let mut before = 0;
        for (index, (turn, expected)) in turns.iter().zip(&first).enumerate() {
            let is_new = match tier {
                Tier::Ram => false,
                Tier::Disk => true,
                Tier::Mixed => index % 2 == 1,
            };
            if is_new {
                drop(cache);
                cache = loaded.open(options.clone());
            }
            let (logits, reused) = loaded.cached(&cache, turn);
            let what = format!("{name}, seed {seed}, {tier:?}, turn {index}: {reused:?}");
            assert_eq!(reused.tokens(), before, "{what}");
            let elsewhere = if is_new {
                reused.ram_tokens
            } else {
                reused.disk_tokens
            };
            assert_eq!(elsewhere, 0, "{what}");
            assert!(logits == *expected, "{what}");
            before = turn.end();
            // What memory has no room for is written behind.
            cache.write();
        }
        let (found, reused) = check_again(loaded, &cache, &turns, &first);
        let what = format!("{name}, seed {seed}, {tier:?}: {reused:?}");
        assert!(found < tolerance, "{what}: {found}");
    }
}

/// The same prompt once more computes one token. Its calls are cut otherwise, so that it says the
/// same, and is equal up to rounding: gives the largest difference.
fn check_again(
    loaded: &Loaded,
    cache: &PrefixCache,
    turns: &[Turn],
    expected: &[Vec<f32>],
) -> (f32, Reused) {
    let (turn, expected) = (turns.last().unwrap(), expected.last().unwrap());
    let (logits, reused) = loaded.cached(cache, turn);
    let what = format!("{}: {reused:?}", loaded.name);
    assert_eq!(reused.tokens(), turn.prepared.prompt.len() - 1, "{what}");
    assert_eq!(reused.shortfall, None, "{what}");
    let largest = logits
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    let steps = turn.answer.len() + 1;
    let width = logits.len() / steps;
    for (found, expected) in logits.chunks(width).zip(expected.chunks(width)) {
        assert_eq!(argmax(found), argmax(expected), "{what}");
    }
    (largest, reused)
}

/// How far logits may be off where forward calls are cut otherwise.
const ROUNDING: f32 = 2e-4;

/// The same with rows of 4 bits, where rounding can move a value to the next of 16 levels (on
/// CUDA one of the last token's did: 6e-3).
const ROUNDING_TO_LEVELS: f32 = 2e-2;

fn check_kinds(name: &'static str, group: i32) {
    let thread = MlxThread::claim().unwrap();
    for (kind, (kv, tolerance)) in [
        (None, ROUNDING),
        (Some(KvQuantization::new(8).group_size(group)), ROUNDING),
        // From the middle of the first turn on, with layers that differ.
        (
            Some(
                KvQuantization::new(4)
                    .group_size(group)
                    .start(40)
                    .layer(1, 8, group)
                    .plain_layer(0),
            ),
            ROUNDING_TO_LEVELS,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut options = LoadOptions::default();
        if let Some(kv) = kv {
            options = options.quantized_kv(kv);
        }
        let loaded = load(&thread, name, options);
        for seed in 0..seeds() {
            check(&loaded, tolerance, 100 * kind as u64 + seed);
        }
    }
}

/// How many conversations of each kind: more where the variable asks for it.
fn seeds() -> u64 {
    let asked = std::env::var("PREFILL_REPLAYS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

macro_rules! replays {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check_kinds(stringify!($name), 32);
        }
    )*};
}

replays! {
    gemma4_e2b gemma4_26b gemma4_unified gemma3_text
    qwen3 qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe
}
