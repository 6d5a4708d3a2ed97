//! Tokens to what is sent of an answer: text, reasoning, tool calls.

use std::sync::Arc;

use prefill_multimodal_prompt::{AnswerEvent, AnswerFormat, AnswerParser, TextStream};

use crate::generation::Event;
use crate::prompt::Preparer;
use crate::stop::StopStrings;
use crate::{Error, Result};

/// Turns the tokens of one answer into events.
#[derive(Debug)]
pub(crate) struct Output {
    preparer: Arc<Preparer>,
    text: TextStream,
    stops: StopStrings,
    /// None if the answer is to come as it is written.
    parser: Option<AnswerParser>,
    thinking: Thinking,
    /// Whether a tool was called.
    has_calls: bool,
}

/// Tokens inside reasoning sections.
#[derive(Debug, Default)]
struct Thinking {
    is_open: bool,
    tokens: usize,
    budget: Option<usize>,
}

/// What a token adds.
#[derive(Debug, Default)]
pub(crate) struct Added {
    pub events: Vec<Event>,
    /// The stop string that ends the answer.
    pub stop_string: Option<String>,
    /// The token that is to follow whatever the model chooses: the end of its thoughts.
    pub forced: Option<u32>,
}

impl Output {
    /// For an answer to `prompt`, the text that the template rendered.
    pub(crate) fn new(
        preparer: Arc<Preparer>,
        prompt: &str,
        is_parsed: bool,
        stops: Vec<String>,
        budget: Option<usize>,
        tools: Option<&[serde_json::Value]>,
    ) -> Self {
        let format = preparer.answer_format().filter(|_| is_parsed);
        let is_open = format.is_some_and(|format| AnswerParser::ends_in_reasoning(format, prompt));
        let parser = format.map(|format| {
            let mut parser = AnswerParser::new(format);
            if is_open {
                parser = parser.in_reasoning();
            }
            if let Some(tools) = tools {
                parser = parser.tools(tools);
            }
            parser
        });
        Self {
            preparer,
            text: TextStream::default(),
            stops: StopStrings::new(stops),
            parser,
            thinking: Thinking {
                is_open,
                tokens: 0,
                budget,
            },
            has_calls: false,
        }
    }

    /// Whether a tool was called so far.
    pub(crate) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// Takes a token that does not end the answer.
    pub(crate) fn take(&mut self, id: u32) -> Result<Added> {
        let mut added = Added::default();
        let tag = self.preparer.tag(id).filter(|_| self.parser.is_some());
        // Tags may be special tokens, which are no part of other text.
        if let Some(tag) = tag {
            let before = self.text.finish(self.preparer.tokens())?;
            self.give(&before, &mut added);
            if added.stop_string.is_none() {
                let held = self.stops.finish();
                self.parse(&held, &mut added);
                self.parse(&tag, &mut added);
            }
        } else {
            let piece = self.text.push(self.preparer.tokens(), id)?;
            self.give(&piece, &mut added);
        }
        self.think(id, &mut added);
        Ok(added)
    }

    /// What was held back, now that the answer has ended.
    pub(crate) fn finish(&mut self) -> Result<Added> {
        let mut added = Added::default();
        let rest = self.text.finish(self.preparer.tokens())?;
        self.give(&rest, &mut added);
        if added.stop_string.is_none() {
            let held = self.stops.finish();
            self.parse(&held, &mut added);
        }
        let rest = self.parser.as_mut().map(AnswerParser::finish);
        self.add(rest.unwrap_or_default(), &mut added);
        Ok(added)
    }

    /// Text that may hold a stop string.
    fn give(&mut self, piece: &str, added: &mut Added) {
        let certain = self.stops.push(piece);
        self.parse(&certain.text, added);
        added.stop_string = certain.stop;
    }

    fn parse(&mut self, text: &str, added: &mut Added) {
        if text.is_empty() {
            return;
        }
        match &mut self.parser {
            Some(parser) => {
                let events = parser.push(text);
                self.add(events, added);
            }
            None => added.events.push(Event::Text(text.to_owned())),
        }
    }

    fn add(&mut self, events: Vec<AnswerEvent>, added: &mut Added) {
        for event in events {
            added.events.push(match event {
                AnswerEvent::Text(text) => Event::Text(text),
                AnswerEvent::Reasoning(text) => Event::Reasoning(text),
                AnswerEvent::ToolCall(call) => {
                    self.has_calls = true;
                    Event::ToolCall(call)
                }
                AnswerEvent::BrokenCall { text, fact } => Event::BrokenToolCall { text, fact },
                _ => continue,
            });
        }
    }

    /// Counts the tokens of thoughts, and ends them when there are too many.
    fn think(&mut self, id: u32, added: &mut Added) {
        let Some((open, close)) = self.preparer.reasoning_ids() else {
            return;
        };
        if id == open {
            self.thinking.is_open = true;
        } else if id == close {
            self.thinking.is_open = false;
        } else if self.thinking.is_open {
            self.thinking.tokens += 1;
        }
        let spent = |budget| self.thinking.tokens >= budget;
        if self.thinking.is_open && self.thinking.budget.is_some_and(spent) {
            added.forced = Some(close);
        }
    }
}

/// The tags of a format that are single tokens where the tokenizer has them.
pub(crate) fn tags(format: AnswerFormat) -> &'static [&'static str] {
    match format {
        AnswerFormat::Gemma4 => &[
            "<|channel>",
            "<channel|>",
            "<|tool_call>",
            "<tool_call|>",
            "<|\"|>",
        ],
        _ => &["<think>", "</think>", "<tool_call>", "</tool_call>"],
    }
}

/// The error of a budget for thoughts that can't be kept.
pub(crate) fn no_thoughts() -> Error {
    Error::Request {
        setting: "thinking_budget",
        fact: "this model's tokenizer has no tokens that open and close its thoughts".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use prefill_test_support::Checkpoint as Tiny;
    use serde_json::json;

    use super::*;
    use crate::Checkpoint;

    fn preparer(model: &str) -> Arc<Preparer> {
        let folder = Tiny::named(model).unwrap().build().unwrap();
        Arc::new(Preparer::open(&Checkpoint::open(folder.path()).unwrap()).unwrap())
    }

    /// The events of an answer, neighbouring texts joined.
    fn events(output: &mut Output, preparer: &Preparer, answer: &str) -> Vec<Event> {
        let mut all = Vec::new();
        for id in preparer.tokens().encode(answer).unwrap() {
            all.extend(output.take(id).unwrap().events);
        }
        all.extend(output.finish().unwrap().events);
        let mut events: Vec<Event> = Vec::new();
        for event in all {
            match (events.last_mut(), event) {
                (Some(Event::Text(text)), Event::Text(more))
                | (Some(Event::Reasoning(text)), Event::Reasoning(more)) => *text += &more,
                (_, event) => events.push(event),
            }
        }
        events
    }

    const GEMMA: &str = "<|channel>thought\nhm, yes\n<channel|>It is here.\
        <|tool_call>call:count{what:<|\"|>cats<|\"|>,n:3}<tool_call|>";

    #[test]
    fn thoughts_and_calls_are_told_from_text() {
        let preparer = preparer("gemma4_e2b");
        let parameters = json!({
            "type": "object",
            "properties": {"what": {"type": "string"}, "n": {"type": "integer"}},
        });
        let tools = [json!({
            "type": "function",
            "function": {"name": "count", "parameters": parameters},
        })];
        let mut output = Output::new(
            Arc::clone(&preparer),
            "",
            true,
            Vec::new(),
            None,
            Some(&tools),
        );
        let found = events(&mut output, &preparer, GEMMA);
        assert_eq!(found[0], Event::Reasoning("hm, yes".to_owned()));
        assert_eq!(found[1], Event::Text("It is here.".to_owned()));
        let Event::ToolCall(call) = &found[2] else {
            panic!("{found:?}");
        };
        assert_eq!(call.name, "count");
        assert_eq!(json!(call.arguments), json!({"what": "cats", "n": 3}));
        assert!(call.problems.is_empty(), "{:?}", call.problems);
        assert!(output.has_calls());
    }

    #[test]
    fn a_plain_answer_is_what_is_written_without_special_tokens() {
        let preparer = preparer("gemma4_e2b");
        let mut output = Output::new(Arc::clone(&preparer), "", false, Vec::new(), None, None);
        let ids = preparer.tokens().encode(GEMMA).unwrap();
        let expected = preparer.tokens().decode(&ids).unwrap();
        assert_eq!(
            events(&mut output, &preparer, GEMMA),
            [Event::Text(expected)]
        );
    }

    #[test]
    fn a_stop_string_counts_in_thoughts_too() {
        let preparer = preparer("gemma4_e2b");
        let stops = vec!["yes".to_owned()];
        let mut output = Output::new(Arc::clone(&preparer), "", true, stops, None, None);
        let ids = preparer.tokens().encode(GEMMA).unwrap().into_iter();
        let stop = ids
            .map(|id| output.take(id).unwrap().stop_string)
            .find_map(|stop| stop);
        assert_eq!(stop.as_deref(), Some("yes"));
    }

    #[test]
    fn thoughts_end_when_their_budget_is_spent() {
        let preparer = preparer("gemma4_e2b");
        let (open, close) = preparer.reasoning_ids().unwrap();
        let mut output = Output::new(Arc::clone(&preparer), "", true, Vec::new(), Some(3), None);
        assert_eq!(output.take(open).unwrap().forced, None);
        let word = preparer.tokens().encode("a").unwrap()[0];
        let forced = [(); 3].map(|()| output.take(word).unwrap().forced);
        assert_eq!(forced, [None, None, Some(close)]);
        assert_eq!(output.take(close).unwrap().forced, None);
        assert_eq!(output.take(word).unwrap().forced, None);
    }

    #[test]
    fn qwens_tags_are_read_whether_or_not_they_are_special() {
        let preparer = preparer("qwen3_5");
        let prompt = "<|im_start|>assistant\n<think>\n";
        let mut output = Output::new(Arc::clone(&preparer), prompt, true, Vec::new(), None, None);
        let answer = "so so\n</think>\n\nIt is.";
        assert_eq!(
            events(&mut output, &preparer, answer),
            [
                Event::Reasoning("so so".to_owned()),
                Event::Text("It is.".to_owned())
            ]
        );
    }

    /// What a decoded token costs outside MLX but for the sending of its events: the least and
    /// the median of many answers, so that other work on the machine does not count.
    #[test]
    #[ignore = "a measurement: docs/performance/engine.md"]
    #[allow(clippy::print_stdout, reason = "it is a measurement")]
    fn time_a_token() {
        let demo = prefill_test_support::assets_dir().join("demo-model");
        let demo = Arc::new(Preparer::open(&Checkpoint::open(&demo).unwrap()).unwrap());
        let answer = "There are four shapes: a red circle, and three blue squares. ".repeat(8);
        for (name, preparer) in [("demo", demo), ("qwen3_5", preparer("qwen3_5"))] {
            let ids = preparer.tokens().encode(&answer).unwrap();
            let mut times: Vec<_> = (0..200)
                .map(|_| {
                    let stops = vec!["never".to_owned()];
                    let mut output =
                        Output::new(Arc::clone(&preparer), "", true, stops, None, None);
                    let started = std::time::Instant::now();
                    for &id in &ids {
                        output.take(id).unwrap();
                    }
                    started.elapsed().as_secs_f64() * 1e6 / ids.len() as f64
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!(
                "{name}: {:.1}, median {:.1} microseconds",
                times[0], times[100]
            );
        }
    }
}
