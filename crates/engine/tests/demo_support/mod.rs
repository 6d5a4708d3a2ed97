//! Drawn samples as requests to the bundled model, and what is right.
#![allow(dead_code, reason = "each test binary uses a part")]

use prefill_demo_scenes::{Call, Medium, Mode, Sample, tools};
use prefill_engine::{
    Checkpoint, Conversation, Engine, EngineBuilder, Event, Message, MlxThread, QuantizationMode,
    QuantizeOptions, Request, TemplateOptions, quantize_checkpoint,
};
use prefill_test_support::assets_dir;
use serde_json::Value;

/// What came of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) thought: String,
    pub(crate) text: String,
    /// Name and arguments of each call.
    pub(crate) calls: Vec<(String, Value)>,
}

pub(crate) fn demo() -> EngineBuilder {
    Engine::builder(assets_dir().join("demo-model"))
}

/// The bundled model in 4 bits, in groups of 32. What such a group does not fit, the matrices of
/// the per-layer inputs, stays as it is.
pub(crate) fn four_bits() -> tempfile::TempDir {
    let thread = MlxThread::claim().unwrap();
    let checkpoint = Checkpoint::open(assets_dir().join("demo-model")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = QuantizeOptions::new(QuantizationMode::affine(32, 4).unwrap());
    quantize_checkpoint(&thread, &checkpoint, folder.path(), &options, &mut |_| {}).unwrap();
    folder
}

/// The user's message of a sample: its media, then its question.
pub(crate) fn message(sample: &Sample) -> Message {
    let with_media = sample
        .media
        .iter()
        .fold(Message::user(), |message, medium| match medium {
            Medium::Picture(picture) => message.image(picture.png()),
            Medium::Clip(clip) => message.audio(clip.wav()),
        });
    with_media.text(&sample.question.text)
}

fn template(mode: Mode) -> TemplateOptions {
    TemplateOptions {
        thinking: (mode == Mode::Think).then_some(true),
        tools: (mode == Mode::Tools).then(tools),
        ..TemplateOptions::default()
    }
}

/// Asks the sample's question.
pub(crate) fn request(sample: &Sample) -> Request {
    let conversation: Conversation = [message(sample)].into_iter().collect();
    Request::new(conversation)
        .template(template(sample.mode))
        .max_tokens(160)
}

/// Gives the result of the call that the question needed.
pub(crate) fn result_request(sample: &Sample, call: &Call) -> Request {
    let conversation: Conversation = [
        message(sample),
        Message::assistant().tool_call("1", call.name, call.arguments.clone()),
        Message::tool("1").text(&call.result),
    ]
    .into_iter()
    .collect();
    Request::new(conversation)
        .template(template(sample.mode))
        .max_tokens(160)
}

/// What is right: a thought and an answer, a call, or an answer alone.
pub(crate) fn expected(sample: &Sample) -> Answer {
    let question = &sample.question;
    if let Some(call) = sample.call() {
        return Answer {
            calls: vec![(call.name.to_owned(), call.arguments)],
            ..Answer::default()
        };
    }
    let is_thought = sample.mode == Mode::Think;
    Answer {
        thought: if is_thought {
            question.thought.clone()
        } else {
            String::new()
        },
        text: question.answer.clone(),
        calls: Vec::new(),
    }
}

/// Runs a request to its end.
pub(crate) fn run(engine: &Engine, request: Request) -> Answer {
    let mut answer = Answer::default();
    for event in engine.generate(request).unwrap() {
        match event.unwrap() {
            Event::Text(more) => answer.text += &more,
            Event::Reasoning(more) => answer.thought += &more,
            Event::ToolCall(call) => {
                assert!(call.problems.is_empty(), "{call:?}");
                answer.calls.push((call.name, call.arguments.into()));
            }
            Event::BrokenToolCall { text, fact } => panic!("{text}: {fact}"),
            _ => {}
        }
    }
    answer
}
