//! Pictures and a question in, streamed text out.
//!
//! ```text
//! cargo run --release --example describe -- \
//!     --model assets/demo-model --image assets/demo/shapes.png --prompt "What is in the picture?"
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use prefill::{Conversation, Engine, Event, Finished, MediaKind, MediaSource, Request};

mod support;

/// Ask a model about pictures.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    /// A PNG or JPEG file; may be given several times
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// The question
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// The most tokens that the answer may have
    #[arg(long, value_name = "N", default_value_t = Request::DEFAULT_MAX_TOKENS)]
    max_tokens: usize,
    /// Ask this many times: the first answer of a process also pays for what a GPU sets up
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let engine = Engine::builder(&arguments.model.model)
        .working_type(support::DtypeOption::working_type(arguments.model.dtype))
        .on_progress(support::progress_bar("loading"))
        .build()?;

    let images = arguments.images.into_iter();
    let media = images.map(|path| (MediaKind::Image, MediaSource::Path(path)));
    let conversation = Conversation::user(arguments.prompt, media);
    for _ in 0..arguments.repeat {
        answer(&engine, conversation.clone(), arguments.max_tokens)?;
    }
    Ok(())
}

fn answer(engine: &Engine, conversation: Conversation, max_tokens: usize) -> Result<()> {
    let mut output = io::stdout().lock();
    for event in engine.generate(Request::new(conversation).max_tokens(max_tokens))? {
        match event? {
            Event::Text(text) => {
                output.write_all(text.as_bytes())?;
                output.flush()?;
            }
            Event::Finished(finished) => {
                writeln!(output)?;
                eprintln!("{}", statistics_line(engine.load_time(), &finished));
            }
            _ => {}
        }
    }
    Ok(())
}

fn statistics_line(load_time: Duration, finished: &Finished) -> String {
    let statistics = &finished.statistics;
    format!(
        "[load {:.2} s, first token after {:.2} s, prefill {} tokens at {:.0}/s, \
         decode {} tokens at {:.0}/s, peak memory {:.1} MB]",
        load_time.as_secs_f64(),
        statistics.time_to_first_token.as_secs_f64(),
        statistics.prompt_tokens,
        statistics.prefill_rate(),
        statistics.generated_tokens,
        statistics.decode_rate(),
        statistics.peak_memory as f64 / 1e6,
    )
}
