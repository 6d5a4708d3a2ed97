//! The resamplers against their references, and against the signals themselves.
#![cfg(feature = "audio")]
#![allow(clippy::print_stdout, reason = "the figures of the README's table")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::f64::consts::TAU;
use std::fs;

use prefill_media_preprocess::audio::{DecodeOptions, Resampler, decode, resample};
use safetensors::SafeTensors;
use support::golden_path;

/// The references' samples are stored this far apart.
const STRIDE: usize = 3;

/// Edges are left out, at 16 kHz.
const EDGE: usize = 300;

/// Signal to noise in dB, and the largest difference.
fn quality(got: &[f32], want: &[f32]) -> (f64, f32) {
    let (mut signal, mut noise, mut most) = (0.0, 0.0, 0.0_f32);
    for (&g, &w) in got.iter().zip(want) {
        signal += f64::from(w).powi(2);
        noise += f64::from(g - w).powi(2);
        most = most.max((g - w).abs());
    }
    (10.0 * f64::log10(signal / noise), most)
}

/// `name` at 16 kHz by `resampler`, and by the reference; every third sample, without the edges.
fn pair(name: &str, resampler: Resampler, reference: &str) -> (Vec<f32>, Vec<f32>) {
    let bytes = fs::read(golden_path("audio").join(name)).unwrap();
    let options = DecodeOptions::default().with_resampler(resampler);
    let samples = decode(&bytes, &options).unwrap().samples;
    let file = fs::read(golden_path("audio/resampled.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let tensor = tensors.tensor(&format!("{name}.{reference}")).unwrap();
    let values = tensor.data().as_chunks::<4>().0;
    let want: Vec<f32> = values.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let got: Vec<f32> = samples.into_iter().step_by(STRIDE).collect();
    assert_eq!(got.len(), want.len());
    let inner = EDGE / STRIDE..got.len() - EDGE / STRIDE;
    (got[inner.clone()].to_vec(), want[inner].to_vec())
}

#[test]
fn the_default_is_near_soxr() {
    for (name, least) in [("stereo44k1.wav", 65.0), ("noise48k_s24.flac", 50.0)] {
        let (got, want) = pair(name, Resampler::Kaiser, "soxr");
        let (decibels, most) = quality(&got, &want);
        println!("{name}, Kaiser against soxr: {decibels:.1} dB, {most:.1e}");
        assert!(decibels > least, "{name}: {decibels} dB");
    }
}

#[test]
fn mlx_audios_parameters_give_its_samples() {
    for name in ["stereo44k1.wav", "noise48k_s24.flac"] {
        let (got, want) = pair(name, Resampler::MlxAudio, "mlx-audio");
        let (decibels, most) = quality(&got, &want);
        println!("{name}, mlx-audio: {decibels:.1} dB, {most:.1e}");
        assert!(most <= 1e-6, "{name}: {most}");
    }
}

#[cfg(feature = "soxr")]
#[test]
fn soxr_is_equal_and_in_any_blocks() {
    for name in ["stereo44k1.wav", "noise48k_s24.flac"] {
        let (got, want) = pair(name, Resampler::Soxr, "soxr");
        assert_eq!(got, want, "{name}");
    }
}

/// A sine whose frequency rises from 20 to 7000 Hz.
fn sweep(rate: u32, count: usize) -> Vec<f32> {
    let seconds = 2.0;
    let phase = |t: f64| TAU * (20.0 * t + (7000.0 - 20.0) * t * t / (2.0 * seconds));
    (0..count)
        .map(|i| (0.8 * phase(i as f64 / f64::from(rate)).sin()) as f32)
        .collect()
}

#[test]
fn a_sweep_comes_through() {
    let resamplers = [
        (Resampler::Kaiser, 125.0),
        (Resampler::MlxAudio, 125.0),
        #[cfg(feature = "soxr")]
        (Resampler::Soxr, 70.0),
    ];
    for rate in [22_050, 24_000, 32_000, 44_100, 48_000, 96_000] {
        for &(resampler, least) in &resamplers {
            let got = resample(&sweep(rate, 2 * rate as usize), rate, 16_000, resampler).unwrap();
            let want = sweep(16_000, got.len());
            let inner = EDGE..got.len() - EDGE;
            let (decibels, most) = quality(&got[inner.clone()], &want[inner]);
            println!("sweep at {rate} Hz, {resampler:?}: {decibels:.1} dB, {most:.1e}");
            assert!(decibels > least, "{rate} Hz, {resampler:?}: {decibels} dB");
        }
    }
}

/// Up and down again is the same, in the pass band.
#[test]
fn there_and_back() {
    let samples = sweep(16_000, 32_000);
    for rate in [44_100, 48_000, 44_101] {
        let there = resample(&samples, 16_000, rate, Resampler::Kaiser).unwrap();
        let back = resample(&there, rate, 16_000, Resampler::Kaiser).unwrap();
        let inner = 1000..samples.len() - 1000;
        let (decibels, _) = quality(&back[inner.clone()], &samples[inner]);
        println!("to {rate} Hz and back: {decibels:.1} dB");
        assert!(decibels > 115.0, "{rate} Hz: {decibels} dB");
    }
}
