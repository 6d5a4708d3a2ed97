//! Options about the answer, and its streaming.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use prefill::{Engine, Event, FinishReason, Finished, Request, Reused};
use serde_json::json;

/// Options about the answer.
#[derive(clap::Args)]
pub struct AnswerOptions {
    /// The most tokens that the answer may have
    #[arg(long, value_name = "N", default_value_t = Request::DEFAULT_MAX_TOKENS)]
    max_tokens: usize,
    /// Draw tokens at this temperature; 0 takes the most likely [default: as the checkpoint asks]
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Draw from the likeliest tokens that have this probability together
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Draw from this many of the likeliest tokens
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Make the draws reproducible
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
    /// Say at the end what it took, on standard error
    #[arg(long)]
    stats: bool,
    /// Write one JSON object an answer instead of streaming text
    #[arg(long)]
    json: bool,
}

impl AnswerOptions {
    /// The request with these options.
    pub fn apply(&self, engine: &Engine, request: Request) -> Request {
        let mut request = request.max_tokens(self.max_tokens);
        if self.temperature.is_some()
            || self.top_p.is_some()
            || self.top_k.is_some()
            || self.seed.is_some()
        {
            let mut sampling = engine.default_sampling().clone();
            if let Some(temperature) = self.temperature {
                sampling = sampling.temperature(temperature);
            }
            if let Some(p) = self.top_p {
                sampling = sampling.top_p(p);
            }
            if let Some(k) = self.top_k {
                sampling = sampling.top_k(k);
            }
            if let Some(seed) = self.seed {
                sampling = sampling.seed(seed);
            }
            request = request.sampling(sampling);
        }
        for stop in &self.stop {
            request = request.stop(stop);
        }
        match self.deadline {
            Some(seconds) => request.deadline(Duration::from_secs_f64(seconds.max(0.0))),
            None => request,
        }
    }
}

/// Writes an answer as it comes; false if it was cancelled.
///
/// # Errors
/// Those of the engine, and of writing.
pub fn stream(engine: &Engine, request: Request, options: &AnswerOptions) -> Result<bool> {
    let mut output = io::stdout().lock();
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for event in engine.generate(request)? {
        match event? {
            Event::Text(more) if options.json => text += &more,
            Event::Text(more) => {
                output.write_all(more.as_bytes())?;
                output.flush()?;
            }
            Event::Reasoning(more) if options.json => reasoning += &more,
            Event::ToolCall(call) if options.json => {
                calls.push(json!({"name": call.name, "arguments": call.arguments}));
            }
            Event::ToolCall(call) => {
                writeln!(output, "[{}({})]", call.name, json!(call.arguments))?;
            }
            Event::Finished(finished) => {
                if options.json {
                    let report = json!({
                        "text": text,
                        "reasoning": reasoning,
                        "tool_calls": calls,
                        "finish_reason": format!("{:?}", finished.reason).to_lowercase(),
                        "statistics": figures(engine.load_time(), &finished),
                    });
                    writeln!(output, "{report}")?;
                } else {
                    writeln!(output)?;
                }
                if options.stats {
                    eprintln!("{}", statistics_line(engine.load_time(), &finished));
                }
                return Ok(finished.reason != FinishReason::Cancelled);
            }
            _ => {}
        }
    }
    Ok(true)
}

fn figures(load_time: Duration, finished: &Finished) -> serde_json::Value {
    let statistics = &finished.statistics;
    json!({
        "load_seconds": load_time.as_secs_f64(),
        "first_token_seconds": statistics.time_to_first_token.as_secs_f64(),
        "encode_seconds": statistics.encode_time.as_secs_f64(),
        "prompt_tokens": statistics.prompt_tokens,
        "prefill_tokens_per_second": statistics.prefill_rate(),
        "generated_tokens": statistics.generated_tokens,
        "decode_tokens_per_second": statistics.decode_rate(),
        "peak_memory_bytes": statistics.peak_memory,
        "reused_tokens": {
            "memory": statistics.reused.ram_tokens,
            "disk": statistics.reused.disk_tokens,
        },
        "encoded_media": statistics.reused.encoded_media,
    })
}

/// What was found of a prompt, in words.
pub fn reuse_words(reused: &Reused) -> String {
    let media = reused.media_in_prefix + reused.ram_media + reused.disk_media;
    let words = match (reused.ram_tokens, reused.disk_tokens) {
        (0, 0) => "none reused".to_owned(),
        (ram, 0) => format!("{ram} reused from memory"),
        (0, disk) => format!("{disk} reused from disk"),
        (ram, disk) => format!("{ram} reused from memory, {disk} from disk"),
    };
    match media {
        0 => words,
        1 => format!("{words} with 1 medium"),
        _ => format!("{words} with {media} media"),
    }
}

fn statistics_line(load_time: Duration, finished: &Finished) -> String {
    let statistics = &finished.statistics;
    format!(
        "[load {:.2} s, first token after {:.2} s, towers {:.2} s, prompt {} tokens: {}, \
         prefill {} at {:.0}/s, decode {} tokens at {:.0}/s, peak memory {:.1} MB]",
        load_time.as_secs_f64(),
        statistics.time_to_first_token.as_secs_f64(),
        statistics.encode_time.as_secs_f64(),
        statistics.prompt_tokens,
        reuse_words(&statistics.reused),
        statistics.computed_tokens(),
        statistics.prefill_rate(),
        statistics.generated_tokens,
        statistics.decode_rate(),
        statistics.peak_memory as f64 / 1e6,
    )
}
