//! Questions about pictures and clips, with their one right answer.
//!
//! The twin of `tools/demo-checkpoint/questions.py`.

use serde_json::{Value, json};

use crate::Counter;
use crate::scene::{COLOURS, Clip, PITCHES, PLACES, Picture, SHAPES, SIZES, Thing};
use crate::wording::{
    ORDINALS, a, attributes, capitalized, heard, join, listing, names, number_of, there_are,
};

const PICTURE_TASKS: [(&str, usize); 9] = [
    ("list", 30),
    ("colour", 20),
    ("at", 30),
    ("where", 25),
    ("count", 7),
    ("count_colour", 14),
    ("size", 14),
    ("exist", 10),
    ("relation", 20),
];
const CLIP_TASKS: [(&str, usize); 4] = [
    ("beeps", 20),
    ("pitches", 25),
    ("pitch", 20),
    ("count_pitch", 35),
];
const BOTH_TASKS: [(&str, usize); 4] = [
    ("picture", 35),
    ("clip", 35),
    ("both_counts", 15),
    ("more", 15),
];
const SEVERAL_TASKS: [(&str, usize); 4] = [
    ("picture", 70),
    ("which", 14),
    ("most", 8),
    ("count_all", 8),
];

/// A question and its one right answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What kind of question it is, as the results are listed.
    pub task: &'static str,
    /// The question.
    pub text: String,
    /// The answer.
    pub answer: String,
    /// The answer as an object, where it has a schema.
    pub fields: Option<Value>,
    /// What is counted, where the answer is a count.
    pub things: Option<Vec<String>>,
    /// The thing that is to be drawn: its size, colour, shape and place.
    pub drawing: Option<Value>,
    /// What the model notes before it answers, if it thinks.
    pub thought: String,
}

impl Question {
    pub(crate) fn new(text: impl Into<String>, answer: impl Into<String>) -> Self {
        Self {
            task: "",
            text: text.into(),
            answer: answer.into(),
            fields: None,
            things: None,
            drawing: None,
            thought: String::new(),
        }
    }

    fn fields(mut self, fields: Value) -> Self {
        self.fields = Some(fields);
        self
    }

    fn things(mut self, things: Vec<String>) -> Self {
        self.things = Some(things);
        self
    }

    fn task(mut self, task: &'static str, thought: String) -> Self {
        (self.task, self.thought) = (task, thought);
        self
    }
}

/// About a picture that is called `name`; in a test, about its focus.
pub(crate) fn about_picture(
    r: &mut Counter,
    picture: &Picture,
    is_test: bool,
    name: &str,
) -> Question {
    let things = picture.things.as_slice();
    let mut task = r.weighted(&PICTURE_TASKS);
    let focus = if is_test {
        picture.focus
    } else {
        *r.choice(things)
    };
    if task == "relation" && things.len() < 2 {
        task = "list";
    }
    let question = match task {
        "list" => list(r, things, name),
        "colour" => colour(r, things, &focus, name),
        "at" => at(r, things, &focus, is_test, name),
        "where" => location(r, &focus, name),
        "count" => count(r, things, name),
        "count_colour" => count_colour(r, things, &focus, is_test, name),
        "size" => size(r, &focus, name),
        "exist" => exist(r, things, &focus, name),
        _ => relation(r, things, &focus, name),
    };
    let thought = format!("{} has {}.", capitalized(name), listing(things));
    question.task(task, thought)
}

fn list(r: &mut Counter, things: &[Thing], name: &str) -> Question {
    let ask = *r.choice(&["What is in {}?", "Describe {}.", "What do you see in {}?"]);
    let verb = if things.len() == 1 { "is" } else { "are" };
    let answer = format!("There {verb} {}.", listing(things));
    let all: Vec<Value> = things.iter().map(attributes).collect();
    Question::new(ask.replace("{}", name), answer).fields(json!({ "things": all }))
}

fn colour(r: &mut Counter, things: &[Thing], focus: &Thing, name: &str) -> Question {
    let (colour, shape) = (COLOURS[focus.colour], SHAPES[focus.shape]);
    let (ask, answer) = if things.iter().filter(|t| t.shape == focus.shape).count() == 1 {
        let ask = r.choice(&[
            "What colour is the S in N?",
            "Which colour does the S in N have?",
        ]);
        let ask = ask.replace('S', shape).replace('N', name);
        (ask, format!("The {shape} is {colour}."))
    } else {
        let place = focus.location();
        let ask = format!("What colour is the shape in the {place} of {name}?");
        (ask, format!("It is {colour}."))
    };
    Question::new(ask, answer).fields(json!({ "colour": colour }))
}

fn at(r: &mut Counter, things: &[Thing], focus: &Thing, is_test: bool, name: &str) -> Question {
    let place = if is_test || r.chance(70) {
        focus.place
    } else {
        r.below(9)
    };
    let ask = r.choice(&["What", "Which shape"]);
    let answer = match things.iter().find(|thing| thing.place == place) {
        Some(thing) => capitalized(&a(&thing.full_name())) + ".",
        None => "Nothing.".to_owned(),
    };
    let place = PLACES[place];
    Question::new(format!("{ask} is in the {place} of {name}?"), answer)
}

fn location(r: &mut Counter, focus: &Thing, name: &str) -> Question {
    let (thing, place) = (focus.name(), focus.location());
    let ask = if r.below(2) == 0 {
        format!("Where is the {thing} in {name}?")
    } else {
        format!("In which place of {name} is the {thing}?")
    };
    Question::new(ask, format!("It is in the {place}.")).fields(json!({ "place": place }))
}

fn count(r: &mut Counter, things: &[Thing], name: &str) -> Question {
    let ask = *r.choice(&["are", "do you see"]);
    let ask = format!("How many shapes {ask} in {name}?");
    Question::new(ask, there_are(things.len(), "shape"))
        .fields(json!({ "count": things.len() }))
        .things(names(things))
}

fn count_colour(
    r: &mut Counter,
    things: &[Thing],
    focus: &Thing,
    is_test: bool,
    name: &str,
) -> Question {
    let index = if is_test || r.chance(70) {
        focus.colour
    } else {
        r.below(6)
    };
    let colour = COLOURS[index];
    let of_colour: Vec<Thing> = things
        .iter()
        .filter(|thing| thing.colour == index)
        .copied()
        .collect();
    let ask = format!("How many {colour} shapes are in {name}?");
    let answer = there_are(of_colour.len(), &format!("{colour} shape"));
    Question::new(ask, answer)
        .fields(json!({ "count": of_colour.len() }))
        .things(names(&of_colour))
}

fn size(r: &mut Counter, focus: &Thing, name: &str) -> Question {
    let (thing, size) = (focus.name(), SIZES[focus.size]);
    let ask = if r.below(2) == 0 {
        format!("How big is the {thing} in {name}?")
    } else {
        format!("Is the {thing} in {name} small or big?")
    };
    Question::new(ask, format!("It is {size}.")).fields(json!({ "size": size }))
}

fn exist(r: &mut Counter, things: &[Thing], focus: &Thing, name: &str) -> Question {
    let (mut colour, mut shape) = (focus.colour, focus.shape);
    if r.chance(50) {
        if r.chance(50) {
            shape = r.below(5);
        } else {
            colour = r.below(6);
        }
    }
    let exists = things
        .iter()
        .any(|t| (t.colour, t.shape) == (colour, shape));
    let what = a(&format!("{} {}", COLOURS[colour], SHAPES[shape]));
    let answer = if exists {
        "Yes, there is."
    } else {
        "No, there is not."
    };
    Question::new(format!("Is there {what} in {name}?"), answer).fields(json!({ "exists": exists }))
}

fn relation(r: &mut Counter, things: &[Thing], focus: &Thing, name: &str) -> Question {
    let others: Vec<Thing> = things.iter().filter(|t| *t != focus).copied().collect();
    let other = *r.choice(&others);
    if focus.size != other.size && r.chance(50) {
        let (first, second) = if r.chance(50) {
            (focus, &other)
        } else {
            (&other, focus)
        };
        let bigger = if focus.size == 1 { focus } else { &other }.name();
        let (first, second) = (first.name(), second.name());
        let ask = format!("Which is bigger in {name}, the {first} or the {second}?");
        return Question::new(ask, format!("The {bigger} is bigger."));
    }
    let (row, column) = (focus.place / 3, focus.place % 3);
    let (other_row, other_column) = (other.place / 3, other.place % 3);
    let (word, holds) = if column == other_column || (row != other_row && r.chance(50)) {
        ("above", row < other_row)
    } else {
        ("left of", column < other_column)
    };
    let (focus, other) = (focus.name(), other.name());
    let ask = format!("Is the {focus} in {name} {word} the {other}?");
    Question::new(
        ask,
        if holds {
            "Yes, it is."
        } else {
            "No, it is not."
        },
    )
}

/// About a clip.
pub(crate) fn about_clip(r: &mut Counter, clip: &Clip) -> Question {
    let names: Vec<&str> = clip.pitches.iter().map(|&pitch| PITCHES[pitch]).collect();
    let task = r.weighted(&CLIP_TASKS);
    let all = heard(&clip.pitches);
    let question = match task {
        "beeps" => {
            let ask = *r.choice(&["How many beeps are there?", "How many beeps do you hear?"]);
            Question::new(ask, there_are(names.len(), "beep"))
                .fields(json!({ "count": names.len() }))
                .things(names.iter().map(|name| format!("{name} beep")).collect())
        }
        "pitches" => {
            let ask = *r.choice(&["What do you hear?", "Describe the clip."]);
            Question::new(ask, format!("I hear {all}.")).fields(json!({ "beeps": names }))
        }
        "pitch" => {
            let is_last = names.len() > 1 && r.chance(30);
            let index = if is_last {
                names.len() - 1
            } else {
                r.below(names.len())
            };
            let word = if is_last { "last" } else { ORDINALS[index] };
            let pitch = names[index];
            let ask = format!("Which pitch does the {word} beep have?");
            Question::new(ask, format!("The {word} beep is {pitch}."))
                .fields(json!({ "pitch": pitch }))
        }
        _ => {
            let pitch = if r.chance(40) {
                PITCHES[r.below(3)]
            } else {
                r.choice(&names)
            };
            let count = names.iter().filter(|name| **name == pitch).count();
            let beep = format!("{pitch} beep");
            let ask = format!("How many {beep}s do you hear?");
            Question::new(ask, there_are(count, &beep))
                .fields(json!({ "count": count }))
                .things(vec![beep; count])
        }
    };
    question.task(task, format!("The clip has {all}."))
}

/// About one of two or three pictures, or about all of them.
pub(crate) fn about_several(r: &mut Counter, pictures: &[Picture], is_test: bool) -> Question {
    let index = r.below(pictures.len());
    let task = r.weighted(&SEVERAL_TASKS);
    let focus = pictures[index].focus;
    let question = match task {
        "which" => {
            let has = |p: &&Picture| {
                p.things
                    .iter()
                    .any(|t| (t.colour, t.shape) == (focus.colour, focus.shape))
            };
            (pictures.iter().filter(has).count() == 1).then(|| {
                let ask = format!("Which picture has {}?", a(&focus.name()));
                Question::new(ask, format!("The {} picture.", ORDINALS[index]))
            })
        }
        "most" => {
            let counts: Vec<usize> = pictures.iter().map(|p| p.things.len()).collect();
            let most = counts.iter().copied().max().unwrap_or(0);
            let having: Vec<usize> = (0..counts.len()).filter(|&i| counts[i] == most).collect();
            (having.len() == 1).then(|| {
                let answer = format!("The {} picture.", ORDINALS[having[0]]);
                Question::new("Which picture has the most shapes?", answer)
            })
        }
        "count_all" => {
            let things = pictures.iter().flat_map(|p| &p.things);
            let of_colour = things.filter(|thing| thing.colour == focus.colour);
            let names: Vec<String> = of_colour.map(Thing::name).collect();
            let shape = format!("{} shape", COLOURS[focus.colour]);
            let ask = format!("How many {shape}s are in all pictures?");
            Some(
                Question::new(ask, there_are(names.len(), &shape))
                    .fields(json!({ "count": names.len() }))
                    .things(names),
            )
        }
        _ => None,
    };
    let Some(question) = question else {
        let name = format!("the {} picture", ORDINALS[index]);
        return about_picture(r, &pictures[index], is_test, &name);
    };
    let notes: Vec<String> = pictures
        .iter()
        .zip(ORDINALS)
        .map(|(picture, which)| format!("The {which} picture has {}.", listing(&picture.things)))
        .collect();
    question.task(task, notes.join(" "))
}

/// About a picture and a clip.
pub(crate) fn about_both(
    r: &mut Counter,
    picture: &Picture,
    clip: &Clip,
    is_test: bool,
) -> Question {
    let task = r.weighted(&BOTH_TASKS);
    let (shapes, beeps) = (picture.things.len(), clip.pitches.len());
    let question = match task {
        "picture" => return about_picture(r, picture, is_test, "the picture"),
        "clip" => return about_clip(r, clip),
        "both_counts" => {
            let verb = if shapes == 1 { "is" } else { "are" };
            let (shapes, beeps) = (number_of(shapes, "shape"), number_of(beeps, "beep"));
            let answer = format!("There {verb} {shapes} and {beeps}.");
            Question::new("How many shapes and how many beeps are there?", answer)
        }
        _ => {
            let answer = match shapes.cmp(&beeps) {
                std::cmp::Ordering::Greater => "There are more shapes.",
                std::cmp::Ordering::Less => "There are more beeps.",
                std::cmp::Ordering::Equal => "There are as many shapes as beeps.",
            };
            Question::new("Are there more shapes or more beeps?", answer)
        }
    };
    let heard: Vec<&str> = clip.pitches.iter().map(|&pitch| PITCHES[pitch]).collect();
    let (seen, heard) = (join(&names(&picture.things)), join(&heard));
    question.task(task, format!("I see {seen}. I hear {heard}."))
}
