//! A minimal endpoint in OpenAI's form, `POST /v1/chat/completions`, streamed or not: it shows that
//! an engine lives inside an asynchronous program. It is an example, not a server for others.
//!
//! ```text
//! cargo run --release --example serve_axum -- --model assets/demo-model
//! curl localhost:8080/v1/chat/completions -d '{"stream": true, "messages": [{"role": "user",
//!     "content": "Hello, who are you?"}]}' -H 'content-type: application/json'
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event as Sse, Sse as SseResponse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use futures_util::StreamExt;
use prefill::{Engine, Event, FetchPolicy, Fetcher, FinishReason, MessageRules, Request, Sampling};
use serde_json::{Value, json};

mod support;

/// Serve a model by an endpoint in OpenAI's form.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    model: support::ModelOptions,
    /// The address to listen at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let options = arguments.model;
    // Clients name media by URL, and no such URL leads to an inside address.
    let builder =
        Engine::builder(&options.model).fetcher(Fetcher::new(FetchPolicy::default(), &rules()));
    // Loading waits, so it does so on a thread of its own.
    let engine = tokio::task::spawn_blocking(move || options.load(builder)).await??;
    let router = Router::new()
        .route("/v1/chat/completions", post(complete))
        .with_state(engine);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("listening at http://{}", listener.local_addr()?);
    let stopped = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, router)
        .with_graceful_shutdown(stopped)
        .await?;
    Ok(())
}

async fn complete(State(engine): State<Engine>, Json(body): Json<Value>) -> Response {
    let is_streamed = body["stream"].as_bool().unwrap_or(false);
    // Media, template and tokens take a while.
    let begun =
        tokio::task::spawn_blocking(move || engine.generate(request(&engine, &body)?)).await;
    let generation = match begun {
        Ok(Ok(generation)) => generation,
        Ok(Err(error)) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let mut events = generation.into_stream();
    if is_streamed {
        // Dropping the response, when the client goes, cancels the work.
        let chunks = events.filter_map(async |event| {
            let chunk = match event {
                Ok(Event::Text(text)) => {
                    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
                }
                Ok(Event::Finished(end)) => json!({"choices": [
                    {"index": 0, "delta": {}, "finish_reason": reason(end.reason)}]}),
                Ok(_) => return None,
                Err(error) => json!({"error": {"message": error.to_string()}}),
            };
            Some(Ok::<_, Infallible>(Sse::default().data(chunk.to_string())))
        });
        let done = futures_util::stream::iter([Ok(Sse::default().data("[DONE]"))]);
        return SseResponse::new(chunks.chain(done)).into_response();
    }
    let mut text = String::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Text(more)) => text += &more,
            Ok(Event::Finished(end)) => {
                return Json(json!({
                    "object": "chat.completion",
                    "choices": [{
                        "index": 0,
                        "message": {"role": "assistant", "content": text},
                        "finish_reason": reason(end.reason),
                    }],
                    "usage": {
                        "prompt_tokens": end.statistics.prompt_tokens,
                        "completion_tokens": end.statistics.generated_tokens,
                    },
                }))
                .into_response();
            }
            Ok(_) => {}
            Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "the answer has no end")
}

/// The default rules let no client name a file of this machine.
fn rules() -> MessageRules {
    MessageRules {
        urls: true,
        ..MessageRules::default()
    }
}

fn request(engine: &Engine, body: &Value) -> prefill::Result<Request> {
    let conversation = rules().read(&body["messages"])?;
    let mut request = Request::new(conversation);
    if let Some(tokens) = body["max_tokens"].as_u64() {
        request = request.max_tokens(tokens as usize);
    }
    let number = |key: &str| body[key].as_f64().map(|value| value as f32);
    let mut sampling: Sampling = engine.default_sampling().clone();
    if let Some(temperature) = number("temperature") {
        sampling = sampling.temperature(temperature);
    }
    if let Some(p) = number("top_p") {
        sampling = sampling.top_p(p);
    }
    if let Some(seed) = body["seed"].as_u64() {
        sampling = sampling.seed(seed);
    }
    for stop in body["stop"].as_array().into_iter().flatten() {
        request = request.stop(stop.as_str().unwrap_or_default());
    }
    Ok(request.sampling(sampling))
}

fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        _ => "length",
    }
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"message": message}}))).into_response()
}
