//! Answers back: reasoning, text and tool calls, whatever the pieces.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fmt::Write;

use prefill_multimodal_prompt::{
    AnswerEvent, AnswerFormat, AnswerParser, ChatTemplate, TemplateOptions, TextStream, Tokens,
    ToolCall,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use AnswerFormat::{Gemma4, QwenJson, QwenXml};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference");

fn text(text: &str) -> AnswerEvent {
    AnswerEvent::Text(text.to_owned())
}

fn reasoning(text: &str) -> AnswerEvent {
    AnswerEvent::Reasoning(text.to_owned())
}

fn call(name: &str, arguments: Value) -> AnswerEvent {
    let Value::Object(arguments) = arguments else {
        unreachable!("tests give objects")
    };
    AnswerEvent::ToolCall(ToolCall {
        name: name.to_owned(),
        arguments,
        problems: Vec::new(),
    })
}

fn join(events: impl IntoIterator<Item = AnswerEvent>) -> Vec<AnswerEvent> {
    let mut all: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(AnswerEvent::Text(before)), AnswerEvent::Text(text))
            | (Some(AnswerEvent::Reasoning(before)), AnswerEvent::Reasoning(text)) => {
                *before += &text;
            }
            (_, event) => all.push(event),
        }
    }
    all
}

fn parse<'p>(
    mut parser: AnswerParser,
    pieces: impl IntoIterator<Item = &'p str>,
) -> Vec<AnswerEvent> {
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(parser.push(piece));
    }
    events.extend(parser.finish());
    join(events)
}

/// The same events, cut in two at every place and into single characters.
fn at_every_split(parser: impl Fn() -> AnswerParser, answer: &str) -> Vec<AnswerEvent> {
    let whole = parse(parser(), [answer]);
    for (at, _) in answer.char_indices() {
        let (before, after) = answer.split_at(at);
        assert_eq!(
            parse(parser(), [before, after]),
            whole,
            "at {at} of {answer:?}"
        );
    }
    let characters: Vec<String> = answer.chars().map(String::from).collect();
    assert_eq!(
        parse(parser(), characters.iter().map(String::as_str)),
        whole
    );
    whole
}

fn events(format: AnswerFormat, answer: &str) -> Vec<AnswerEvent> {
    at_every_split(|| AnswerParser::new(format), answer)
}

#[test]
fn gemma() {
    assert_eq!(
        events(Gemma4, "Hello <b>\nthere"),
        [text("Hello <b>\nthere")]
    );
    assert_eq!(
        events(
            Gemma4,
            "<|channel>thought\nOne.\n\nTwo.\n<channel|>Answer<turn|>\n"
        ),
        [reasoning("One.\n\nTwo."), text("Answer\n")]
    );
    // An empty section, as the prompts of large models have it.
    assert_eq!(
        events(Gemma4, "<|channel>thought\n<channel|>x"),
        [text("x")]
    );
    assert_eq!(
        events(
            Gemma4,
            "Let me see.<|tool_call>call:weather{city:<|\"|>Zü}r,ich <tool_call|><|\"|>,days:2,f:1.5,\
             deep:{a:[1,<|\"|>b<|\"|>,{}],<|\"|>k:k<|\"|>:null},ok:true}<tool_call|>\
             <|tool_call>call:now{}<tool_call|><|tool_response>"
        ),
        [
            text("Let me see."),
            call(
                "weather",
                json!({"city": "Zü}r,ich <tool_call|>", "days": 2, "f": 1.5,
                       "deep": {"a": [1, "b", {}], "k:k": null}, "ok": true})
            ),
            call("now", json!({})),
        ]
    );
    // Stopped before the closing tag.
    assert_eq!(
        events(Gemma4, "<|tool_call>call:f{x:1}"),
        [call("f", json!({"x": 1}))]
    );
}

#[test]
fn qwen() {
    for format in [QwenJson, QwenXml] {
        assert_eq!(
            events(format, "<think>\nHm, 1 < 2.\n</think>\n\nYes.<|im_end|>"),
            [reasoning("Hm, 1 < 2."), text("Yes.")]
        );
        assert_eq!(events(format, "a </think> b"), [text("a  b")]);
        assert_eq!(
            at_every_split(
                || AnswerParser::new(format).in_reasoning(),
                "Hm.\n</think>\n\nYes.\n\n"
            ),
            [reasoning("Hm."), text("Yes.\n\n")]
        );
    }
    assert_eq!(
        events(
            QwenJson,
            "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"</tool_call> \\\" {\"}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
        ),
        [
            text("I look."),
            call("f", json!({"x": "</tool_call> \" {"})),
            call("g", json!({})),
        ]
    );
    assert_eq!(
        events(
            QwenXml,
            "I look.\n\n<tool_call>\n<function=f>\n<parameter=x>\ntwo\nlines\n</parameter>\n<parameter=n>\n3\n\
             </parameter>\n<parameter=l>\n[1, \"a\"]\n</parameter>\n</function>\n</tool_call>"
        ),
        [
            text("I look."),
            call("f", json!({"x": "two\nlines", "n": 3, "l": [1, "a"]})),
        ]
    );
}

#[test]
fn broken_calls_lose_nothing() {
    for (format, answer, broken, expected, after) in [
        (
            Gemma4,
            "<|tool_call>f{x:1}<tool_call|>on",
            "f{x:1}",
            "it begins with no \"call:\"",
            "on",
        ),
        (
            Gemma4,
            "<|tool_call>call:f{x:1,y}<tool_call|>",
            "call:f{x:1,y}",
            "at byte 12: a key is followed by no colon",
            "",
        ),
        (
            Gemma4,
            "<|tool_call>call:f{x:<|\"|>a}<tool_call|>on",
            "call:f{x:<|\"|>a}",
            "at byte 14: a text is not closed",
            "on",
        ),
        (
            QwenJson,
            "<tool_call>\n{\"name\": \"f}\n</tool_call>\non",
            "\n{\"name\": \"f}\n",
            "it is not JSON: EOF",
            "\non",
        ),
        (
            QwenJson,
            "<tool_call>[1]</tool_call>",
            "[1]",
            "it has no name",
            "",
        ),
        (
            QwenJson,
            "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
            "{\"name\": \"f\", \"arguments\": 3}",
            "its arguments are not an object",
            "",
        ),
        (
            QwenXml,
            "<tool_call>\n<function=f>\nx\n</function></tool_call>",
            "\n<function=f>\nx\n</function>",
            "there is something other than a <parameter=",
            "",
        ),
        (
            QwenXml,
            "<tool_call>{}</tool_call>",
            "{}",
            "it begins with no <function=",
            "",
        ),
    ] {
        let found = events(format, answer);
        let Some(AnswerEvent::BrokenCall { text: inner, fact }) = found.first() else {
            panic!("{answer:?} gave {found:?}");
        };
        assert_eq!(inner, broken);
        assert!(fact.starts_with(expected), "{fact}");
        let rest: Vec<_> = (!after.is_empty())
            .then(|| text(after))
            .into_iter()
            .collect();
        assert_eq!(found[1..], rest);
    }
    // Many that are never closed, each one's string ending in the next.
    let many = "<tool_call>\"</tool_call>".repeat(3001);
    let found = parse(AnswerParser::new(QwenJson), [many.as_str()]);
    assert!(
        found
            .iter()
            .all(|event| matches!(event, AnswerEvent::BrokenCall { .. }))
    );
    // Deep nesting ends at its limit.
    let deep = format!("<|tool_call>call:f{{x:{}<tool_call|>", "[".repeat(100_000));
    let found = parse(AnswerParser::new(Gemma4), [deep.as_str()]);
    assert!(
        matches!(&found[..], [AnswerEvent::BrokenCall { fact, .. }] if fact.contains("deeper"))
    );
}

#[test]
fn arguments_are_read_and_checked_by_the_schema() {
    let tools = [
        json!({"type": "function", "function": {"name": "f", "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer", "minimum": 1},
                "flag": {"type": "boolean"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["text"],
            "additionalProperties": false,
        }}}),
    ];
    let xml = |arguments: &[(&str, &str)]| {
        let mut parameters = String::new();
        for (key, value) in arguments {
            write!(parameters, "<parameter={key}>\n{value}\n</parameter>\n").unwrap();
        }
        let answer = format!("<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>");
        let parser = || AnswerParser::new(QwenXml).tools(&tools);
        match at_every_split(parser, &answer).remove(0) {
            AnswerEvent::ToolCall(call) => call,
            other => panic!("{other:?}"),
        }
    };
    let read = xml(&[
        ("text", "12"),
        ("count", "3"),
        ("flag", "True"),
        ("either", "None"),
        ("unit", "C"),
    ]);
    assert_eq!(
        Value::Object(read.arguments),
        json!({"text": "12", "count": 3, "flag": true, "either": null, "unit": "C"})
    );
    assert_eq!(read.problems, [""; 0]);
    let read = xml(&[("count", "many"), ("unit", "K"), ("other", "x")]);
    assert_eq!(read.problems.len(), 4, "{:?}", read.problems);
    for part in [
        "/count: ",
        "/unit: ",
        "'other'",
        "\"text\" is a required property",
    ] {
        assert!(
            read.problems.iter().any(|p| p.contains(part)),
            "{part}: {:?}",
            read.problems
        );
    }

    let unknown = AnswerParser::new(Gemma4).tools(&tools);
    let found = parse(unknown, ["<|tool_call>call:g{}<tool_call|>"]);
    assert!(
        matches!(&found[..], [AnswerEvent::ToolCall(call)] if call.problems == ["there is no tool \"g\""])
    );
    // A schema that is none is not checked.
    let odd = [json!({"name": "f", "parameters": {"type": 3}})];
    let found = parse(
        AnswerParser::new(Gemma4).tools(&odd),
        ["<|tool_call>call:f{}<tool_call|>"],
    );
    assert_eq!(found, [call("f", json!({}))]);
}

#[test]
fn prompts_tell_whether_the_answer_begins_in_reasoning() {
    let ends = AnswerParser::ends_in_reasoning;
    assert!(ends(QwenXml, "<|im_start|>assistant\n<think>\n"));
    assert!(!ends(
        QwenXml,
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ));
    assert!(!ends(
        QwenXml,
        "what is <think> for?<|im_end|>\n<|im_start|>assistant\n"
    ));
    assert!(ends(Gemma4, "<|turn>model\n<|channel>thought\n"));
    assert!(!ends(Gemma4, "<|turn>model\n<|channel>thought\n<channel|>"));
}

/// Gemma's tags are special tokens, which streams leave out unless told otherwise.
#[test]
fn special_tokens_reach_the_parser() {
    let tokens = Tokens::from_folder(format!("{REFERENCE}/models/gemma4_e2b").as_ref()).unwrap();
    let answer = "<|channel>thought\nWhat is é?\n<channel|>See<|tool_call>call:f{x:<|\"|>ü<|\"|>}<tool_call|><turn|>";
    let mut stream = TextStream::with_special_tokens();
    let mut parser = AnswerParser::new(Gemma4);
    let mut found = Vec::new();
    for id in tokens.encode(answer).unwrap() {
        found.extend(parser.push(&stream.push(&tokens, id).unwrap()));
    }
    found.extend(parser.push(&stream.finish(&tokens).unwrap()));
    found.extend(parser.finish());
    assert_eq!(
        join(found),
        [
            reasoning("What is é?"),
            text("See"),
            call("f", json!({"x": "ü"}))
        ]
    );
}

/// Arguments that every format can carry.
fn arguments() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::from),
        "[a-z<>|/\"\\\\ {}\\[\\],:é\n]{0,12}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,6}", inner), 0..4).prop_map(object),
        ]
    });
    prop::collection::vec(("[a-z_]{1,6}", value), 0..4).prop_map(object)
}

fn object(pairs: Vec<(String, Value)>) -> Value {
    Value::Object(pairs.into_iter().collect::<Map<_, _>>())
}

proptest! {
    /// What a template writes of a call is read back as the call.
    #[test]
    fn calls_come_back_as_the_templates_write_them(arguments in arguments(), cut in any::<prop::sample::Index>()) {
        for (format, name) in [(Gemma4, "gemma"), (QwenJson, "qwen_vl")] {
            let source = std::fs::read_to_string(format!("{REFERENCE}/prompt/templates/{name}.jinja")).unwrap();
            let template = ChatTemplate::new(&source).unwrap();
            let messages = [
                json!({"role": "user", "content": "x"}),
                json!({"role": "assistant", "content": "Look.",
                       "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}),
            ];
            let rendered = template.render(&messages, &TemplateOptions::default()).unwrap();
            let start = rendered.find("Look.").unwrap();
            let answer = &rendered[start..];
            let places: Vec<usize> = answer.char_indices().map(|(at, _)| at).collect();
            let (before, after) = answer.split_at(places[cut.index(places.len())]);
            let found = parse(AnswerParser::new(format), [before, after]);
            prop_assert_eq!(&found[0], &text("Look."));
            prop_assert_eq!(&found[1], &call("f", arguments.clone()));
        }
    }

    /// Any text, of pieces of tags: every split gives the same, without panic.
    #[test]
    fn any_text_at_any_splits(
        parts in prop::collection::vec(prop::sample::select(vec![
            "<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel>", "thought\n", "<channel|>",
            "<|tool_call>", "<tool_call|>", "call:f{", "x:", "1", "}", "<|\"|>", "{\"name\": \"f\"}", "\"",
            "\\", "<function=f>", "<parameter=x>", "</parameter>", "</function>", "<", "<|", "\n", "\n\n", "a", "é",
            "<turn|>", "<|im_end|>",
        ]), 0..16),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        format in prop::sample::select(vec![Gemma4, QwenJson, QwenXml]),
        inside in any::<bool>(),
    ) {
        let answer = parts.concat();
        let parser = || {
            let parser = AnswerParser::new(format);
            if inside { parser.in_reasoning() } else { parser }
        };
        let places: Vec<usize> = answer.char_indices().map(|(at, _)| at).chain([answer.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| places[cut.index(places.len())]).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts.into_iter().chain([answer.len()]) {
            pieces.push(&answer[start..cut]);
            start = cut;
        }
        prop_assert_eq!(parse(parser(), pieces), parse(parser(), [answer.as_str()]));
    }
}
