//! The audio commands.

use std::error::Error;
use std::hint::black_box;

use prefill_media_preprocess::audio::{
    DecodeOptions, Gemma3nAudioProcessor, Gemma4AudioProcessor, Resampler, WhisperAudioProcessor,
    decode, resample,
};
use serde_json::Value;

use crate::Clocks;

/// `command` done once with the bytes of a file: its wall and processor time. None if it isn't
/// one of these.
pub(crate) fn run(command: &Value, bytes: &[u8]) -> Result<Option<(f64, f64)>, Box<dyn Error>> {
    let resampler = match command["resampler"].as_str() {
        Some("mlx-audio") => Resampler::MlxAudio,
        #[cfg(feature = "soxr")]
        Some("soxr") => Resampler::Soxr,
        Some(other) => return Err(format!("no resampler {other} in this build").into()),
        None => Resampler::Kaiser,
    };
    let options = DecodeOptions::default().with_resampler(resampler);
    Ok(Some(match command["do"].as_str().unwrap_or_default() {
        "audio_decode" => {
            // At the file's own rate.
            let rate = decode(bytes, &options)?.source.sample_rate;
            timed(|| decode(bytes, &options.with_sample_rate(rate)))?
        }
        "audio_resample" => {
            let rate = decode(bytes, &options)?.source.sample_rate;
            let audio = decode(bytes, &options.with_sample_rate(rate))?;
            timed(|| resample(&audio.samples, rate, 16_000, resampler))?
        }
        "mel_gemma4" => {
            let audio = decode(bytes, &options)?;
            let processor = Gemma4AudioProcessor::default();
            timed(|| processor.prepare(&audio.samples))?
        }
        "mel_gemma3n" => {
            let audio = decode(bytes, &options)?;
            let processor = Gemma3nAudioProcessor::default();
            timed(|| processor.prepare(&audio.samples))?
        }
        "mel_whisper" => {
            let audio = decode(bytes, &options)?;
            let processor = WhisperAudioProcessor::default();
            timed(|| processor.prepare(&audio.samples))?
        }
        "audio_gemma4" => {
            let processor = Gemma4AudioProcessor::default();
            timed(|| processor.prepare_bytes(bytes, &options))?
        }
        _ => return Ok(None),
    }))
}

fn timed<T, E: Error + 'static>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<(f64, f64), Box<dyn Error>> {
    let start = Clocks::now();
    black_box(work()?);
    Ok(start.elapsed())
}
