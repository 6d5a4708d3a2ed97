//! Broken and hostile audio: an error that names the fact, or the reference's result.
#![cfg(feature = "audio")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::fs;
use std::time::Duration;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::audio::{
    Audio, AudioStream, DecodeOptions, Gemma4AudioProcessor, Limits, Resampler, decode, resample,
};
use support::golden_path;

fn file(name: &str) -> Vec<u8> {
    fs::read(golden_path("audio").join(name)).unwrap()
}

fn decoded(bytes: &[u8]) -> Result<Audio, Error> {
    decode(bytes, &DecodeOptions::default())
}

/// A WAV with any header.
fn wav(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let align = channels.wrapping_mul(bits / 8);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16_u32.to_le_bytes());
    bytes.extend(format.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend(rate.wrapping_mul(align.into()).to_le_bytes());
    bytes.extend(align.to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn what_is_no_audio_is_refused_by_its_first_bytes() {
    for bytes in [
        &b""[..],
        b"RIFF",
        b"not audio at all, but long enough",
        &[0; 4096],
    ] {
        let error = decoded(bytes).unwrap_err();
        assert!(matches!(error, Error::UnknownAudioFormat { .. }), "{error}");
    }
}

#[test]
fn headers_alone() {
    // A whole header and no samples is an empty clip, as for the references.
    let audio = decoded(&wav(1, 2, 16_000, 16, &[])).unwrap();
    assert_eq!((audio.samples.len(), audio.truncated), (0, false));
    let options = DecodeOptions::default();
    let bytes = wav(1, 1, 44_100, 16, &[]);
    let prepared = Gemma4AudioProcessor::default()
        .prepare_bytes(&bytes, &options)
        .unwrap();
    assert_eq!((prepared.rows, prepared.soft_tokens), (0, 0));
    // Half a header is none.
    for name in [
        "tiny_160.wav",
        "speech44k1.mp3",
        "tone16k_31s.flac",
        "formats/aac.m4a",
        "formats/vorbis.ogg",
        "formats/aiff16.aiff",
        "formats/caf16.caf",
        "formats/vorbis.webm",
    ] {
        let bytes = file(name);
        for length in [12, 20, 30] {
            let error = decoded(&bytes[..length]).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::MalformedAudio { .. } | Error::UnsupportedAudio { .. }
                ),
                "{name}, {length} bytes: {error}"
            );
        }
    }
}

#[test]
fn rates_and_channels_out_of_range() {
    let silence = [0; 64];
    for (channels, rate) in [(0, 16_000), (1, 0), (0, 0), (1, 1_000_000), (200, 16_000)] {
        let error = decoded(&wav(1, channels, rate, 16, &silence)).unwrap_err();
        assert!(
            matches!(
                error,
                Error::SampleRate { .. }
                    | Error::Channels { .. }
                    | Error::MalformedAudio { .. }
                    | Error::UnsupportedAudio { .. }
            ),
            "{channels} channels, {rate} Hz: {error}"
        );
    }
    for (from, to) in [(0, 16_000), (16_000, 0), (800_000, 16_000)] {
        let error = resample(&[0.0; 10], from, to, Resampler::Kaiser).unwrap_err();
        assert!(matches!(error, Error::SampleRate { .. }), "{error}");
    }
}

#[test]
fn high_rates_and_many_channels_are_taken() {
    let data = vec![0; 384 * 2];
    let audio = decoded(&wav(1, 1, 384_000, 16, &data)).unwrap();
    assert_eq!(audio.samples.len(), 16);
    let audio = decoded(&wav(1, 26, 16_000, 16, &[0; 26 * 2 * 5])).unwrap();
    assert_eq!((audio.samples.len(), audio.source.channels), (5, 26));
    let audio = decoded(&wav(1, 32, 16_000, 16, &[0; 32 * 2 * 5]));
    match audio {
        Ok(audio) => assert_eq!(audio.source.channels, 32),
        Err(error) => {
            let named = matches!(
                error,
                Error::UnsupportedAudio { .. } | Error::MalformedAudio { .. }
            );
            assert!(named, "{error}");
        }
    }
}

#[test]
fn samples_that_are_no_numbers() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let bytes = wav(3, 1, 16_000, 32, &floats(&[0.0, 0.5, value, 0.0]));
        let error = decoded(&bytes).unwrap_err();
        assert!(
            matches!(error, Error::NonFiniteSample { frame: 2, .. }),
            "{error}"
        );
        let error = Gemma4AudioProcessor::default()
            .prepare(&[0.0, value])
            .unwrap_err();
        assert!(
            matches!(error, Error::NonFiniteSample { frame: 1, .. }),
            "{error}"
        );
    }
    // Finite, but not in the spectrum.
    let error = Gemma4AudioProcessor::default()
        .prepare(&[3e38; 640])
        .unwrap_err();
    assert!(matches!(error, Error::NonFiniteFeature { .. }), "{error}");
    // Finite, but not once it is resampled.
    let loud: Vec<f32> = (0..400).map(|i| [2.9e38, -2.9e38][i / 7 % 2]).collect();
    let error = decoded(&wav(3, 1, 44_100, 32, &floats(&loud))).unwrap_err();
    assert!(matches!(error, Error::Resampler { .. }), "{error}");
    // Louder than full scale is kept, as the references keep it.
    let bytes = wav(3, 1, 16_000, 32, &floats(&[1.5, -3.0]));
    assert_eq!(decoded(&bytes).unwrap().samples, [1.5, -3.0]);
}

#[test]
fn lengths_that_are_lies() {
    let mut bytes = wav(1, 1, 16_000, 16, &[1; 64]);
    bytes[40..44].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
    let audio = decoded(&bytes).unwrap();
    assert_eq!((audio.samples.len(), audio.truncated), (32, true));
    // A FLAC that claims 2^36 - 1 samples.
    let mut bytes = file("formats/flac16.flac");
    bytes[21] |= 0x0f;
    bytes[22..26].fill(0xff);
    let audio = decoded(&bytes).unwrap();
    assert_eq!((audio.samples.len(), audio.truncated), (545, true));
}

#[test]
fn every_cut_is_an_error_or_a_shorter_clip() {
    let mut whole_clips = 0;
    for entry in fs::read_dir(golden_path("audio/formats")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|stem| stem == "formats") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let Ok(whole) = decoded(&bytes) else { continue };
        whole_clips += 1;
        for cut in (0..bytes.len()).step_by(bytes.len() / 12 + 1) {
            if let Ok(audio) = decoded(&bytes[..cut]) {
                let most = whole.samples.len();
                assert!(
                    audio.samples.len() <= most,
                    "{}, {cut} bytes",
                    path.display()
                );
            }
        }
    }
    assert!(whole_clips >= 45, "{whole_clips}");
}

#[test]
fn limits_hold() {
    let bytes = file("tone16k_31s.flac");
    let limits = Limits {
        max_samples: 10_000,
        ..Limits::default()
    };
    let error = decode(&bytes, &DecodeOptions::default().with_limits(limits)).unwrap_err();
    assert!(
        matches!(error, Error::Limit { limit: 10_000, .. }),
        "{error}"
    );
    let limits = Limits {
        max_time: Duration::ZERO,
        ..Limits::default()
    };
    let error = decode(&bytes, &DecodeOptions::default().with_limits(limits)).unwrap_err();
    assert!(matches!(error, Error::TimeLimit { .. }), "{error}");
}

#[test]
fn streams_at_another_rate_are_not_mistaken() {
    let bytes = file("tiny_640.wav");
    let options = DecodeOptions::default().with_sample_rate(8000);
    let stream = AudioStream::from_bytes(&bytes, &options).unwrap();
    let error = Gemma4AudioProcessor::default()
        .prepare_stream(stream, &mut |_| std::ops::ControlFlow::Continue(()))
        .unwrap_err();
    assert!(
        matches!(error, Error::SampleRate { found: 8000, .. }),
        "{error}"
    );
}
