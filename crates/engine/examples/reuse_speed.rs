//! How much sooner the first token comes when a prompt's prefix is kept, and what keeping it
//! costs: one table for docs/performance/reuse.md.
//!
//! ```sh
//! cargo run --release -p prefill-engine --example reuse_speed -- MODEL FOLDER [TOKENS...]
//! ```
//!
//! Each round asks a prompt of random ids: without a cache, for the first time, again (from
//! memory), and again after memory was emptied (from disk, whose pages the system may still
//! have). Then answers of 200 tokens to a short question are decoded while such a prompt is
//! written, and while nothing is, in turn.
#![allow(clippy::print_stdout, reason = "this is a command-line tool")]

use std::error::Error;
use std::time::Duration;

use prefill_engine::{
    CacheOptions, CachePolicy, DiskOptions, Engine, Event, Request, Sampling, Statistics,
};

const ROUNDS: usize = 5;
const DECODED: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: reuse_speed MODEL FOLDER [TOKENS...]".into());
    };
    let mut lengths = arguments
        .map(|tokens| tokens.parse())
        .collect::<Result<Vec<usize>, _>>()?;
    if lengths.is_empty() {
        lengths = vec![512, 2048];
    }
    let engine = |part: &str, delay| {
        let disk = DiskOptions::new(format!("{folder}/{part}")).write_after(delay);
        let cache = CacheOptions::default().ram_bytes(8 << 30).disk(disk);
        Engine::builder(&model).cache(cache).build()
    };
    let never = Duration::from_secs(1 << 20);
    let late = engine("late", never)?;
    println!(
        "| tokens | not cached, s | first time, s | from memory, s | from disk, s | memory | disk | reused | written, MB | decode while writing |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut seed = 1;
    for tokens in lengths {
        let mut rows: Vec<[f64; 4]> = Vec::new();
        let (mut reused, mut written) = ((0, 0), 0);
        // The first round makes kernels, and is left out.
        for round in 0..=ROUNDS {
            seed += 1;
            let ask = |policy, count| {
                let request = Request::from_ids(ids(tokens, seed)).max_tokens(count);
                run(&late, request.cache(policy))
            };
            let bypassed = ask(CachePolicy::Bypass, 1)?;
            let first = ask(CachePolicy::ReadWrite, 1)?;
            let ram = ask(CachePolicy::ReadWrite, 1)?;
            let before = late.cache_stats().written_bytes;
            late.clear_memory_cache()?;
            written = late.cache_stats().written_bytes - before;
            let disk = ask(CachePolicy::ReadWrite, 1)?;
            reused = (ram.reused.ram_tokens, disk.reused.disk_tokens);
            if round > 0 {
                let times = [bypassed, first, ram, disk];
                rows.push(times.map(|s| s.time_to_first_token.as_secs_f64()));
            }
            late.clear_memory_cache()?;
        }
        let median = |column: usize| {
            let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let [cold, first, ram, disk] = [0, 1, 2, 3].map(median);
        let share = writing_share(&engine("soon", Duration::ZERO)?, &late, tokens, &mut seed)?;
        println!(
            "| {tokens} | {cold:.4} | {first:.4} | {ram:.4} | {disk:.4} | {:.1} | {:.1} | {} and {} | {:.1} | {share:.3} |",
            cold / ram,
            cold / disk,
            reused.0,
            reused.1,
            written as f64 / 1e6,
        );
    }
    Ok(())
}

/// The rate of decoding while a prompt is written, relative to that of decoding alone: the
/// median of pairs.
fn writing_share(
    soon: &Engine,
    late: &Engine,
    tokens: usize,
    seed: &mut u64,
) -> Result<f64, Box<dyn Error>> {
    let mut shares = Vec::new();
    for round in 0..=ROUNDS {
        let mut rate = |engine: &Engine| -> Result<f64, Box<dyn Error>> {
            *seed += 1;
            run(engine, Request::from_ids(ids(tokens, *seed)).max_tokens(1))?;
            let short = Request::from_ids(ids(32, *seed)).max_tokens(DECODED);
            let rate = run(engine, short.cache(CachePolicy::Bypass))?.decode_rate();
            engine.clear_memory_cache()?;
            Ok(rate)
        };
        let (with, without) = if round % 2 == 0 {
            let with = rate(soon)?;
            (with, rate(late)?)
        } else {
            let without = rate(late)?;
            (rate(soon)?, without)
        };
        if round > 0 {
            shares.push(with / without);
        }
    }
    shares.sort_by(f64::total_cmp);
    Ok(shares[shares.len() / 2])
}

fn run(engine: &Engine, request: Request) -> Result<Statistics, Box<dyn Error>> {
    let request = request.ignore_ends().sampling(Sampling::greedy());
    for event in engine.generate(request)? {
        if let Event::Finished(end) = event? {
            return Ok(end.statistics);
        }
    }
    Err("no end".into())
}

/// Random ids of text, the same for the same seed (`SplitMix64`).
fn ids(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Below every vocabulary, above the special tokens.
        300 + ((z ^ (z >> 31)) % 120) as u32
    };
    (0..count).map(next).collect()
}
