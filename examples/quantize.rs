//! A checkpoint in, the same with quantised weights out; mlx-lm and mlx-vlm read it too.
//!
//! ```text
//! cargo run --release --example quantize -- \
//!     --model assets/demo-model --output demo-4bit --bits 4 --group-size 32
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]
#![allow(clippy::doc_markdown, reason = "comments are the help that is printed")]

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use prefill::{Checkpoint, MlxThread, QuantizationMode, QuantizeOptions, quantize_checkpoint};

mod support;

/// Quantise a checkpoint's weights.
#[derive(Parser)]
struct Arguments {
    /// A checkpoint's folder, or an org/name of the Hugging Face hub
    #[arg(long, value_name = "DIR_OR_ID")]
    model: PathBuf,
    /// The folder to write: new, or empty
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// How values are stored
    #[arg(long, default_value = "affine")]
    mode: Mode,
    /// Bits a value: 2 to 6, or 8 (affine only)
    #[arg(long, default_value_t = 4)]
    bits: i32,
    /// Values that share a scale: 32, 64 or 128 (affine only)
    #[arg(long, default_value_t = 64)]
    group_size: i32,
    /// Quantise the towers of pictures and sound too
    #[arg(long)]
    towers: bool,
    /// Another choice for modules whose MLX path matches, `*` standing for any text: `none`, a
    /// mode, or affine's bits and group size; may be given several times, the last that matches
    /// counts [example: "*.down_proj=8,64"]
    #[arg(long = "override", value_name = "PATTERN=CHOICE")]
    overrides: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Whole numbers with a scale and a bias a group
    Affine,
    /// 4-bit floats, a power of two a group of 32
    Mxfp4,
    /// 8-bit floats, a power of two a group of 32
    Mxfp8,
    /// 4-bit floats, an 8-bit float a group of 16
    Nvfp4,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mode = match arguments.mode {
        Mode::Affine => QuantizationMode::affine(arguments.group_size, arguments.bits)?,
        Mode::Mxfp4 => QuantizationMode::mxfp4(),
        Mode::Mxfp8 => QuantizationMode::mxfp8(),
        Mode::Nvfp4 => QuantizationMode::nvfp4(),
    };
    let mut options = QuantizeOptions::new(mode);
    if arguments.towers {
        for tower in [
            "vision_tower.*",
            "audio_tower.*",
            "embed_vision.*",
            "embed_audio.*",
        ] {
            options = options.with(tower, Some(mode));
        }
    }
    for text in &arguments.overrides {
        let (pattern, choice) = text
            .split_once('=')
            .with_context(|| format!("{text:?} is not PATTERN=CHOICE"))?;
        options = options.with(pattern, parse_choice(choice)?);
    }
    let thread = MlxThread::claim()?;
    let checkpoint = Checkpoint::open(&arguments.model)?;
    let mut bar = support::progress_bar("quantising");
    let report = quantize_checkpoint(&thread, &checkpoint, &arguments.output, &options, &mut bar)?;
    for name in &report.unfit {
        eprintln!("left as it is, since no group fits its width: {name}");
    }
    println!(
        "{} matrices quantised, {} left; {:.1} MB became {:.1} MB",
        report.quantised,
        report.left + report.unfit.len(),
        report.bytes_before as f64 / 1e6,
        report.bytes_after as f64 / 1e6,
    );
    Ok(())
}

fn parse_choice(text: &str) -> Result<Option<QuantizationMode>> {
    Ok(Some(match text {
        "none" => return Ok(None),
        "mxfp4" => QuantizationMode::mxfp4(),
        "mxfp8" => QuantizationMode::mxfp8(),
        "nvfp4" => QuantizationMode::nvfp4(),
        affine => {
            let Some((bits, group)) = affine.split_once(',') else {
                bail!("{affine:?} is neither none, a mode, nor BITS,GROUP");
            };
            QuantizationMode::affine(group.parse()?, bits.parse()?)?
        }
    }))
}
