//! A sample of a test: media, and a question about them in one of four modes.
//!
//! The twin of the second half of `tools/demo-checkpoint/questions.py`.

use serde_json::{Map, Value, json};

use crate::Counter;
use crate::questions::{Question, about_both, about_clip, about_picture, about_several};
use crate::scene::{Clip, Picture, Thing};
use crate::wording::{ORDINALS, a, attributes};

/// Which media a sample has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One picture.
    One,
    /// Two pictures.
    Two,
    /// Three pictures.
    Three,
    /// A clip.
    Clip,
    /// A picture and a clip, in either order.
    Both,
}

impl Kind {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::One, Self::Two, Self::Three, Self::Clip, Self::Both];

    /// As the results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::Three => "three",
            Self::Clip => "clip",
            Self::Both => "both",
        }
    }
}

/// How a question is asked and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In plain words.
    Plain,
    /// The model first writes down what it sees.
    Think,
    /// The answer is JSON.
    Json,
    /// Counting and drawing are done by a call of a tool.
    Tools,
}

impl Mode {
    /// As the results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Think => "think",
            Self::Json => "json",
            Self::Tools => "tools",
        }
    }
}

/// A picture or a clip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Medium {
    /// Something to see.
    Picture(Picture),
    /// Something to hear.
    Clip(Clip),
}

/// Media and a question about them.
///
/// ```
/// use prefill_demo_scenes::{Kind, Medium, Mode, Sample};
///
/// let sample = Sample::held_out(2026, Kind::Both, Mode::Plain, 7);
/// assert_eq!(sample.media.len(), 2);
/// for medium in &sample.media {
///     match medium {
///         Medium::Picture(picture) => assert!(picture.focus.is_held_out()),
///         Medium::Clip(clip) => assert_eq!(clip.wav().len() as i64, 44 + 2 * clip.samples),
///     }
/// }
/// println!("{} {}", sample.question.text, sample.question.answer);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// How it is asked.
    pub mode: Mode,
    /// In the order in which they are shown.
    pub media: Vec<Medium>,
    /// What is asked.
    pub question: Question,
}

impl Sample {
    /// The sample of this number whose media each hold a combination that training never saw;
    /// a question with a subject is about it.
    #[must_use]
    pub fn held_out(seed: u64, kind: Kind, mode: Mode, index: usize) -> Self {
        Self::draw(seed, kind, mode, index, true)
    }

    /// The sample of this number with combinations that training may have seen.
    #[must_use]
    pub fn seen(seed: u64, kind: Kind, mode: Mode, index: usize) -> Self {
        Self::draw(seed, kind, mode, index, false)
    }

    fn draw(seed: u64, kind: Kind, mode: Mode, index: usize, is_test: bool) -> Self {
        let name = format!("{}/{}/{index}", kind.name(), mode.name());
        let r = &mut Counter::new(seed, &name);
        let (count, most) = match kind {
            Kind::One | Kind::Both => (1, 4),
            Kind::Two => (2, 3),
            Kind::Three => (3, 3),
            Kind::Clip => (0, 3),
        };
        let pictures: Vec<Picture> = (0..count)
            .map(|_| Picture::draw(r, is_test, most))
            .collect();
        let has_clip = matches!(kind, Kind::Clip | Kind::Both);
        let clip = has_clip.then(|| Clip::draw(r, is_test));
        let is_clip_first = kind == Kind::Both && r.chance(50);
        let question = loop {
            if let Some(question) = draw_question(r, mode, &pictures, clip.as_ref(), is_test) {
                break question;
            }
        };
        let mut media: Vec<Medium> = pictures.into_iter().map(Medium::Picture).collect();
        media.extend(clip.map(Medium::Clip));
        if is_clip_first {
            media.reverse();
        }
        Self {
            mode,
            media,
            question,
        }
    }

    /// The call of a tool that the answer needs, if it needs one.
    #[must_use]
    pub fn call(&self) -> Option<Call> {
        if self.mode != Mode::Tools {
            return None;
        }
        let (name, arguments, result) = match (&self.question.drawing, &self.question.things) {
            (Some(drawing), _) => ("draw", drawing.clone(), "done".to_owned()),
            (None, Some(things)) => {
                let arguments = json!({ "things": things });
                ("count", arguments, things.len().to_string())
            }
            (None, None) => return None,
        };
        Some(Call {
            name,
            arguments,
            result,
        })
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// `count` or `draw`.
    pub name: &'static str,
    /// An object.
    pub arguments: Value,
    /// What the tool gives back.
    pub result: String,
}

/// None if the question that was drawn does not fit the mode.
fn draw_question(
    r: &mut Counter,
    mode: Mode,
    pictures: &[Picture],
    clip: Option<&Clip>,
    is_test: bool,
) -> Option<Question> {
    let question = if mode == Mode::Tools && !pictures.is_empty() && r.chance(30) {
        draw_again(r, pictures, is_test)
    } else {
        match (pictures, clip) {
            ([picture], None) => about_picture(r, picture, is_test, "the picture"),
            ([picture], Some(clip)) => about_both(r, picture, clip, is_test),
            (_, Some(clip)) => about_clip(r, clip),
            (_, None) => about_several(r, pictures, is_test),
        }
    };
    // JSON needs an answer with a schema; tools need a count, most of the time.
    match mode {
        Mode::Plain | Mode::Think => Some(question),
        Mode::Json => as_json(r, question),
        Mode::Tools => {
            let is_fit = question.things.is_some() || question.drawing.is_some() || r.chance(15);
            is_fit.then_some(question)
        }
    }
}

/// A picture's shape is to be drawn again: the model sees which, and calls `draw`.
fn draw_again(r: &mut Counter, pictures: &[Picture], is_test: bool) -> Question {
    let index = r.below(pictures.len());
    let picture = &pictures[index];
    let name = match pictures {
        [_] => "the picture".to_owned(),
        _ => format!("the {} picture", ORDINALS[index]),
    };
    let thing: Thing = if is_test {
        picture.focus
    } else {
        *r.choice(&picture.things)
    };
    let (what, place) = (a(&thing.full_name()), thing.location());
    let ask = format!("Draw the shape in the {place} of {name}.");
    Question {
        task: "draw",
        drawing: Some(attributes(&thing)),
        ..Question::new(ask, format!("I drew {what} in the {place}."))
    }
}

/// The question with a request for JSON, in half of the cases with its schema.
fn as_json(r: &mut Counter, question: Question) -> Option<Question> {
    let fields = question.fields?;
    let request = if r.chance(50) {
        let schema = spaced(&schema_of(&fields));
        format!("Answer as JSON of this schema: {schema}")
    } else {
        "Answer as JSON.".to_owned()
    };
    Some(Question {
        task: question.task,
        fields: Some(fields.clone()),
        ..Question::new(format!("{} {request}", question.text), spaced(&fields))
    })
}

fn schema_of(value: &Value) -> Value {
    match value {
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::Array(items) => json!({"type": "array", "items": schema_of(&items[0])}),
        Value::Object(fields) => {
            let properties = fields.iter().map(|(k, v)| (k.clone(), schema_of(v)));
            let properties: Map<String, Value> = properties.collect();
            let required: Vec<&String> = fields.keys().collect();
            json!({"type": "object", "properties": properties, "required": required})
        }
        _ => json!({"type": "string"}),
    }
}

/// JSON as Python writes it, with a space after each comma and colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value)| format!("{}: {}", Value::from(key), spaced(value));
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| field((key.as_str(), value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The tools `count` and `draw` that the model was trained with, in `OpenAI`'s form.
#[must_use]
pub fn tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    let count = json!({
        "name": "count",
        "description": "Counts things.",
        "parameters": {
            "type": "object",
            "properties": {"things": {"type": "array", "items": text}},
            "required": ["things"],
        },
    });
    let draw = json!({
        "name": "draw",
        "description": "Draws a shape.",
        "parameters": {
            "type": "object",
            "properties": {"size": text, "colour": text, "shape": text, "place": text},
            "required": ["size", "colour", "shape", "place"],
        },
    });
    let tool = |function| json!({"type": "function", "function": function});
    vec![tool(count), tool(draw)]
}
