//! A clip of sound in, what is said in it out. Clips that are longer than the model takes are cut
//! into pieces.
//!
//! ```text
//! cargo run --release --example transcribe -- --model google/gemma-4-E2B-it talk.mp3
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use prefill::{CancelToken, Conversation, Engine, MediaKind, Request};

mod support;

use support::answer::{AnswerOptions, stream};

/// Write down what is said in a clip of sound.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    /// The clip: WAV, FLAC, MP3, Ogg, M4A and others
    #[arg(value_name = "FILE")]
    clip: PathBuf,
    /// What the model is asked for each piece
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "Transcribe the following speech. Write only the transcription."
    )]
    prompt: String,
    /// Seconds of a piece; the model itself hears no more than 30
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    piece: f64,
    #[command(flatten)]
    answer: AnswerOptions,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let cancel = CancelToken::new();
    support::cancel_on_interrupt(&cancel)?;
    let pieces = support::sound::pieces(&arguments.clip, arguments.piece)
        .with_context(|| format!("{}", arguments.clip.display()))?;
    let engine = arguments
        .model
        .load(Engine::builder(&arguments.model.model))?;
    for piece in pieces {
        let question =
            Conversation::user(arguments.prompt.clone(), [(MediaKind::Audio, piece.into())]);
        let request = Request::new(question).cancel_token(cancel.clone());
        if !stream(
            &engine,
            arguments.answer.apply(&engine, request),
            &arguments.answer,
        )? {
            return Ok(support::interrupted());
        }
    }
    Ok(ExitCode::SUCCESS)
}
