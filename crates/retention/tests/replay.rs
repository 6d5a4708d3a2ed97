//! Replays of traces: the generated ones, and the Mooncake traces where they are.

#[path = "../examples/replay/trace.rs"]
mod trace;

use std::path::Path;

use prefill_retention::replay::{Request, blocks, bound, synthetic};
use prefill_retention::{Adaptive, Arc, GreedyDual, Lru, Policy, S3Fifo, WTinyLfu};

const BLOCK: u64 = synthetic::BLOCK_TOKENS;

fn ratio(trace: &[Request], capacity: u64, policy: impl Policy) -> f64 {
    let outcome = blocks(trace, BLOCK, capacity * BLOCK, policy);
    let best = bound(trace, BLOCK, capacity * BLOCK);
    assert!(
        outcome.served_bytes <= best.served_bytes,
        "more than the offline bound"
    );
    assert_eq!(
        (outcome.requests, outcome.bytes),
        (best.requests, best.bytes)
    );
    outcome.token_hit_ratio()
}

fn others() -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(Lru::default()),
        Box::new(GreedyDual::size()),
        Box::new(GreedyDual::size_frequency(Some(4))),
        Box::new(GreedyDual::cost_size()),
        Box::new(Arc::default()),
        Box::new(S3Fifo::default()),
        Box::new(WTinyLfu::default()),
    ]
}

/// `Adaptive` serves at least `share` of what the best other policy does.
fn keeps_up(trace: &[Request], capacity: u64, share: f64) {
    let adaptive = ratio(trace, capacity, Adaptive::default());
    for policy in others() {
        let name = policy.name();
        let other = ratio(trace, capacity, policy);
        assert!(
            adaptive >= share * other,
            "{adaptive:.4} of adaptive, {other:.4} of {name} with {capacity} blocks"
        );
    }
}

#[test]
fn a_replay_counts_what_a_pencil_would() {
    let request = |blocks: &[u64], tokens| Request {
        blocks: blocks.to_vec(),
        tokens,
    };
    let trace = [
        request(&[1, 2, 3], 1100),
        request(&[1, 2, 4], 1300),
        request(&[9], 100),
        request(&[1, 2, 3], 1100),
    ];
    // All fit: 2 blocks of the second, and all of the fourth request.
    let all = blocks(&trace, BLOCK, 10 * BLOCK, Lru::default());
    assert_eq!((all.tokens, all.served_tokens), (3600, 1024 + 1100));
    assert_eq!((all.served_bytes, all.evictions), (5 * BLOCK, 0));
    assert_eq!(
        bound(&trace, BLOCK, 10 * BLOCK).served_tokens,
        all.served_tokens
    );
    // With three blocks, 3 goes for 4 and 4 for 9; 1 and 2 stay.
    let three = blocks(&trace, BLOCK, 3 * BLOCK, Lru::default());
    assert_eq!((three.served_tokens, three.evictions), (1024 + 1024, 3));
    // The bound knows not to take 4 and 9.
    let best = bound(&trace, BLOCK, 3 * BLOCK);
    assert_eq!((best.served_tokens, best.evictions), (1024 + 1100, 0));
}

#[test]
fn adaptive_keeps_up_on_generated_traces() {
    for capacity in [40, 140, 280, 560, 1400] {
        keeps_up(&synthetic::mixed(1, 6000), capacity, 0.98);
        keeps_up(&synthetic::chats(2, 3000, 40), capacity, 0.95);
    }
}

#[test]
fn a_flood_does_not_wash_the_cache_out() {
    let chats = synthetic::chats(3, 2000, 10);
    let flood = synthetic::flood(4, 2000, 10);
    let trace: Vec<Request> = chats
        .into_iter()
        .zip(flood)
        .flat_map(|(chat, flood)| [chat, flood])
        .collect();
    let lru = ratio(&trace, 150, Lru::default());
    let adaptive = ratio(&trace, 150, Adaptive::default());
    assert!(
        adaptive > 1.1 * lru,
        "{adaptive:.4} of adaptive, {lru:.4} of lru"
    );
}

#[test]
fn refusing_one_shots_spares_insertions() {
    let trace = synthetic::mixed(5, 6000);
    let all = blocks(&trace, BLOCK, 140 * BLOCK, Adaptive::default());
    let some = blocks(
        &trace,
        BLOCK,
        140 * BLOCK,
        Adaptive::default().refusing_below(0.5),
    );
    assert!(some.refusals > 0 && some.evictions < all.evictions);
}

/// Token hit ratios in percent at 0.5, 1, 2, 5, 10 and 20 % of all blocks, of another
/// simulator: LRU, then the best of FIFO, LRU, LFU, GDSF, SIEVE, S3-FIFO, ARC and W-TinyLFU.
const CONVERSATION: [(f64, f64, f64); 6] = [
    (0.5, 4.5, 6.4),
    (1.0, 5.4, 8.9),
    (2.0, 8.1, 12.6),
    (5.0, 20.0, 21.4),
    (10.0, 28.4, 29.4),
    (20.0, 35.2, 35.2),
];
const SYNTHETIC: [(f64, f64, f64); 5] = [
    (1.0, 3.9, 4.3),
    (2.0, 7.9, 8.4),
    (5.0, 16.0, 16.6),
    (10.0, 26.7, 27.5),
    (20.0, 40.0, 41.3),
];

#[test]
#[ignore = "needs the Mooncake traces: PREFILL_TRACES=folder cargo test -- --ignored"]
fn the_mooncake_traces_give_the_published_ratios() {
    let folder = std::env::var("PREFILL_TRACES").expect("PREFILL_TRACES names their folder");
    for (name, table) in [
        ("conversation", &CONVERSATION[..]),
        ("synthetic", &SYNTHETIC[..]),
    ] {
        let file = format!("mooncake_fast25_{name}_trace.jsonl.gz");
        let trace = trace::read(&Path::new(&folder).join(file)).expect("a trace");
        let distinct = trace::distinct_blocks(&trace) as f64;
        for (share, expected, best) in table {
            let capacity = (share / 100.0 * distinct) as u64;
            let lru = 100.0 * ratio(&trace, capacity, Lru::default());
            assert!(
                (lru - expected).abs() <= 0.051,
                "{lru:.3} of LRU at {share} %"
            );
            let adaptive = 100.0 * ratio(&trace, capacity, Adaptive::default());
            assert!(
                adaptive >= 0.98 * best,
                "{adaptive:.3} of adaptive at {share} %"
            );
            keeps_up(&trace, capacity, 0.98);
        }
    }
}
