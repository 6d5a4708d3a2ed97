//! Generated text to reasoning, text and tool calls.

mod arguments;
mod gemma4;
mod qwen;
mod scan;

use serde_json::{Map, Value};

use arguments::Tools;
use scan::{Found, Scanner};

/// How a family writes its answers.
///
/// | | reasoning | a tool call |
/// |---|---|---|
/// | `Gemma4` | `<\|channel>thought\n` .. `\n<channel\|>` | `<\|tool_call>call:NAME{k:v,..}<tool_call\|>` |
/// | `QwenJson` | `<think>\n` .. `\n</think>\n\n` | `<tool_call>\n{"name": .., "arguments": ..}\n</tool_call>` |
/// | `QwenXml` | as `QwenJson` | `<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnswerFormat {
    /// Gemma 4.
    Gemma4,
    /// Qwen3 and Qwen3-VL.
    QwenJson,
    /// Qwen3.5, and the Coder models before it.
    QwenXml,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The arguments, in the order in which they were written.
    pub arguments: Map<String, Value>,
    /// Where the call does not fit the tools that were given: an unknown name, or each place
    /// at which the arguments break the tool's schema. Empty if it fits or no tools were given.
    pub problems: Vec<String>,
}

/// What an answer consists of, in order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnswerEvent {
    /// More of the text for the user.
    Text(String),
    /// More of what the model thinks.
    Reasoning(String),
    /// A tool call, whole.
    ToolCall(ToolCall),
    /// What was written as a tool call and can't be read as one.
    BrokenCall {
        /// What stands between the call's tags.
        text: String,
        /// What is wrong with it.
        fact: String,
    },
}

/// Bytes that one tool call may have.
const CALL_LIMIT: usize = 16 << 20;

/// Reads an answer as it is generated.
///
/// The pieces may be cut anywhere: the events, with neighbouring texts joined, are the same.
/// What is not yet certain, such as the beginning of a tag, is held back. For Gemma the text
/// must be decoded with its special tokens ([`TextStream::with_special_tokens`](crate::TextStream::with_special_tokens)).
///
/// ```
/// use prefill_multimodal_prompt::{AnswerEvent, AnswerFormat, AnswerParser};
///
/// let mut parser = AnswerParser::new(AnswerFormat::QwenJson);
/// let mut events = parser.push("<think>\nHm.\n</think>\n\nLet me see.\n<tool_ca");
/// events.extend(parser.push("ll>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"));
/// events.extend(parser.finish());
/// assert_eq!(events[0], AnswerEvent::Reasoning("Hm.".into()));
/// assert_eq!(events[1], AnswerEvent::Text("Let me see.".into()));
/// let AnswerEvent::ToolCall(call) = &events[2] else { panic!() };
/// assert_eq!((call.name.as_str(), &call.arguments["x"]), ("f", &1.into()));
/// ```
#[derive(Debug)]
pub struct AnswerParser {
    format: AnswerFormat,
    tools: Option<Tools>,
    state: State,
    /// What has come and is not yet given out.
    held: String,
    scanner: Scanner,
    /// Whether newlines are dropped until something else comes.
    at_start: bool,
    /// Whether a reasoning section's name may still come.
    at_name: bool,
}

/// The name of Gemma's reasoning sections, which follows the opening tag.
const GEMMA_SECTION: &str = "thought\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    Reasoning,
    Call,
}

/// The tags of a format.
struct Tags {
    reasoning: (&'static str, &'static str),
    call: (&'static str, &'static str),
    /// What may be left in the text of a whole answer and is no part of it.
    dropped: &'static [&'static str],
}

impl AnswerFormat {
    fn tags(self) -> Tags {
        match self {
            Self::Gemma4 => Tags {
                reasoning: ("<|channel>", "<channel|>"),
                call: ("<|tool_call>", "<tool_call|>"),
                dropped: &["<turn|>", "<eos>", "<|tool_response>"],
            },
            Self::QwenJson | Self::QwenXml => Tags {
                reasoning: ("<think>", "</think>"),
                call: ("<tool_call>", "</tool_call>"),
                dropped: &["<|im_end|>", "<|endoftext|>"],
            },
        }
    }
}

impl AnswerParser {
    /// A parser of an answer that begins with text, or with a tag.
    #[must_use]
    pub fn new(format: AnswerFormat) -> Self {
        Self {
            format,
            tools: None,
            state: State::Text,
            held: String::new(),
            scanner: Scanner::default(),
            at_start: false,
            at_name: false,
        }
    }

    /// For a prompt that ends with the opening of a reasoning section, as Qwen3.5's do: the
    /// answer begins inside it.
    #[must_use]
    pub fn in_reasoning(mut self) -> Self {
        self.state = State::Reasoning;
        self.at_start = true;
        self
    }

    /// Whether this prompt, as the template rendered it, ends inside a reasoning section.
    #[must_use]
    pub fn ends_in_reasoning(format: AnswerFormat, prompt: &str) -> bool {
        let (open, close) = format.tags().reasoning;
        let opened = prompt.rfind(open).map(|at| at + open.len());
        opened.is_some_and(|at| {
            let after = &prompt[at..];
            let is_head = |after: &str| after.trim().is_empty() || after.trim() == "thought";
            !after.contains(close) && is_head(after)
        })
    }

    /// The tools that may be called, as the template was given them: arguments are then
    /// checked against the tools' schemas, and, where a format leaves their types open, read
    /// by them.
    #[must_use]
    pub fn tools(mut self, tools: &[Value]) -> Self {
        self.tools = Some(Tools::new(tools));
        self
    }

    /// Takes more text, and gives what is certain.
    pub fn push(&mut self, text: &str) -> Vec<AnswerEvent> {
        self.held.push_str(text);
        let mut events = Vec::new();
        while self.step(&mut events) {}
        joined(events)
    }

    /// Gives what was held back: the answer has ended.
    pub fn finish(&mut self) -> Vec<AnswerEvent> {
        let mut events = Vec::new();
        while self.state == State::Call {
            // The stop token may stand in the closing tag's place. Otherwise a string was
            // never closed: the first closing tag was the one.
            let (_, close) = self.format.tags().call;
            let text = std::mem::take(&mut self.held);
            let (inner, after) = text.split_once(close).unwrap_or((&text, ""));
            self.call(inner, &mut events);
            self.enter(State::Text);
            after.clone_into(&mut self.held);
            while self.step(&mut events) {}
        }
        let rest = std::mem::take(&mut self.held);
        self.give(&rest, &mut events);
        *self = Self {
            tools: self.tools.take(),
            ..Self::new(self.format)
        };
        joined(events)
    }

    /// Gets one tag further, if there is one.
    fn step(&mut self, events: &mut Vec<AnswerEvent>) -> bool {
        if self.at_name {
            if self.held.len() < GEMMA_SECTION.len() && GEMMA_SECTION.starts_with(&self.held) {
                return false;
            }
            if self.held.starts_with(GEMMA_SECTION) {
                self.held.drain(..GEMMA_SECTION.len());
            }
            self.at_name = false;
        }
        let tags = self.format.tags();
        let found = match self.state {
            State::Text => {
                let all = [tags.reasoning.0, tags.call.0, tags.reasoning.1];
                let all = all.iter().chain(tags.dropped);
                scan::first(&self.held, all.copied())
            }
            State::Reasoning => {
                let all = [tags.reasoning.1, tags.reasoning.0];
                scan::first(&self.held, all.iter().chain(tags.dropped).copied())
            }
            State::Call => {
                let close = tags.call.1;
                let end = self.scanner.close(self.format, &self.held, close);
                return match end {
                    Some(end) => {
                        let rest = self.held.split_off(end + close.len());
                        let inner = std::mem::replace(&mut self.held, rest);
                        self.call(&inner[..end], events);
                        self.enter(State::Text);
                        true
                    }
                    None if self.held.len() > CALL_LIMIT => {
                        let text = std::mem::take(&mut self.held);
                        let fact = format!("it is over {CALL_LIMIT} bytes");
                        events.push(AnswerEvent::BrokenCall { text, fact });
                        self.enter(State::Text);
                        true
                    }
                    None => false,
                };
            }
        };
        match found {
            Found::Tag(at, tag) => {
                let rest = self.held.split_off(at + tag.len());
                let before = std::mem::replace(&mut self.held, rest);
                let before = &before[..at];
                if tag == tags.reasoning.0 && self.state == State::Text {
                    self.give(before, events);
                    self.enter(State::Reasoning);
                } else if tag == tags.reasoning.1 && self.state == State::Reasoning {
                    self.give(before.strip_suffix('\n').unwrap_or(before), events);
                    self.enter(State::Text);
                    self.at_start = true;
                } else if tag == tags.call.0 {
                    let before = before.strip_suffix('\n').unwrap_or(before);
                    self.give(before.strip_suffix('\n').unwrap_or(before), events);
                    self.enter(State::Call);
                } else {
                    // A tag that means nothing here goes.
                    self.give(before, events);
                }
                true
            }
            Found::Certain(end) => {
                let rest = self.held.split_off(end);
                let certain = std::mem::replace(&mut self.held, rest);
                self.give(&certain, events);
                false
            }
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.scanner = Scanner::default();
        self.at_start = state == State::Reasoning;
        self.at_name = self.at_start && self.format == AnswerFormat::Gemma4;
    }

    fn give(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        let mut text = text;
        if self.at_start {
            text = text.trim_start_matches('\n');
            self.at_start = text.is_empty();
        }
        if text.is_empty() {
            return;
        }
        events.push(match self.state {
            State::Reasoning => AnswerEvent::Reasoning(text.to_owned()),
            _ => AnswerEvent::Text(text.to_owned()),
        });
    }

    fn call(&self, inner: &str, events: &mut Vec<AnswerEvent>) {
        let tools = self.tools.as_ref();
        let read = match self.format {
            AnswerFormat::Gemma4 => gemma4::call(inner),
            AnswerFormat::QwenJson => qwen::json_call(inner),
            AnswerFormat::QwenXml => qwen::xml_call(inner, tools),
        };
        events.push(match read {
            Ok((name, arguments)) => {
                let problems = tools.map_or_else(Vec::new, |tools| tools.check(&name, &arguments));
                AnswerEvent::ToolCall(ToolCall {
                    name,
                    arguments,
                    problems,
                })
            }
            Err(fact) => AnswerEvent::BrokenCall {
                text: inner.to_owned(),
                fact,
            },
        });
    }
}

/// Neighbours of a kind as one event.
fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut all: Vec<AnswerEvent> = Vec::with_capacity(events.len());
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
