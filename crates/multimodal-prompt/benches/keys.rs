//! Block keys of 32,768 ids: from nothing, and for one more turn. Throughput is of ids, 4 bytes
//! each. `sha-256
//! alone` is the bound: one hash over the ids' bytes.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prefill_multimodal_prompt::{BlockKeys, KeySpace, MediaKind, Mrope, Positions, Prompt, Span};
use sha2::{Digest, Sha256};

const LENGTH: usize = 32_768;

fn space() -> KeySpace {
    KeySpace::new([1; 32]).encoder(MediaKind::Image, [2; 32])
}

fn text() -> Prompt {
    Prompt::from_ids(
        (0..LENGTH as u32)
            .map(|i| i.wrapping_mul(2_654_435_761) >> 14)
            .collect(),
    )
}

/// The same with positions on three axes, as after a picture.
fn with_axes() -> Prompt {
    let prompt = with_pictures();
    let axis: Vec<i32> = (0..LENGTH as i32).map(|index| index - 240).collect();
    let ids = [axis.clone(), axis.clone(), axis];
    Prompt {
        positions: Positions::Mrope(Mrope { ids, delta: -240 }),
        ..prompt
    }
}

/// Eight pictures of 256 soft tokens.
fn with_pictures() -> Prompt {
    let mut prompt = text();
    for medium in 0..8 {
        let span = Span {
            kind: MediaKind::Image,
            start: 100 + medium * 4000,
            length: 256,
            medium,
            offset: 0,
            digest: [medium as u8; 32],
            grid: None,
        };
        prompt.ids[span.range()].fill(9);
        prompt.spans.push(span);
    }
    prompt
}

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keys");
    group.throughput(Throughput::Bytes(4 * LENGTH as u64));
    for (name, prompt) in [
        ("text", text()),
        ("pictures", with_pictures()),
        ("pictures, three axes", with_axes()),
    ] {
        let prompt = Arc::new(prompt);
        group.bench_function(name, |bencher| {
            bencher.iter(|| BlockKeys::new(space(), black_box(&prompt).clone()).unwrap());
        });
    }
    let mut next = with_pictures();
    let known = BlockKeys::new(space(), next.clone()).unwrap();
    next.ids.extend(0..300);
    let next = Arc::new(next);
    group.bench_function("next turn", |bencher| {
        bencher.iter_batched(
            || known.clone(),
            |mut keys| keys.advance(black_box(&next).clone()).unwrap(),
            criterion::BatchSize::SmallInput,
        );
    });
    let bytes: Vec<u8> = next.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    group.bench_function("sha-256 alone", |bencher| {
        bencher.iter(|| Sha256::digest(black_box(&bytes[..4 * LENGTH])));
    });
}

criterion_group!(benches, keys);
criterion_main!(benches);
