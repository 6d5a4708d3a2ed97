//! A conversion checked against another implementation: prompt ids, media spans, greedy ids
//! and logits, as JSON and safetensors.
//!
//! ```text
//! cargo run --release --example logits -- --model assets/demo-model --dtype f32 \
//!     --image assets/demo/shapes.png --prompt "What is in the picture?" --steps 8 \
//!     --out logits.safetensors
//! ```
#![allow(clippy::print_stdout, reason = "this is a command-line tool")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use prefill::{
    Checkpoint, Conversation, MediaKind, MediaSource, MlxThread, Model, PreparedPrompt, Preparer,
    TemplateOptions,
};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Value, json};

mod support;

/// How many pairs of id and logit `top` holds.
const TOP: usize = 10;

/// Print the ids and logits of a prompt's continuation as JSON.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    /// A picture; may be given several times
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// A clip of sound; may be given several times
    #[arg(long = "audio", value_name = "FILE")]
    audio: Vec<PathBuf>,
    /// A video; may be given several times
    #[arg(long = "video", value_name = "FILE")]
    videos: Vec<PathBuf>,
    /// The text of one user message, which follows the media
    #[arg(long, value_name = "TEXT", required_unless_present = "messages")]
    prompt: Option<String>,
    /// A JSON list of messages; parts without a file take the given ones, in order
    #[arg(long, value_name = "FILE.json", conflicts_with = "prompt")]
    messages: Option<PathBuf>,
    /// How many tokens to generate
    #[arg(long, value_name = "N")]
    steps: usize,
    /// Where to write `logits` [N, vocabulary] in f32
    #[arg(long, value_name = "FILE.safetensors")]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.steps > 0, "--steps must be at least 1");
    let checkpoint = Checkpoint::open(&arguments.model.model)?;
    let preparer = Preparer::open(&checkpoint)?;
    let prepared = preparer.prepare(&conversation(&arguments)?, &TemplateOptions::default())?;

    let thread = MlxThread::claim()?;
    let working_type = support::DtypeOption::working_type(arguments.model.dtype);
    let mut progress = support::progress_bar("loading");
    let model = Model::load(&thread, &checkpoint, working_type, &mut progress)?;
    let (ids, logits) = generate(&model, &prepared, arguments.steps)?;

    let report = json!({
        "prompt_ids": prepared.prompt.ids,
        "spans": prepared.prompt.spans.iter().map(|span| json!({
            "kind": span.kind.name(), "start": span.start, "length": span.length,
        })).collect::<Vec<_>>(),
        "greedy_ids": ids,
        "text": preparer.tokens().decode(&ids)?,
        "top": top(&logits[..model.vocabulary()]),
    });
    println!("{report}");
    if let Some(path) = &arguments.out {
        write_logits(path, &logits, [arguments.steps, model.vocabulary()])?;
    }
    Ok(())
}

fn conversation(arguments: &Arguments) -> Result<Conversation> {
    let media: Vec<(MediaKind, MediaSource)> = [
        (MediaKind::Image, &arguments.images),
        (MediaKind::Audio, &arguments.audio),
        (MediaKind::Video, &arguments.videos),
    ]
    .into_iter()
    .flat_map(|(kind, paths)| paths.iter().map(move |path| (kind, path.clone().into())))
    .collect();
    if let Some(prompt) = &arguments.prompt {
        return Ok(Conversation::user(prompt, media));
    }
    let path = arguments
        .messages
        .as_deref()
        .context("neither --prompt nor --messages")?;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let messages: Value =
        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let mut conversation = Conversation::from_json(&messages)?;
    conversation.supply(media)?;
    Ok(conversation)
}

/// The greedy ids, and the logits before each, row by row. Nothing ends them early.
fn generate(
    model: &Model,
    prepared: &PreparedPrompt,
    steps: usize,
) -> Result<(Vec<u32>, Vec<f32>)> {
    let mut sequence = model.prefill(prepared, &mut |_| ControlFlow::Continue(()))?;
    let (mut ids, mut logits) = (Vec::new(), Vec::new());
    while ids.len() < steps {
        if let Some(&last) = ids.last() {
            sequence.feed(last)?;
        }
        let row = sequence.logits()?;
        ids.extend(by_logit(&row).first().map(|&(id, _)| id as u32));
        logits.extend(row);
    }
    Ok((ids, logits))
}

/// Ids with their logits, the likeliest first; of equal ones the lower id, as argmax has it.
fn by_logit(row: &[f32]) -> Vec<(usize, f32)> {
    let mut pairs: Vec<_> = row.iter().copied().enumerate().collect();
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1));
    pairs
}

fn top(row: &[f32]) -> Vec<Value> {
    by_logit(row)
        .iter()
        .take(TOP)
        .map(|(id, logit)| json!([id, logit]))
        .collect()
}

fn write_logits(path: &Path, logits: &[f32], shape: [usize; 2]) -> Result<()> {
    let bytes: Vec<u8> = logits
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes)?;
    serialize_to_file([("logits", view)], None, path).with_context(|| path.display().to_string())
}
