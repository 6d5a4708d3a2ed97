//! What tests of the engine's handle share.

use prefill_engine::{Engine, Event, Finished, Request};

/// Text and end of an answer.
pub(crate) fn run(engine: &Engine, request: Request) -> (String, Finished) {
    let mut text = String::new();
    for event in engine.generate(request).unwrap() {
        match event.unwrap() {
            Event::Text(more) => text += &more,
            Event::Finished(end) => return (text, end),
            _ => {}
        }
    }
    panic!("no end")
}
