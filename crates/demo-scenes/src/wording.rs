//! English for what a picture or a clip holds.

use serde_json::{Value, json};

use crate::scene::{COLOURS, PITCHES, SHAPES, SIZES, Thing};

const NUMBERS: [&str; 10] = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];
pub(crate) const ORDINALS: [&str; 4] = ["first", "second", "third", "fourth"];

pub(crate) fn a(words: &str) -> String {
    let article = if words.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {words}")
}

pub(crate) fn join<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => parts.concat(),
    }
}

pub(crate) fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

pub(crate) fn number_of(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{} {what}{end}", NUMBERS[count])
}

pub(crate) fn there_are(count: usize, what: &str) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("There {verb} {}.", number_of(count, what))
}

pub(crate) fn listing(things: &[Thing]) -> String {
    let parts: Vec<String> = things
        .iter()
        .map(|t| format!("{} in the {}", a(&t.full_name()), t.location()))
        .collect();
    join(&parts)
}

pub(crate) fn names(things: &[Thing]) -> Vec<String> {
    things.iter().map(Thing::name).collect()
}

pub(crate) fn heard(pitches: &[usize]) -> String {
    let beeps: Vec<String> = pitches
        .iter()
        .map(|&pitch| a(&format!("{} beep", PITCHES[pitch])))
        .collect();
    join(&beeps)
}

pub(crate) fn attributes(thing: &Thing) -> Value {
    json!({
        "size": SIZES[thing.size],
        "colour": COLOURS[thing.colour],
        "shape": SHAPES[thing.shape],
        "place": thing.location(),
    })
}
