//! Gemma 4's audio against the goldens of transformers.
#![cfg(feature = "audio")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::fs;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::audio::{
    DecodeOptions, Gemma4Audio, Gemma4AudioLayout, Gemma4AudioProcessor, Resampler, TokenCount,
    decode,
};
use serde_json::{Value, json};
use support::{golden, golden_path, sha256_f32};

fn clip(name: &str) -> Vec<u8> {
    fs::read(golden_path("audio").join(name)).unwrap()
}

/// The f32 values of a little-endian `.npy` file.
fn npy(name: &str) -> Vec<f32> {
    let bytes = clip(name);
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

fn clips() -> Vec<(String, Value)> {
    let expected = golden("audio/expected.json");
    let clips = expected["clips"].as_object().unwrap();
    clips
        .iter()
        .map(|(name, facts)| (name.clone(), facts.clone()))
        .collect()
}

/// What resamples as the goldens were, if this build has it.
#[cfg(feature = "soxr")]
const REFERENCE: Option<Resampler> = Some(Resampler::Soxr);
#[cfg(not(feature = "soxr"))]
const REFERENCE: Option<Resampler> = None;

fn check_features(name: &str, prepared: &Gemma4Audio, facts: &Value) {
    assert_eq!(
        json!([prepared.rows, prepared.dim]),
        facts["features_shape"],
        "{name}"
    );
    assert_eq!(prepared.valid_rows(), facts["valid_frames"], "{name}");
    assert_eq!(prepared.soft_tokens, facts["soft_tokens"], "{name}");
    // Elsewhere the platform's logarithm may differ in the last digit; `audio_features` bounds it.
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let hash = sha256_f32(&prepared.input_features);
        assert_eq!(hash, facts["features_sha256"], "{name}");
    }
}

#[test]
fn waveforms_and_features_are_those_of_transformers() {
    let mut compared = 0;
    for (name, facts) in clips() {
        let at_16k = facts["source_rate"] == 16_000;
        let options = match (at_16k, REFERENCE) {
            (true, _) => DecodeOptions::default(),
            (false, Some(soxr)) => DecodeOptions::default().with_resampler(soxr),
            (false, None) => continue,
        };
        let audio = decode(&clip(&name), &options).unwrap();
        assert_eq!(audio.source.sample_rate, facts["source_rate"], "{name}");
        assert_eq!(audio.source.channels, facts["channels"], "{name}");
        assert_eq!(audio.source.frames, facts["source_frames"], "{name}");
        assert_eq!(audio.samples.len(), facts["samples_16k"], "{name}");
        assert!(!audio.truncated && audio.damaged_packets == 0, "{name}");
        // Decoders of MP3 differ in their last digits; `audio_formats` bounds by how much.
        if name == "speech44k1.mp3" {
            continue;
        }
        assert_eq!(sha256_f32(&audio.samples), facts["wave_sha256"], "{name}");
        let prepared = Gemma4AudioProcessor::default()
            .prepare(&audio.samples)
            .unwrap();
        check_features(&name, &prepared, &facts);
        compared += 1;
    }
    assert_eq!(compared, if REFERENCE.is_some() { 9 } else { 7 });
}

#[test]
fn features_of_the_references_waveform_are_equal_without_its_resampler() {
    let wave = npy("stereo44k1.wav.wave16k.npy");
    let prepared = Gemma4AudioProcessor::default().prepare(&wave).unwrap();
    let facts = &golden("audio/expected.json")["clips"]["stereo44k1.wav"];
    check_features("stereo44k1.wav", &prepared, facts);
}

#[test]
fn the_default_resampler_stays_near_the_reference() {
    let wave = npy("stereo44k1.wav.wave16k.npy");
    let audio = decode(&clip("stereo44k1.wav"), &DecodeOptions::default()).unwrap();
    assert_eq!(audio.samples.len(), wave.len());
    let (mut signal, mut noise) = (0.0, 0.0);
    for (&got, &want) in audio.samples[200..15_800].iter().zip(&wave[200..]) {
        signal += f64::from(want).powi(2);
        noise += f64::from(got - want).powi(2);
    }
    let quality = 10.0 * f64::log10(signal / noise);
    assert!(quality > 60.0, "{quality} dB");
}

#[test]
fn long_clips_are_cut_and_it_is_said() {
    let bytes = clip("tone16k_31s.flac");
    let processor = Gemma4AudioProcessor::default();
    let prepared = processor
        .prepare_bytes(&bytes, &DecodeOptions::default())
        .unwrap();
    let cut = prepared.truncation.unwrap();
    assert_eq!((cut.kept, cut.total), (480_000, 496_000));
    assert!((prepared.seconds - 31.0).abs() < 1e-9);
    assert_eq!((prepared.rows, prepared.soft_tokens), (2999, 750));
    // The same through all samples.
    let audio = decode(&bytes, &DecodeOptions::default()).unwrap();
    assert_eq!(processor.prepare(&audio.samples).unwrap(), prepared);
}

#[test]
fn raw_frames_of_the_unified_model() {
    let config = json!({"feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor"});
    let processor = Gemma4AudioProcessor::from_json(&config).unwrap();
    assert_eq!(processor.layout(), Gemma4AudioLayout::Unified);
    for (name, facts) in clips() {
        if facts["source_rate"] != 16_000 {
            continue;
        }
        let audio = decode(&clip(&name), &DecodeOptions::default()).unwrap();
        let prepared = processor.prepare(&audio.samples).unwrap();
        assert_eq!(prepared.soft_tokens, facts["unified_tokens"], "{name}");
        assert_eq!((prepared.rows, prepared.dim), (prepared.soft_tokens, 640));
        assert!(prepared.truncation.is_none());
        let (samples, padding) = prepared.input_features.split_at(audio.samples.len());
        assert_eq!(samples, audio.samples);
        assert!(padding.iter().all(|&sample| sample.to_bits() == 0));
    }
}

#[test]
fn nothing_gives_no_rows() {
    for layout in [Gemma4AudioLayout::Tower, Gemma4AudioLayout::Unified] {
        let processor = Gemma4AudioProcessor::default().with_layout(layout);
        let prepared = processor.prepare(&[]).unwrap();
        assert_eq!((prepared.rows, prepared.soft_tokens), (0, 0));
        let prepared = processor.prepare(&[0.25]).unwrap();
        let unified = layout == Gemma4AudioLayout::Unified;
        assert_eq!(prepared.rows, usize::from(unified));
    }
}

/// The closed form against the mask, and both against the lengths at which mlx-vlm differs.
#[test]
fn tokens_of_every_length() {
    let processor = Gemma4AudioProcessor::default();
    let mut differ = 0;
    for samples in 0..=480_000 {
        let tokens = TokenCount::Transformers.soft_tokens(samples);
        assert_eq!(processor.soft_tokens(samples), tokens, "{samples}");
        let other = TokenCount::MlxVlm.soft_tokens(samples);
        let one_more = (1..=160).contains(&(samples % 640));
        assert_eq!(other, tokens + usize::from(one_more), "{samples}");
        differ += usize::from(one_more);
    }
    assert_eq!(differ, 120_000);
}

#[test]
fn digests_tell_clips_apart() {
    let processor = Gemma4AudioProcessor::default();
    let options = DecodeOptions::default();
    let one = processor
        .prepare_bytes(&clip("tiny_640.wav"), &options)
        .unwrap();
    let two = processor
        .prepare_bytes(&clip("tiny_641.wav"), &options)
        .unwrap();
    let again = processor
        .prepare_bytes(&clip("tiny_640.wav"), &options)
        .unwrap();
    assert_eq!(one.digest, again.digest);
    assert_ne!(one.digest, two.digest);
}

#[test]
fn configurations_are_followed_or_refused() {
    let published = json!({"feature_extractor": {
        "feature_extractor_type": "Gemma4AudioFeatureExtractor",
        "dither": 0.0, "feature_size": 128, "fft_length": 512, "fft_overdrive": false,
        "frame_length": 320, "hop_length": 160, "input_scale_factor": 1.0,
        "max_frequency": 8000.0, "mel_floor": 0.001, "min_frequency": 0.0,
        "padding_side": "right", "padding_value": 0.0, "per_bin_mean": null,
        "per_bin_stddev": null, "preemphasis": 0.0, "preemphasis_htk_flavor": true,
        "return_attention_mask": true, "sampling_rate": 16000
    }});
    let samples: Vec<f32> = (0..2000_i16).map(|i| f32::from(i % 97) / 97.0).collect();
    let expected = Gemma4AudioProcessor::default().prepare(&samples).unwrap();
    let processor = Gemma4AudioProcessor::from_json(&published).unwrap();
    assert_eq!(processor.prepare(&samples).unwrap(), expected);
    for (key, value) in [
        ("dither", json!(1e-4)),
        ("sampling_rate", json!(24_000)),
        ("frame_length", json!(512)),
        ("fft_length", json!(1024)),
        ("padding_side", json!("left")),
        ("feature_size", json!(0)),
        ("frame_length_ms", json!(1e9)),
        ("mel_floor", json!(0.0)),
        ("min_frequency", json!(9000.0)),
        ("per_bin_mean", json!([1.0])),
        ("feature_extractor_type", json!("WhisperFeatureExtractor")),
    ] {
        let mut config = published.clone();
        config["feature_extractor"][key] = value;
        let error = Gemma4AudioProcessor::from_json(&config).unwrap_err();
        assert!(matches!(error, Error::ConfigValue { .. }), "{key}: {error}");
    }
    let mut config = published;
    config["feature_extractor"]["mel_norm"] = json!("slaney");
    let error = Gemma4AudioProcessor::from_json(&config).unwrap_err();
    assert!(matches!(error, Error::ConfigUnknown { .. }), "{error}");
}
