//! Time per operation and memory per entry with 1,000,000 entries.
//!
//! `cargo bench -p prefill-retention` alternates the policies over three rounds and prints the
//! medians. Keys are 32 bytes, as block keys are; accesses and sizes are pseudo-random.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use prefill_retention::{
    Adaptive, Arc, Budget, GreedyDual, Lru, NewEntry, Policy, S3Fifo, WTinyLfu,
};

const ROUNDS: usize = 3;
const BYTES: u64 = 1000;

type Key = [u64; 4];
type Make = fn() -> Box<dyn Policy>;

const POLICIES: [(&str, Make); 7] = [
    ("lru", || Box::new(Lru::default())),
    ("greedy-dual", || Box::new(GreedyDual::size())),
    ("cost-size", || Box::new(GreedyDual::cost_size())),
    ("arc", || Box::new(Arc::default())),
    ("s3-fifo", || Box::new(S3Fifo::default())),
    ("w-tiny-lfu", || Box::new(WTinyLfu::default())),
    ("adaptive", || Box::new(Adaptive::default())),
];

fn key(number: u64) -> Key {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed ^ (mixed >> 29), number, mixed, !mixed]
}

/// Nanoseconds for each of `count` calls: on the processor where the system tells (Linux),
/// so that a busy machine says the same, else of the wall clock.
fn time(count: u64, mut call: impl FnMut(u64)) -> f64 {
    let (start, on_cpu) = (Instant::now(), on_cpu());
    (0..count).for_each(&mut call);
    let wall = start.elapsed().as_nanos() as f64;
    let cpu = on_cpu
        .zip(self::on_cpu())
        .map(|(before, after)| (after - before) as f64);
    cpu.unwrap_or(wall) / count as f64
}

/// Nanoseconds that this process's main thread has run.
fn on_cpu() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok()
}

/// Resident bytes of this process, where the system tells.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

/// Insert while filling, access, insert with an eviction each, evict; then bytes an entry.
fn round(make: Make, entries: u64) -> [f64; 5] {
    let before = resident();
    let mut budget = Budget::new(entries * BYTES, make());
    let entry = |number: u64| NewEntry::new(BYTES, (key(number)[0] % 512) as f64);
    let fill = time(entries, |number| {
        black_box(budget.insert(key(number), entry(number)).is_ok());
    });
    let memory = resident().zip(before).map_or(f64::NAN, |(after, before)| {
        after.saturating_sub(before) as f64 / entries as f64
    });
    let access = time(entries, |number| {
        black_box(budget.access(&key(key(number)[0] % entries)));
    });
    let replace = time(entries, |number| {
        let number = entries + number;
        black_box(budget.insert(key(number), entry(number)).is_ok());
    });
    let evict = time(entries / 2, |_| {
        black_box(budget.evict_one());
    });
    [fill, access, replace, evict, memory]
}

fn main() {
    // `cargo test --benches` only asks whether it runs.
    let entries = if std::env::args().any(|arg| arg == "--bench") {
        1_000_000
    } else {
        1000
    };
    let mut rounds: [Vec<[f64; 5]>; POLICIES.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (results, (_, make)) in rounds.iter_mut().zip(POLICIES) {
            results.push(round(make, entries));
        }
    }
    println!("{entries} entries, medians of {ROUNDS} rounds, nanoseconds a call");
    println!(
        "{:<12} {:>8} {:>8} {:>16} {:>8} {:>12}",
        "policy", "insert", "access", "insert + victim", "victim", "bytes/entry"
    );
    for (results, (name, _)) in rounds.iter_mut().zip(POLICIES) {
        let median = |column: usize| {
            let mut values: Vec<f64> = results.iter().map(|result| result[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        // Later rounds find freed memory: the first tells most.
        println!(
            "{name:<12} {:>8.0} {:>8.0} {:>16.0} {:>8.0} {:>12.0}",
            median(0),
            median(1),
            median(2),
            median(3),
            results[0][4]
        );
    }
}
