//! Features, resampling and decoding of audio. The peers are compared by
//! `tests/reference/audio/bench.py`.
#![allow(missing_docs, reason = "the macros' functions")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use prefill_media_preprocess::audio::{
    DecodeOptions, Gemma3nAudioProcessor, Gemma4AudioProcessor, Resampler, WhisperAudioProcessor,
    decode, resample,
};

/// Noise between -0.5 and 0.5.
fn noise(count: u32) -> Vec<f32> {
    (0..count)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5)
        .collect()
}

fn features(criterion: &mut Criterion) {
    let samples = noise(480_000);
    let mut group = criterion.benchmark_group("features of 30 s");
    group.sample_size(20);
    let gemma4 = Gemma4AudioProcessor::default();
    group.bench_function("Gemma 4", |bencher| {
        bencher.iter(|| black_box(gemma4.prepare(&samples).unwrap()));
    });
    let gemma3n = Gemma3nAudioProcessor::default();
    group.bench_function("Gemma 3n", |bencher| {
        bencher.iter(|| black_box(gemma3n.prepare(&samples).unwrap()));
    });
    let whisper = WhisperAudioProcessor::default();
    group.bench_function("Whisper", |bencher| {
        bencher.iter(|| black_box(whisper.prepare(&samples).unwrap()));
    });
}

fn resampling(criterion: &mut Criterion) {
    for rate in [44_100, 48_000, 22_050] {
        let samples = noise(rate * 10);
        let mut group = criterion.benchmark_group(format!("10 s from {rate} Hz"));
        group.sample_size(20);
        for resampler in [
            Resampler::Kaiser,
            Resampler::MlxAudio,
            #[cfg(feature = "soxr")]
            Resampler::Soxr,
        ] {
            group.bench_function(format!("{resampler:?}"), |bencher| {
                bencher.iter(|| black_box(resample(&samples, rate, 16_000, resampler).unwrap()));
            });
        }
    }
}

fn decoding(criterion: &mut Criterion) {
    let flac = include_bytes!("../tests/goldens/audio/tone16k_31s.flac");
    criterion.bench_function("31 s of FLAC", |bencher| {
        bencher.iter(|| black_box(decode(flac, &DecodeOptions::default()).unwrap()));
    });
}

criterion_group!(benches, features, resampling, decoding);
criterion_main!(benches);
