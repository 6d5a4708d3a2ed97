//! The features of every family against transformers' extractors.
#![cfg(feature = "audio")]
#![allow(clippy::print_stdout, reason = "the figures of the README's table")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::collections::BTreeMap;
use std::fs;

use prefill_media_preprocess::audio::{
    DecodeOptions, Gemma3nAudioProcessor, Gemma4AudioProcessor, WhisperAudioProcessor,
    WhisperPadding, decode,
};
use serde_json::{Value, json};
use support::{golden, golden_path, sha256_f32};

fn clip(name: &str) -> Vec<f32> {
    let bytes = fs::read(golden_path("audio").join(name)).unwrap();
    decode(&bytes, &DecodeOptions::default()).unwrap().samples
}

/// Features, their shape, and valid rows or frames.
fn prepare(case: &Value) -> (Vec<f32>, Value, usize) {
    let samples = clip(case["clip"].as_str().unwrap());
    let config = &case["config"];
    match case["family"].as_str().unwrap() {
        "gemma4" => {
            let processor = Gemma4AudioProcessor::from_json(config).unwrap();
            let got = processor.prepare(&samples).unwrap();
            let valid = got.valid_rows();
            (got.input_features, json!([got.rows, got.dim]), valid)
        }
        "gemma3n" => {
            let processor = Gemma3nAudioProcessor::from_json(config).unwrap();
            let got = processor.prepare(&samples).unwrap();
            let valid = got.valid_rows();
            (got.input_features, json!([got.rows, got.dim]), valid)
        }
        _ => {
            let padding = match case["padding"].as_str().unwrap() {
                "longest" => WhisperPadding::None,
                _ => WhisperPadding::Chunk,
            };
            let processor = WhisperAudioProcessor::from_json(config).unwrap();
            let got = processor.with_padding(padding).prepare(&samples).unwrap();
            let valid = got.valid_frames();
            (got.input_features, json!([got.mels, got.frames]), valid)
        }
    }
}

#[test]
fn features_are_those_of_transformers() {
    let golden = golden("audio/features.json");
    let mut tally: BTreeMap<String, (usize, usize, f32)> = BTreeMap::new();
    for case in golden["cases"].as_array().unwrap() {
        let name = format!("{} {} {}", case["family"], case["config"], case["clip"]);
        let (features, shape, valid) = prepare(case);
        assert_eq!(shape, case["shape"], "{name}");
        assert_eq!(valid, case["valid"], "{name}");
        let expected = case["values"].as_array().unwrap();
        let mut most = 0.0_f32;
        for (got, want) in features.iter().step_by(97).zip(expected) {
            most = most.max((got - want.as_f64().unwrap() as f32).abs());
        }
        let exact = sha256_f32(&features) == case["sha256"];
        // Elsewhere the logarithms and powers of the platform's libm may differ in the last digit.
        let here = cfg!(all(target_arch = "x86_64", target_os = "linux"));
        assert!(exact || !here, "{name}");
        assert!(most <= 1e-6, "{name}: {most}");
        let family = case["family"].as_str().unwrap().to_owned();
        let entry = tally.entry(family).or_default();
        *entry = (entry.0 + usize::from(exact), entry.1 + 1, entry.2.max(most));
    }
    println!("exact, of, largest difference: {tally:?}");
    assert_eq!(tally.values().map(|(_, of, _)| of).sum::<usize>(), 58);
}

#[test]
fn lengths_of_masks() {
    let processor = Gemma4AudioProcessor::default();
    for length in golden("audio/features.json")["lengths"].as_array().unwrap() {
        let numbers: Vec<usize> = serde_json::from_value(length.clone()).unwrap();
        let got = processor.prepare(&vec![0.0; numbers[0]]).unwrap();
        assert_eq!([numbers[0], got.rows, got.valid_rows()], numbers[..]);
        let tokens = numbers[2].div_ceil(2).div_ceil(2);
        assert_eq!(got.soft_tokens, tokens);
    }
}

/// Two clips at once, the shorter one first: what transformers pads is zero, of either sign.
#[test]
fn clips_of_a_batch_are_padded() {
    let golden = golden("audio/features.json");
    let processor = Gemma4AudioProcessor::default();
    let clips =
        ["tiny_641.wav", "silence16k.wav"].map(|name| processor.prepare(&clip(name)).unwrap());
    let rows = clips.iter().map(|clip| clip.rows).max().unwrap();
    for (clip, expected) in clips.iter().zip(golden["batch"].as_array().unwrap()) {
        let (features, mask) = clip.padded(rows);
        assert_eq!(json!([mask.len(), clip.dim]), expected["shape"]);
        assert_eq!(
            mask.iter().filter(|&&valid| valid).count(),
            expected["valid"]
        );
        let values = expected["values"].as_array().unwrap();
        for (got, want) in features.iter().step_by(97).zip(values) {
            assert!((got - want.as_f64().unwrap() as f32).abs() <= 1e-6);
        }
    }
}
