//! A conversation with pictures and sounds that can be closed and taken up again by name.
//!
//! ```text
//! cargo run --release --example chat -- --model assets/demo-model --cache kept --name shapes
//! > /image assets/demo/shapes.png
//! > What is in the picture?
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use prefill::{Conversation, Engine, Event, FinishReason, Request};
use serde_json::{Value, json};

mod support;

/// Talk to a model about pictures, sounds and videos.
///
/// Lines are said to the model. A line that begins with a slash is a command: /image FILE,
/// /audio FILE and /video FILE go before the next thing said, /new begins anew, /quit ends.
/// Ctrl-C ends an answer, or the program where none is given.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    /// Keep the conversation under this name, and take it up again where it is; needs --cache
    #[arg(long, value_name = "NAME", requires = "cache")]
    name: Option<String>,
    /// What the model is told to be
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The most tokens of one answer
    #[arg(long, value_name = "N", default_value_t = Request::DEFAULT_MAX_TOKENS)]
    max_tokens: usize,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let file = match (&arguments.name, &arguments.model.cache) {
        (Some(name), Some(cache)) => Some(conversation_file(cache, name)?),
        _ => None,
    };
    let mut chat = Chat::open(file, arguments.system)?;
    let answering = support::cancel_each_on_interrupt()?;
    let builder = Engine::builder(&arguments.model.model).fetcher(support::fetcher_of_own_urls());
    let engine = arguments.model.load(builder)?;
    let said = chat
        .messages
        .iter()
        .filter(|message| message["role"] == "user");
    let said = said.count();
    if said > 0 {
        eprintln!("[going on after {said} things said]");
    }
    let input = io::stdin();
    let is_terminal = input.is_terminal();
    let mut lines = input.lock().lines();
    loop {
        if is_terminal {
            print!("> ");
            io::stdout().flush()?;
        }
        let Some(line) = lines.next().transpose()? else {
            return Ok(ExitCode::SUCCESS);
        };
        match line.trim() {
            "" => {}
            "/quit" => return Ok(ExitCode::SUCCESS),
            "/new" => chat.clear()?,
            command if command.starts_with('/') => {
                if let Err(error) = chat.attach(command) {
                    eprintln!("[{error}]");
                }
            }
            text => {
                // A medium that can't be read is no reason to lose the conversation.
                if let Err(error) = chat.say(&engine, text, arguments.max_tokens, &answering) {
                    eprintln!("[{error:#}]");
                }
            }
        }
    }
}

/// Where a named conversation is kept. Names become file names, so they are plain.
fn conversation_file(cache: &Path, name: &str) -> Result<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        bail!("a name has only letters, digits, - and _, and {name:?} has others");
    }
    let folder = cache.join("conversations");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder.join(name).with_extension("json"))
}

/// What was said so far.
struct Chat {
    file: Option<PathBuf>,
    messages: Vec<Value>,
    /// Media for the next thing said, as parts of a message.
    media: Vec<Value>,
}

impl Chat {
    fn open(file: Option<PathBuf>, system: Option<String>) -> Result<Self> {
        let kept = match &file {
            Some(path) if path.exists() => {
                let text = fs::read_to_string(path)?;
                serde_json::from_str(&text).with_context(|| path.display().to_string())?
            }
            _ => Vec::new(),
        };
        let mut chat = Self {
            file,
            messages: kept,
            media: Vec::new(),
        };
        if let Some(system) = system.filter(|_| chat.messages.is_empty()) {
            chat.messages
                .push(json!({"role": "system", "content": system}));
        }
        Ok(chat)
    }

    fn clear(&mut self) -> Result<()> {
        self.messages.retain(|message| message["role"] == "system");
        self.media.clear();
        self.save()
    }

    /// `/image FILE` and its like.
    fn attach(&mut self, command: &str) -> Result<()> {
        let (kind, name) = command.split_once(' ').unwrap_or((command, ""));
        let kind = match kind {
            "/image" => "image",
            "/audio" => "audio",
            "/video" => "video",
            other => bail!("{other}: no such command"),
        };
        let name = name.trim();
        if name.starts_with("http://") || name.starts_with("https://") {
            self.media.push(json!({"type": kind, "url": name}));
        } else {
            // Found again from wherever the conversation is taken up.
            let path = fs::canonicalize(name).with_context(|| name.to_owned())?;
            self.media.push(json!({"type": kind, "path": path}));
        }
        Ok(())
    }

    /// Says something, streams the answer, and remembers both.
    fn say(
        &mut self,
        engine: &Engine,
        text: &str,
        max_tokens: usize,
        answering: &support::Answering,
    ) -> Result<()> {
        let mut content = std::mem::take(&mut self.media);
        content.push(json!({"type": "text", "text": text}));
        let mut messages = self.messages.clone();
        messages.push(json!({"role": "user", "content": content}));
        let conversation = Conversation::from_json(&Value::from(messages.clone()))?;
        let request = Request::new(conversation).max_tokens(max_tokens);
        let cancel = answering.begin();
        let mut answer = String::new();
        let mut output = io::stdout().lock();
        for event in engine.generate(request.cancel_token(cancel))? {
            match event? {
                Event::Text(more) => {
                    output.write_all(more.as_bytes())?;
                    output.flush()?;
                    answer += &more;
                }
                Event::Finished(end) => {
                    writeln!(output)?;
                    let statistics = end.statistics;
                    eprintln!(
                        "[{} tokens: {}; first token after {:.3} s]",
                        statistics.prompt_tokens,
                        support::answer::reuse_words(&statistics.reused),
                        statistics.time_to_first_token.as_secs_f64(),
                    );
                    if end.reason == FinishReason::Length {
                        eprintln!("[the answer was cut at {max_tokens} tokens]");
                    }
                }
                _ => {}
            }
        }
        answering.end();
        messages.push(json!({"role": "assistant", "content": answer}));
        self.messages = messages;
        self.save()
    }

    fn save(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(&self.messages)?;
        // As a whole, or not at all.
        let new = file.with_extension("new");
        fs::write(&new, text).with_context(|| new.display().to_string())?;
        fs::rename(&new, file).with_context(|| file.display().to_string())?;
        Ok(())
    }
}
