//! What holds for every clip: counts, pieces, blocks.
#![cfg(feature = "audio")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::ops::ControlFlow;

use prefill_media_preprocess::Error;
use prefill_media_preprocess::audio::{
    AudioStream, Chunks, DecodeOptions, Gemma3nAudioProcessor, Gemma4AudioLayout,
    Gemma4AudioProcessor, Limits, Resampler, TokenCount, WhisperAudioProcessor, WhisperPadding,
    decode, resample,
};
use proptest::prelude::*;

/// A 16-bit mono WAV.
fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let data = samples.len() as u32 * 2;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16_u32.to_le_bytes());
    bytes.extend([1, 0, 1, 0]);
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate * 2).to_le_bytes());
    bytes.extend([2, 0, 16, 0]);
    bytes.extend(b"data");
    bytes.extend(data.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gemma4_counts_agree(length in 0_usize..20_000, seed: u32) {
        let samples: Vec<f32> = (0..length)
            .map(|i| (i as u32).wrapping_mul(seed | 1) as i32 as f32 / 2_147_483_648.0)
            .collect();
        let processor = Gemma4AudioProcessor::default();
        let prepared = processor.prepare(&samples).unwrap();
        prop_assert_eq!(prepared.input_features.len(), prepared.rows * prepared.dim);
        prop_assert_eq!(prepared.input_features_mask.len(), prepared.rows);
        prop_assert_eq!(prepared.soft_tokens, TokenCount::Transformers.soft_tokens(length));
        prop_assert_eq!(prepared.soft_tokens, prepared.valid_rows().div_ceil(4));
        // Never more than the tower gives, and what the mask leaves out is zero.
        prop_assert!(prepared.soft_tokens <= prepared.rows.div_ceil(4));
        let masked = &prepared.input_features[prepared.valid_rows() * 128..];
        prop_assert!(masked.iter().all(|value| value.abs() == 0.0));
        let unified = processor.with_layout(Gemma4AudioLayout::Unified);
        let prepared = unified.prepare(&samples).unwrap();
        prop_assert_eq!(prepared.soft_tokens, length.div_ceil(640));
        prop_assert_eq!(&prepared.input_features[..length], &samples[..]);
    }

    #[test]
    fn other_families_have_the_frames_of_their_formulas(length in 0_usize..9000) {
        let samples = vec![0.125; length];
        let prepared = Gemma3nAudioProcessor::default().prepare(&samples).unwrap();
        let padded = length.next_multiple_of(128);
        prop_assert_eq!(prepared.rows, padded.checked_sub(513).map_or(0, |rest| rest / 160 + 1));
        let whisper = WhisperAudioProcessor::default().with_padding(WhisperPadding::None);
        let prepared = whisper.prepare(&samples).unwrap();
        prop_assert_eq!(prepared.frames, length / 160);
        prop_assert!(prepared.qwen3_omni_tokens() <= prepared.frames.div_ceil(2));
    }

    #[test]
    fn pieces_cover_a_clip(
        length in 0_usize..5000,
        max_samples in 0_usize..900,
        search in 0_usize..900,
        overlap in 0_usize..900,
    ) {
        let samples: Vec<f32> = (0..length).map(|i| (i % 17) as f32).collect();
        let chunks = Chunks { max_samples, search, overlap };
        let ranges = chunks.ranges(&samples);
        let mut covered = 0;
        for range in &ranges {
            prop_assert!(range.start <= covered && range.end > covered);
            prop_assert!(range.len() <= max_samples.max(4));
            covered = range.end;
        }
        prop_assert_eq!(covered, length);
    }

    #[test]
    fn lengths_after_resampling(length in 0_usize..4000, from in 4000_u32..50_000, soft: bool) {
        let resampler = if soft { Resampler::Kaiser } else { Resampler::MlxAudio };
        let got = resample(&vec![0.5; length], from, 16_000, resampler).unwrap();
        prop_assert_eq!(got.len() as u64, (length as u64 * 16_000).div_ceil(u64::from(from)));
        prop_assert!(got.iter().all(|sample| sample.is_finite() && sample.abs() < 0.7));
    }

    #[test]
    fn samples_survive_a_wav(samples in proptest::collection::vec(any::<i16>(), 0..3000)) {
        let audio = decode(&wav(&samples, 16_000), &DecodeOptions::default()).unwrap();
        prop_assert!(!audio.truncated);
        let expected: Vec<f32> = samples.iter().map(|&s| f32::from(s) / 32_768.0).collect();
        prop_assert_eq!(audio.samples, expected);
    }
}

#[test]
fn hours_are_streamed_in_bounded_memory() {
    // Ten minutes of which the model takes 30 seconds, under a limit of a minute held.
    let minutes = 10;
    let bytes = wav(&vec![100; minutes * 60 * 16_000], 16_000);
    let limits = Limits {
        max_samples: 60 * 16_000,
        ..Limits::default()
    };
    let options = DecodeOptions::default().with_limits(limits);
    let error = decode(&bytes, &options).unwrap_err();
    assert!(
        matches!(error, Error::Limit { limit: 960_000, .. }),
        "{error}"
    );
    let stream = AudioStream::from_bytes(&bytes, &options).unwrap();
    let mut seen = Vec::new();
    let prepared = Gemma4AudioProcessor::default()
        .prepare_stream(stream, &mut |progress| {
            seen.push(progress.frames);
            assert_eq!(progress.total, Some(9_600_000));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!((prepared.seconds - 600.0).abs() < 1e-9);
    assert_eq!(prepared.truncation.unwrap().total, 9_600_000);
    assert_eq!(prepared.soft_tokens, 750);
    assert!(seen.is_sorted() && seen.last() == Some(&9_600_000));
}

#[test]
fn progress_can_stop_the_work() {
    let bytes = wav(&vec![0; 16_000], 16_000);
    let stream = AudioStream::from_bytes(&bytes, &DecodeOptions::default()).unwrap();
    let stopped =
        Gemma4AudioProcessor::default().prepare_stream(stream, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Cancelled)));
}
