//! Pictures, sounds, videos and a question in, streamed text out.
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

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};
use prefill::{CachePolicy, CancelToken, Conversation, Engine, MediaKind, MediaSource, Request};

mod support;

use support::answer::{AnswerOptions, stream};

/// Ask a model about pictures, sounds and videos.
///
/// Media go before the question in the order in which they are given.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    #[command(flatten)]
    media: Media,
    /// The question; several are asked one after the other, each about the same media
    #[arg(long = "prompt", value_name = "TEXT", required = true)]
    prompts: Vec<String>,
    #[command(flatten)]
    answer: AnswerOptions,
    /// Ask this many times: the first answer of a process also pays for what a GPU sets up
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Compute everything again, whatever is kept
    #[arg(long)]
    no_reuse: bool,
}

#[derive(Args)]
struct Media {
    /// A picture (PNG, JPEG, WebP, GIF, BMP, TIFF); may be given several times
    #[arg(long = "image", value_name = "FILE_OR_URL")]
    images: Vec<PathBuf>,
    /// A clip of sound (WAV, FLAC, MP3, Ogg, M4A and others); may be given several times
    #[arg(long = "audio", value_name = "FILE_OR_URL")]
    sounds: Vec<PathBuf>,
    /// An animated picture, or any video that the program ffmpeg decodes; may be given several
    /// times
    #[arg(long = "video", value_name = "FILE_OR_URL")]
    videos: Vec<PathBuf>,
}

impl Media {
    /// The media in the order of the command line.
    fn in_order(self, matches: &ArgMatches) -> Vec<(MediaKind, MediaSource)> {
        let kinds = [
            ("images", MediaKind::Image, self.images),
            ("sounds", MediaKind::Audio, self.sounds),
            ("videos", MediaKind::Video, self.videos),
        ];
        let mut media: Vec<(usize, MediaKind, MediaSource)> = Vec::new();
        for (id, kind, paths) in kinds {
            let places = matches.indices_of(id).into_iter().flatten();
            let sources = paths.into_iter().map(support::media_source);
            media.extend(places.zip(sources).map(|(at, source)| (at, kind, source)));
        }
        media.sort_by_key(|(at, ..)| *at);
        media
            .into_iter()
            .map(|(_, kind, source)| (kind, source))
            .collect()
    }
}

fn main() -> Result<ExitCode> {
    let matches = Arguments::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches)?;
    let cancel = CancelToken::new();
    support::cancel_on_interrupt(&cancel)?;

    let builder = Engine::builder(&arguments.model.model).fetcher(support::fetcher_of_own_urls());
    let engine = arguments.model.load(builder)?;
    let media = arguments.media.in_order(&matches);
    for _ in 0..arguments.repeat {
        for prompt in &arguments.prompts {
            let conversation = Conversation::user(prompt.clone(), media.clone());
            let request = Request::new(conversation).cancel_token(cancel.clone());
            let mut request = arguments.answer.apply(&engine, request);
            if arguments.no_reuse {
                request = request.cache(CachePolicy::Bypass);
            }
            if !stream(&engine, request, &arguments.answer)? {
                return Ok(support::interrupted());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
