//! What the fuzzer runs, and `tests/fuzz.rs` replays: foreign bytes never panic, and what must
//! hold of any input holds.
#![allow(clippy::unwrap_used, reason = "a panic is what a fuzzer finds")]

use prefill_multimodal_prompt::{
    AnswerEvent, AnswerFormat, AnswerParser, ChatTemplate, MessageRules, TemplateOptions,
};
use serde_json::json;

/// The JSON of messages, by narrow rules; what is read is rendered.
pub(crate) fn messages(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let rules = MessageRules {
        image_bytes: 64,
        audio_bytes: 64,
        video_bytes: 128,
        media: 8,
        text_bytes: 1 << 16,
        ..MessageRules::default()
    };
    if let Ok(conversation) = rules.parse(text) {
        let media = conversation.media().len();
        assert!(media <= 8);
        // Reading what was read changes nothing but the media's sources.
        let again = rules.read(&conversation.messages().into()).unwrap();
        assert_eq!(again.messages(), conversation.messages());
        assert_eq!(again.media().len(), media);
        let template = ChatTemplate::new("{{ messages | tojson }}").unwrap();
        let _ = template.render(conversation.messages(), &TemplateOptions::default());
    }
}

/// The source of a template.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(template) = ChatTemplate::new(source) {
        let _ = template.reads("bos_token");
        let messages = [
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}),
        ];
        let options = TemplateOptions {
            add_generation_prompt: true,
            bos_token: "<bos>".to_owned(),
            tools: Some(vec![json!({"function": {"name": "f"}})]),
            ..TemplateOptions::default()
        };
        let _ = template.render(&messages, &options);
    }
}

/// An answer. The first byte chooses the format, the second where the text is cut.
pub(crate) fn answer(bytes: &[u8]) {
    let (&[format, cut], text) = bytes
        .split_at_checked(2)
        .map_or((&[0, 0], bytes), |(head, rest)| {
            (head.try_into().unwrap(), rest)
        });
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let format = match format % 3 {
        0 => AnswerFormat::Gemma4,
        1 => AnswerFormat::QwenJson,
        _ => AnswerFormat::QwenXml,
    };
    let parser = || {
        let tools = [json!({"name": "f", "parameters": {"type": "object",
            "properties": {"x": {"type": "integer"}}}})];
        AnswerParser::new(format).tools(&tools)
    };
    let parse = |pieces: &[&str]| {
        let mut parser = parser();
        let mut events: Vec<AnswerEvent> =
            pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        events.extend(parser.finish());
        joined(events)
    };
    let cut = text.floor_char_boundary(usize::from(cut));
    let (before, after) = text.split_at(cut);
    assert_eq!(parse(&[before, after]), parse(&[text]));
}

fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut all: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(AnswerEvent::Text(before)), AnswerEvent::Text(text))
            | (Some(AnswerEvent::Reasoning(before)), AnswerEvent::Reasoning(text)) => {
                before.push_str(&text);
            }
            (_, event) => all.push(event),
        }
    }
    all
}
