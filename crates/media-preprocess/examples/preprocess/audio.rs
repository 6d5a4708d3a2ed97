//! The audio side of the example.

use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use prefill_media_preprocess::audio::{
    AudioFeatures, AudioStream, DecodeOptions, Format, Gemma3nAudioProcessor, Gemma4AudioLayout,
    Gemma4AudioProcessor, Resampler, SAMPLE_RATE, TokenCount, Truncation, WhisperAudioProcessor,
    WhisperPadding,
};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::{Family, Prepared, floats, merge, spectrogram};

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Resample {
    /// Built in.
    Kaiser,
    /// As mlx-audio and mlx-vlm.
    MlxAudio,
    /// As librosa and transformers; with the cargo feature `soxr`.
    #[cfg(feature = "soxr")]
    Soxr,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Tokens {
    Transformers,
    MlxVlm,
}

/// What the arguments say of audio.
pub(crate) struct Options<'a> {
    pub(crate) family: Family,
    pub(crate) config: Value,
    pub(crate) resampler: Resample,
    pub(crate) tokens: Tokens,
    pub(crate) png: Option<&'a Path>,
}

/// Whether a file is audio, or something with an audio track.
pub(crate) fn is_audio(file: &Path) -> Result<bool, Box<dyn Error>> {
    let mut head = Vec::new();
    File::open(file)?.take(12).read_to_end(&mut head)?;
    Ok(Format::detect(&head).is_some())
}

pub(crate) fn prepare(file: &Path, options: &Options<'_>) -> Result<Prepared, Box<dyn Error>> {
    let resampler = match options.resampler {
        Resample::Kaiser => Resampler::Kaiser,
        Resample::MlxAudio => Resampler::MlxAudio,
        #[cfg(feature = "soxr")]
        Resample::Soxr => Resampler::Soxr,
    };
    let decode = DecodeOptions::default().with_resampler(resampler);
    let mut stream = AudioStream::new(File::open(file)?, &decode)?;
    let samples = read(&mut stream)?;
    let info = stream.info();
    let mut facts = json!({
        "file": file.display().to_string(),
        "format": info.format.to_string(),
        "codec": info.codec,
        "sample_rate": info.sample_rate,
        "channels": info.channels,
        "source_frames": info.frames,
        "truncated_file": stream.truncated(),
        "damaged_packets": stream.damaged_packets(),
        "resampler": format!("{resampler:?}"),
        "samples": samples.len(),
        "seconds": samples.len() as f64 / f64::from(SAMPLE_RATE),
    });
    let (more, mut tensors) = match options.family {
        Family::Gemma4 | Family::Gemma4Unified => {
            let mut processor = Gemma4AudioProcessor::from_json(&options.config)?;
            if options.family == Family::Gemma4Unified {
                processor = processor.with_layout(Gemma4AudioLayout::Unified);
            }
            let count = match options.tokens {
                Tokens::Transformers => TokenCount::Transformers,
                Tokens::MlxVlm => TokenCount::MlxVlm,
            };
            let prepared = processor.with_token_count(count).prepare(&samples)?;
            if let Some(png) = options.png {
                spectrogram::draw(png, &prepared.input_features, prepared.rows, prepared.dim)?;
            }
            rows(&prepared)
        }
        Family::Gemma3n => {
            let prepared = Gemma3nAudioProcessor::from_json(&options.config)?.prepare(&samples)?;
            if let Some(png) = options.png {
                spectrogram::draw(png, &prepared.input_features, prepared.rows, prepared.dim)?;
            }
            rows(&prepared)
        }
        Family::Whisper => {
            let processor = WhisperAudioProcessor::from_json(&options.config)?;
            let prepared = processor.prepare(&samples)?;
            let whole = processor
                .with_padding(WhisperPadding::None)
                .prepare(&samples)?;
            let (mels, frames) = (prepared.mels, prepared.frames);
            if let Some(png) = options.png {
                let features = &prepared.input_features;
                let rows: Vec<f32> = (0..frames)
                    .flat_map(|frame| (0..mels).map(move |band| features[band * frames + frame]))
                    .collect();
                spectrogram::draw(png, &rows, frames, mels)?;
            }
            let facts = json!({
                "input_features": [mels, frames],
                "valid_frames": prepared.valid_frames(),
                "qwen2_5_omni_tokens": prepared.qwen2_5_omni_tokens(),
                "qwen3_omni_tokens": whole.qwen3_omni_tokens(),
                "cut": cut(prepared.truncation),
                "digest": prepared.digest.to_string(),
            });
            let mask = mask(&prepared.attention_mask);
            (
                facts,
                vec![
                    floats(
                        "input_features",
                        vec![mels, frames],
                        &prepared.input_features,
                    ),
                    ("input_features_mask", Dtype::BOOL, vec![frames], mask),
                ],
            )
        }
        Family::Qwen3Vl | Family::Qwen2Vl => return Err("this family does not hear".into()),
    };
    merge(&mut facts, more);
    tensors.push(floats("waveform", vec![samples.len()], &samples));
    Ok(Prepared { facts, tensors })
}

/// All samples of a stream, with a bar.
fn read(stream: &mut AudioStream<'_>) -> Result<Vec<f32>, Box<dyn Error>> {
    let bar = match stream.progress().total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {percent}% of {len} samples",
    )?);
    let (mut samples, mut block) = (Vec::new(), Vec::new());
    while stream.next_block(&mut block)? {
        samples.append(&mut block);
        bar.set_position(stream.progress().frames);
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn rows(prepared: &AudioFeatures) -> (Value, crate::Tensors) {
    let shape = [prepared.rows, prepared.dim];
    let facts = json!({
        "frames": prepared.rows,
        "valid_frames": prepared.valid_rows(),
        "input_features": shape,
        "soft_tokens": prepared.soft_tokens,
        "cut": cut(prepared.truncation),
        "digest": prepared.digest.to_string(),
    });
    let mask = mask(&prepared.input_features_mask);
    let tensors = vec![
        floats("input_features", shape.to_vec(), &prepared.input_features),
        (
            "input_features_mask",
            Dtype::BOOL,
            vec![prepared.rows],
            mask,
        ),
    ];
    (facts, tensors)
}

fn cut(truncation: Option<Truncation>) -> Value {
    truncation.map_or(
        Value::Null,
        |cut| json!({"kept": cut.kept, "of": cut.total}),
    )
}

fn mask(mask: &[bool]) -> Vec<u8> {
    mask.iter().map(|&valid| valid.into()).collect()
}
