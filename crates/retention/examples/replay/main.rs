//! Replays a prefix trace against policies, prints what each served, and plots it.
//!
//! ```text
//! cargo run --release -p prefill-retention --example replay -- trace.jsonl.gz \
//!     --capacity 0.5%,1%,2%,5%,10%,20% --policy all --plot hits.svg
//! ```
//!
//! A trace has one JSON object a line: `hash_ids`, the ids of the prompt's blocks, where an id
//! stands for a block and its whole prefix; and `input_length`, its tokens. `synthetic` instead
//! of a file replays generated chats, floods and scans.

#![allow(clippy::print_stdout)]

mod plot;
mod trace;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use prefill_retention::replay::{Outcome, Request, Sizes, blocks, bound, entries, synthetic};
use prefill_retention::{Adaptive, Arc, GreedyDual, Lru, Policy, S3Fifo, WTinyLfu};

const POLICIES: [&str; 9] = [
    "lru",
    "greedy-dual",
    "greedy-dual-frequency-4",
    "cost-size",
    "arc",
    "s3-fifo",
    "w-tiny-lfu",
    "adaptive",
    "adaptive-refusing",
];

/// Replays a prefix trace against eviction policies.
#[derive(Debug, Parser)]
struct Args {
    /// The trace, JSON lines, gzipped if it ends in .gz; or `synthetic`.
    #[arg(env = "PREFILL_TRACE")]
    trace: PathBuf,
    /// Capacities: tokens, or a share (%) of all distinct blocks.
    #[arg(long, value_delimiter = ',', default_value = "0.5%,1%,2%,5%,10%,20%")]
    capacity: Vec<String>,
    /// Policies, or `all`.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    policy: Vec<String>,
    /// What is cached: blocks that prompts share, or whole prompts.
    #[arg(long, value_enum, default_value_t = Granularity::Block)]
    granularity: Granularity,
    /// Bytes of a whole prompt: in proportion to its tokens, or with sliding windows.
    #[arg(long, value_enum, default_value_t = ByteModel::Dense)]
    sizes: ByteModel,
    /// Tokens of a block.
    #[arg(long, default_value_t = 512)]
    block_tokens: u64,
    /// The part of the trace to replay, such as 50-100 (percent of the requests).
    #[arg(long, default_value = "0-100")]
    part: String,
    /// Where to write a curve of the token hit ratios, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Granularity {
    Block,
    Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ByteModel {
    Dense,
    Sliding,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.block_tokens > 0, "--block-tokens must not be 0");
    let by_block = args.granularity == Granularity::Block;
    ensure!(
        !by_block || args.sizes == ByteModel::Dense,
        "--sizes sliding is for --granularity entry: every block keeps rows of its own window"
    );
    let whole = if args.trace.as_os_str() == "synthetic" {
        synthetic::mixed(1, 6000)
    } else {
        trace::read(&args.trace)?
    };
    let trace = part(&whole, &args.part)?;
    let distinct = trace::distinct_blocks(trace);
    println!(
        "{} requests, {distinct} distinct blocks of {} tokens",
        trace.len(),
        args.block_tokens
    );

    let total = distinct.saturating_mul(args.block_tokens);
    let capacities = args
        .capacity
        .iter()
        .map(|text| capacity(text, total, args.block_tokens));
    let capacities: Vec<u64> = capacities.collect::<Result<_>>()?;
    let mut curves = Vec::new();
    print_header();
    if by_block {
        curves.push(replay(
            "(offline bound)",
            &args.capacity,
            &capacities,
            |capacity| Ok(bound(trace, args.block_tokens, capacity)),
        )?);
    }
    let all = args.policy.iter().any(|name| name == "all");
    let named = args.policy.iter().map(String::as_str);
    let names: Vec<&str> = if all {
        POLICIES.to_vec()
    } else {
        named.collect()
    };
    let sizes = match args.sizes {
        ByteModel::Dense => Sizes::Dense,
        ByteModel::Sliding => Sizes::Sliding,
    };
    for name in names {
        curves.push(replay(name, &args.capacity, &capacities, |capacity| {
            let policy = policy(name)?;
            Ok(match args.granularity {
                Granularity::Block => blocks(trace, args.block_tokens, capacity, policy),
                Granularity::Entry => entries(trace, args.block_tokens, capacity, sizes, policy),
            })
        })?);
    }
    if let Some(path) = &args.plot {
        let svg = plot::svg(&args.capacity, &curves);
        std::fs::write(path, svg).with_context(|| format!("writing {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn policy(name: &str) -> Result<Box<dyn Policy>> {
    Ok(match name {
        "lru" => Box::new(Lru::default()),
        "greedy-dual" => Box::new(GreedyDual::size()),
        "greedy-dual-frequency-4" => Box::new(GreedyDual::size_frequency(Some(4))),
        "cost-size" => Box::new(GreedyDual::cost_size()),
        "arc" => Box::new(Arc::default()),
        "s3-fifo" => Box::new(S3Fifo::default()),
        "w-tiny-lfu" => Box::new(WTinyLfu::default()),
        "adaptive" => Box::new(Adaptive::default()),
        "adaptive-refusing" => Box::new(Adaptive::default().refusing_below(0.5)),
        other => bail!("no policy {other:?}: all, or of {}", POLICIES.join(", ")),
    })
}

/// Replays one policy at all capacities and prints a row for each. Gives the token hit ratios.
fn replay(
    name: &str,
    labels: &[String],
    capacities: &[u64],
    mut run: impl FnMut(u64) -> Result<Outcome>,
) -> Result<plot::Curve> {
    let mut ratios = Vec::new();
    for (label, capacity) in labels.iter().zip(capacities) {
        let start = Instant::now();
        let outcome = run(*capacity)?;
        let nanoseconds = start.elapsed().as_nanos() as f64 / outcome.operations.max(1) as f64;
        let (tokens, bytes) = (
            100.0 * outcome.token_hit_ratio(),
            100.0 * outcome.byte_hit_ratio(),
        );
        println!(
            "{name:<24} {label:>8} {tokens:>8.2} {bytes:>8.2} {:>10} {:>9} {nanoseconds:>8.0}",
            outcome.evictions, outcome.refusals,
        );
        ratios.push(outcome.token_hit_ratio());
    }
    Ok(plot::Curve {
        name: name.to_owned(),
        ratios,
    })
}

fn print_header() {
    println!(
        "{:<24} {:>8} {:>8} {:>8} {:>10} {:>9} {:>8}",
        "policy", "capacity", "tokens %", "bytes %", "evictions", "refusals", "ns/op"
    );
}

/// A capacity in bytes, of which a token has one: whole blocks for a share.
fn capacity(text: &str, total: u64, block_tokens: u64) -> Result<u64> {
    let number = |text: &str| -> Result<f64> {
        let value: f64 = text
            .trim()
            .parse()
            .with_context(|| format!("capacity {text:?}"))?;
        ensure!(
            value.is_finite() && value > 0.0,
            "capacity {text:?} must be positive"
        );
        Ok(value)
    };
    Ok(match text.strip_suffix('%') {
        Some(share) => (number(share)? / 100.0 * total as f64) as u64 / block_tokens * block_tokens,
        None => number(text)? as u64,
    })
}

fn part<'a>(trace: &'a [Request], text: &str) -> Result<&'a [Request]> {
    let ends = text
        .split_once('-')
        .context("--part is FROM-TO in percent")?;
    let (from, to): (usize, usize) = (ends.0.parse()?, ends.1.parse()?);
    ensure!(
        from < to && to <= 100,
        "--part {text:?} is not within 0-100"
    );
    Ok(&trace[trace.len() * from / 100..trace.len() * to / 100])
}
