//! Every audio format against ffmpeg and libsndfile.
#![cfg(feature = "audio")]
#![allow(clippy::print_stdout, reason = "the figures of the README's table")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::collections::BTreeSet;
use std::fs;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::audio::{Audio, DecodeOptions, decode};
use safetensors::SafeTensors;
use serde_json::Value;
use support::{golden, golden_path, sha256_f32};

/// The largest differences found, by codec, and by reference where they disagree; what isn't
/// listed is equal to the last bit.
const TOLERANCES: [(&str, &str, f32); 9] = [
    ("aac", "ffmpeg", 3e-6),
    ("adpcm_ima_wav", "sndfile", 5e-4),
    ("mp2", "ffmpeg", 3e-5),
    ("mp2", "sndfile", 1e-6),
    ("mp3", "ffmpeg", 2e-6),
    ("mp3", "sndfile", 1e-6),
    ("opus", "ffmpeg", 1e-6),
    ("opus", "sndfile", 1e-6),
    ("vorbis", "", 1e-6),
];

/// Where the length isn't the reference's: ffmpeg plays MP4's last packets to their end, and
/// Vorbis's; libsndfile takes a size of 0 at its word.
const OTHER_LENGTHS: [(&str, &str, u64); 7] = [
    ("aac.m4a", "ffmpeg", 17_640),
    ("aac.mov", "ffmpeg", 17_640),
    ("mp3.mp4", "ffmpeg", 17_640),
    ("opus.mp4", "ffmpeg", 19_200),
    ("video.mp4", "ffmpeg", 17_640),
    ("vorbis.ogg", "ffmpeg", 17_640),
    ("wav_zero_sizes.wav", "sndfile", 1500),
];

#[test]
fn every_format_is_what_ffmpeg_and_libsndfile_give() {
    let formats = golden("audio/formats/formats.json");
    let stride = formats["stride"].as_u64().unwrap() as usize;
    let tensors = fs::read(golden_path("audio/formats/formats.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    let (mut codecs, mut compared) = (BTreeSet::new(), 0);
    for (name, case) in formats["files"].as_object().unwrap() {
        let bytes = fs::read(golden_path("audio/formats").join(name)).unwrap();
        if name == "video_silent.mp4" {
            let error = decode(&bytes, &DecodeOptions::default()).unwrap_err();
            assert!(
                matches!(error, Error::NoAudioTrack { tracks: 1, .. }),
                "{error}"
            );
            continue;
        }
        let references = ["ffmpeg", "sndfile"].map(|reference| (reference, &case[reference]));
        let rate = references
            .iter()
            .find_map(|(_, facts)| facts["rate"].as_u64());
        let options = DecodeOptions::default().with_sample_rate(rate.unwrap() as u32);
        if name.starts_with("opus") && !cfg!(feature = "opus") {
            let error = decode(&bytes, &options).unwrap_err();
            assert!(
                matches!(error, Error::UnsupportedAudio { .. }),
                "{name}: {error}"
            );
            continue;
        }
        let audio = decode(&bytes, &options).unwrap();
        assert_eq!(Some(u64::from(audio.source.sample_rate)), rate, "{name}");
        assert_eq!(audio.source.channels, case["channels"], "{name}");
        assert_eq!(audio.source.frames, audio.samples.len() as u64, "{name}");
        assert_eq!(audio.truncated, name.contains("truncated"), "{name}");
        assert_eq!(audio.damaged_packets, 0, "{name}");
        for (reference, facts) in references {
            if facts.is_null() {
                continue;
            }
            let tensor = tensors.tensor(&format!("{name}.{reference}"));
            let samples = tensor.map(|tensor| floats(tensor.data())).ok();
            compare(name, reference, &audio, facts, samples.as_deref(), stride);
            compared += 1;
        }
        codecs.insert(audio.source.codec);
    }
    println!("{codecs:?}");
    assert_eq!(compared, if cfg!(feature = "opus") { 90 } else { 85 });
}

fn compare(
    name: &str,
    reference: &str,
    audio: &Audio,
    facts: &Value,
    samples: Option<&[f32]>,
    stride: usize,
) {
    let codec = audio.source.codec.as_str();
    let other = OTHER_LENGTHS
        .iter()
        .find(|(file, by, _)| (*file, *by) == (name, reference));
    match other {
        Some((_, _, frames)) => assert_eq!(audio.source.frames, *frames, "{name}, {reference}"),
        None => assert_eq!(audio.source.frames, facts["frames"], "{name}, {reference}"),
    }
    let tolerance = TOLERANCES
        .iter()
        .find(|(of, by, _)| *of == codec && (by.is_empty() || *by == reference));
    match (tolerance, samples) {
        (Some((_, _, most)), Some(samples)) => {
            let found = largest_difference(&audio.samples, samples, stride);
            println!("{name}, {codec}, {reference}: {found:.1e}");
            assert!(found <= *most, "{name}, {codec}, {reference}: {found}");
        }
        _ if other.is_some() => {}
        _ => {
            println!("{name}, {codec}, {reference}: equal");
            let hash = sha256_f32(&audio.samples);
            assert_eq!(hash, facts["sha256"], "{name}, {codec}, {reference}");
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let values = bytes.as_chunks::<4>().0;
    values.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn largest_difference(got: &[f32], reference: &[f32], stride: usize) -> f32 {
    let got = got.iter().step_by(stride);
    got.zip(reference)
        .fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}
