//! Prepares pictures, videos or audio as a model gets them, and prints what came of it: one
//! JSON object for each file.
//!
//! `cargo run --release --example preprocess -- photo.jpg --family gemma4 --png grid.png`
//! `cargo run --release --example preprocess -- speech.mp3 --family gemma4 --png mel.png`

#[path = "preprocess/audio.rs"]
mod audio;
#[path = "preprocess/grid.rs"]
mod grid;
#[path = "preprocess/spectrogram.rs"]
mod spectrogram;

use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use prefill_media_preprocess::image::resize::{Backend, PassOrder};
use prefill_media_preprocess::image::{
    AlphaPolicy, DecodeOptions, Format, Gemma4ImageProcessor, Gemma4Layout, Limits,
    QwenImageProcessor, Rescale, decode, jpeg_backend,
};
use prefill_media_preprocess::video::{
    Animation, Ffmpeg, FfmpegLimits, FrameSource, Gemma4VideoProcessor, Qwen2VideoProcessor,
    QwenVideoProcessor,
};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Value, json};

/// Prepares pictures, videos or audio as a model gets them.
#[derive(Parser)]
struct Arguments {
    /// Pictures, audio, or videos with --video (without it, their sound).
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Whose input to make.
    #[arg(long, value_enum)]
    family: Family,
    /// The checkpoint's folder, or its processor configuration. Without it, the published
    /// configuration of the family.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Gemma's budget of soft tokens: 70, 140, 280, 560 or 1120.
    #[arg(long)]
    budget: Option<u32>,
    /// The pass order of Pillow 11.3 (V11), 12.3 (V12) or 13.0 (V13).
    #[arg(long, value_enum, ignore_case = true, default_value = "v13")]
    pass_order: Order,
    /// Resize as torchvision does instead.
    #[arg(long)]
    torchvision: bool,
    /// What becomes of transparency.
    #[arg(long, value_enum, default_value = "drop")]
    alpha: Alpha,
    /// Whose arithmetic makes f32 of bytes.
    #[arg(long, value_enum, default_value = "hf-pil")]
    rescale: Arithmetic,
    /// Threads for resizing.
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,
    /// The files are videos: animations, or whatever ffmpeg reads.
    #[arg(long)]
    video: bool,
    /// How audio of another rate becomes 16 kHz.
    #[arg(long, value_enum, default_value = "kaiser")]
    resampler: audio::Resample,
    /// Whose count of audio tokens.
    #[arg(long, value_enum, default_value = "transformers")]
    tokens: audio::Tokens,
    /// Draw the resized picture with its patches and soft tokens here, or the mel spectrogram.
    #[arg(long)]
    png: Option<PathBuf>,
    /// Write the tensors here, as safetensors: for audio `input_features`, `input_features_mask`
    /// and `waveform`.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Family {
    Gemma4,
    Gemma4Unified,
    /// Audio only.
    Gemma3n,
    /// Audio only.
    Whisper,
    #[value(name = "qwen3-vl")]
    Qwen3Vl,
    #[value(name = "qwen2-vl")]
    Qwen2Vl,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    V11,
    V12,
    V13,
}

#[derive(Clone, Copy, ValueEnum)]
enum Alpha {
    Drop,
    White,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arithmetic {
    HfPil,
    Torch,
    MlxVlm,
}

const AUDIO_ONLY: &str = "this family is supported for audio alone";

type Tensors = Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>;

/// What one file became.
struct Prepared {
    facts: Value,
    tensors: Tensors,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let single = arguments.files.len() == 1;
    if !single && (arguments.png.is_some() || arguments.out.is_some()) {
        return Err("--png and --out take one file at a time".into());
    }
    if arguments.video && arguments.png.is_some() {
        return Err("--png draws pictures, not videos".into());
    }
    for file in &arguments.files {
        let prepared = if arguments.video {
            prepare_video(&arguments, file)
        } else if audio::is_audio(file)? {
            prepare_audio(&arguments, file)
        } else {
            prepare_image(&arguments, file)
        };
        let prepared = prepared.map_err(|error| format!("{}: {error}", file.display()))?;
        writeln!(std::io::stdout(), "{}", prepared.facts)?;
        if let Some(out) = &arguments.out {
            write_tensors(out, &prepared.tensors)?;
        }
    }
    Ok(())
}

/// The configuration: from the checkpoint, or as published.
fn configuration(arguments: &Arguments, block: &str, flat: &str) -> Result<Value, Box<dyn Error>> {
    if let Some(path) = &arguments.config {
        let candidates = [path.join("processor_config.json"), path.join(flat)];
        let files = if path.is_dir() {
            &candidates[..]
        } else {
            std::slice::from_ref(path)
        };
        for file in files.iter().filter(|file| file.exists()) {
            let value: Value = serde_json::from_slice(&std::fs::read(file)?)?;
            if !path.is_dir() || value.get(block).is_some() || file.ends_with(flat) {
                return Ok(value);
            }
        }
        return Err(format!("{}: no processor configuration", path.display()).into());
    }
    let half = [0.5, 0.5, 0.5];
    Ok(match (arguments.family, arguments.video) {
        (Family::Gemma4 | Family::Gemma4Unified | Family::Gemma3n | Family::Whisper, _) => {
            json!({})
        }
        (Family::Qwen3Vl, false) => json!({
            "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
            "patch_size": 16, "image_mean": half, "image_std": half
        }),
        (Family::Qwen3Vl, true) => json!({
            "size": {"shortest_edge": 4096, "longest_edge": 25_165_824},
            "patch_size": 16, "image_mean": half, "image_std": half
        }),
        (Family::Qwen2Vl, false) => json!({
            "size": {"shortest_edge": 3136, "longest_edge": 1_003_520}, "patch_size": 14
        }),
        // The bounds of transformers' class, and the rate of qwen-vl-utils.
        (Family::Qwen2Vl, true) => json!({
            "size": {"shortest_edge": 100_352, "longest_edge": 602_112}, "patch_size": 14,
            "do_sample_frames": true, "fps": 2
        }),
    })
}

fn prepare_audio(arguments: &Arguments, file: &Path) -> Result<Prepared, Box<dyn Error>> {
    let options = audio::Options {
        family: arguments.family,
        config: configuration(arguments, "feature_extractor", "preprocessor_config.json")?,
        resampler: arguments.resampler,
        tokens: arguments.tokens,
        png: arguments.png.as_deref(),
    };
    audio::prepare(file, &options)
}

fn prepare_image(arguments: &Arguments, file: &Path) -> Result<Prepared, Box<dyn Error>> {
    let bytes = std::fs::read(file)?;
    let alpha = match arguments.alpha {
        Alpha::Drop => AlphaPolicy::Drop,
        Alpha::White => AlphaPolicy::White,
    };
    let image = decode(&bytes, &DecodeOptions::default().with_alpha(alpha))?;
    let backend = match arguments.pass_order {
        _ if arguments.torchvision => Backend::Torchvision,
        Order::V11 => Backend::Pillow(PassOrder::V11),
        Order::V12 => Backend::Pillow(PassOrder::V12),
        Order::V13 => Backend::Pillow(PassOrder::V13),
    };
    let rescale = match arguments.rescale {
        Arithmetic::HfPil => Rescale::HfPil,
        Arithmetic::Torch => Rescale::Torch,
        Arithmetic::MlxVlm => Rescale::MlxVlm,
    };
    let config = configuration(arguments, "image_processor", "preprocessor_config.json")?;
    let mut facts = json!({
        "file": file.display().to_string(),
        "format": Format::detect(&bytes).map(|format| format.to_string()),
        "jpeg_decoder": jpeg_backend().map(|backend| backend.to_string()),
        "width": image.width(),
        "height": image.height(),
    });
    let (resized, lines, tensors, more);
    match arguments.family {
        Family::Gemma4 | Family::Gemma4Unified => {
            let mut processor = Gemma4ImageProcessor::from_json(&config)?
                .with_resize_backend(backend)
                .with_rescale(rescale)
                .with_threads(arguments.threads);
            if arguments.family == Family::Gemma4Unified {
                processor = processor.with_layout(Gemma4Layout::Unified);
            }
            if let Some(budget) = arguments.budget {
                processor = processor.with_max_soft_tokens(budget)?;
            }
            resized = processor.resize(&image)?.into_owned();
            let prepared = processor.prepare(&image)?;
            let (n, dim) = (prepared.num_patches(), prepared.patch_dim());
            // A soft token is a square of this side, whatever the layout.
            let area = resized.width() * resized.height() / prepared.soft_tokens as u32;
            lines = (prepared.patch_size as u32, area.isqrt());
            more = json!({
                "rows": prepared.rows, "columns": prepared.columns,
                "first_positions": prepared.positions[..n.min(4)],
                "last_position": prepared.positions.last(),
                "soft_tokens": prepared.soft_tokens,
                "max_patches": prepared.max_patches,
                "pixel_values": [n, dim],
                "digest": prepared.digest.to_string(),
            });
            let positions = prepared.positions.as_flattened().iter().map(|&v| v.into());
            tensors = vec![
                floats("pixel_values", vec![n, dim], &prepared.pixel_values),
                integers("positions", vec![n, 2], positions),
            ];
        }
        Family::Qwen3Vl | Family::Qwen2Vl => {
            let processor = QwenImageProcessor::from_json(&config)?
                .with_resize_backend(backend)
                .with_rescale(rescale)
                .with_threads(arguments.threads);
            resized = processor.resize(&image)?.into_owned();
            let prepared = processor.prepare(&image)?;
            let (n, dim) = (prepared.num_patches(), prepared.patch_dim);
            let patch = resized.height() / prepared.grid_thw[1] as u32;
            lines = (patch, patch * 2);
            more = json!({
                "grid_thw": prepared.grid_thw,
                "soft_tokens": prepared.soft_tokens,
                "pixel_values": [n, dim],
                "digest": prepared.digest.to_string(),
            });
            let grid = prepared.grid_thw.map(|v| v as i64);
            tensors = vec![
                floats("pixel_values", vec![n, dim], &prepared.pixel_values),
                integers("grid_thw", vec![1, 3], grid.into_iter()),
            ];
        }
        Family::Gemma3n | Family::Whisper => return Err(AUDIO_ONLY.into()),
    }
    merge(
        &mut facts,
        json!({"resized": [resized.width(), resized.height()]}),
    );
    merge(&mut facts, more);
    if let Some(png) = &arguments.png {
        grid::draw(png, &resized, lines.0, lines.1)?;
    }
    Ok(Prepared { facts, tensors })
}

fn prepare_video(arguments: &Arguments, file: &Path) -> Result<Prepared, Box<dyn Error>> {
    let mut source = open_video(file)?;
    let mut facts = json!({
        "file": file.display().to_string(),
        "frames": source.num_frames(),
        "fps": source.fps(),
    });
    let config = configuration(
        arguments,
        "video_processor",
        "video_preprocessor_config.json",
    )?;
    let (tensors, more);
    match arguments.family {
        Family::Gemma4 | Family::Gemma4Unified => {
            let mut processor =
                Gemma4VideoProcessor::from_json(&config)?.with_threads(arguments.threads);
            if arguments.family == Family::Gemma4Unified {
                processor = processor.with_layout(Gemma4Layout::Unified);
            }
            let prepared = processor.prepare(source.as_mut())?;
            let (t, n, dim) = (
                prepared.num_frames,
                prepared.num_patches(),
                prepared.patch_dim(),
            );
            let stamps: Vec<String> = (0..t).map(|i| prepared.timestamp_text(i)).collect();
            more = json!({
                "indices": prepared.indices, "timestamps": stamps,
                "rows": prepared.rows, "columns": prepared.columns,
                "soft_tokens_per_frame": prepared.soft_tokens_per_frame,
                "pixel_values": [t, n, dim],
                "digest": prepared.digest.to_string(),
            });
            let positions = prepared.positions.as_flattened().iter().map(|&v| v.into());
            tensors = vec![
                floats("pixel_values", vec![t, n, dim], &prepared.pixel_values),
                integers("positions", vec![n, 2], positions),
            ];
        }
        Family::Qwen3Vl | Family::Qwen2Vl => {
            let threads = arguments.threads;
            let prepared = if arguments.family == Family::Qwen2Vl {
                let processor = Qwen2VideoProcessor::from_json(&config)?.with_threads(threads);
                processor.prepare(source.as_mut())?
            } else {
                let processor = QwenVideoProcessor::from_json(&config)?.with_threads(threads);
                processor.prepare(source.as_mut())?
            };
            let (n, dim) = (prepared.num_patches(), prepared.patch_dim);
            let groups = prepared.grid_thw[0];
            let stamps: Vec<String> = (0..groups).map(|i| prepared.timestamp_text(i)).collect();
            more = json!({
                "indices": prepared.indices, "timestamps": stamps,
                "seconds_per_group": prepared.seconds_per_group,
                "grid_thw": prepared.grid_thw,
                "soft_tokens_per_group": prepared.soft_tokens_per_group,
                "pixel_values": [n, dim],
                "digest": prepared.digest.to_string(),
            });
            let grid = prepared.grid_thw.map(|v| v as i64);
            tensors = vec![
                floats("pixel_values", vec![n, dim], &prepared.pixel_values),
                integers("grid_thw", vec![1, 3], grid.into_iter()),
            ];
        }
        Family::Gemma3n | Family::Whisper => return Err(AUDIO_ONLY.into()),
    }
    merge(&mut facts, more);
    Ok(Prepared { facts, tensors })
}

/// Animations by themselves, everything else by ffmpeg.
fn open_video(file: &Path) -> Result<Box<dyn FrameSource>, Box<dyn Error>> {
    use std::io::Read as _;
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(16).read_to_end(&mut head)?;
    Ok(match Format::detect(&head) {
        Some(Format::Gif | Format::Png | Format::WebP) => {
            Box::new(Animation::new(std::fs::read(file)?, Limits::default())?)
        }
        _ => Box::new(Ffmpeg::open(file, FfmpegLimits::default())?),
    })
}

/// Adds the members of `more`.
fn merge(facts: &mut Value, more: Value) {
    if let (Value::Object(facts), Value::Object(more)) = (facts, more) {
        facts.extend(more);
    }
}

fn floats(
    name: &'static str,
    shape: Vec<usize>,
    values: &[f32],
) -> (&'static str, Dtype, Vec<usize>, Vec<u8>) {
    (
        name,
        Dtype::F32,
        shape,
        values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    )
}

fn integers(
    name: &'static str,
    shape: Vec<usize>,
    values: impl Iterator<Item = i64>,
) -> (&'static str, Dtype, Vec<usize>, Vec<u8>) {
    (
        name,
        Dtype::I64,
        shape,
        values.flat_map(i64::to_le_bytes).collect(),
    )
}

fn write_tensors(path: &Path, tensors: &Tensors) -> Result<(), Box<dyn Error>> {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| {
            Ok((*name, TensorView::new(*dtype, shape.clone(), data)?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    serialize_to_file(views, None, path)?;
    Ok(())
}
