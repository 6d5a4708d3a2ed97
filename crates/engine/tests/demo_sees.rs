//! What the bundled model sees and hears tells whether the engine does its work: the order of
//! media, chunks of a prompt, quantised keys and values, thoughts, calls and JSON.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod demo_support;

use std::num::NonZeroUsize;

use demo_support::{Answer, demo, expected, request, result_request, run};
use prefill_demo_scenes::{Kind, Medium, Mode, Sample};
use prefill_engine::{Conversation, Engine, KvQuantization, Message, Request, TemplateOptions};
use serde_json::{Value, json};

/// Another seed than the evaluation's.
const SEED: u64 = 12;

fn samples(kind: Kind, mode: Mode, count: usize) -> impl Iterator<Item = Sample> {
    (0..count).map(move |index| Sample::held_out(SEED, kind, mode, index))
}

fn ask(engine: &Engine, message: Message) -> String {
    let conversation: Conversation = [message].into_iter().collect();
    run(engine, Request::new(conversation)).text
}

fn pictures(sample: &Sample) -> Vec<Vec<u8>> {
    let pictures = sample.media.iter().filter_map(|medium| match medium {
        Medium::Picture(picture) => Some(picture.png()),
        Medium::Clip(_) => None,
    });
    pictures.collect()
}

/// How many of the samples are answered right, which may not be fewer than `least`.
fn most_are_right(engine: &Engine, samples: impl Iterator<Item = Sample>, least: usize) {
    let mut wrong = Vec::new();
    let mut right = 0;
    for sample in samples {
        let found = run(engine, request(&sample));
        if found == expected(&sample) {
            right += 1;
        } else {
            wrong.push((found, expected(&sample)));
        }
    }
    assert!(right >= least, "{right} right; {wrong:#?}");
}

const COUNTS: [&str; 5] = [
    "no shapes",
    "one shape",
    "two shapes",
    "three shapes",
    "four shapes",
];

/// Each of three pictures is described as it is alone, in whatever order they are.
#[test]
fn pictures_are_told_apart_by_their_order() {
    let engine = demo().build().unwrap();
    let describe = |pictures: &[(Vec<u8>, String)], which: &str| {
        let shown = pictures.iter().fold(Message::user(), |message, (png, _)| {
            message.image(png.clone())
        });
        ask(&engine, shown.text(format!("Describe the {which}picture.")))
    };
    for sample in samples(Kind::Three, Mode::Plain, 3) {
        let mut pictures: Vec<(Vec<u8>, String)> = pictures(&sample)
            .into_iter()
            .map(|png| (png.clone(), describe(&[(png, String::new())], "")))
            .collect();
        assert_ne!(pictures[0].1, pictures[1].1);
        assert_ne!(pictures[1].1, pictures[2].1);
        for _ in 0..2 {
            for (index, which) in ["first ", "second ", "third "].into_iter().enumerate() {
                assert_eq!(describe(&pictures, which), pictures[index].1, "{which}");
            }
            pictures.rotate_left(1);
        }
    }
}

/// A picture and a clip in either order, and a chat that goes on about both.
#[test]
fn a_picture_and_a_clip_are_both_there() {
    let engine = demo().build().unwrap();
    most_are_right(&engine, samples(Kind::Both, Mode::Plain, 12), 11);
    for sample in samples(Kind::Both, Mode::Plain, 4) {
        let (mut seen, mut heard) = (None, None);
        for medium in &sample.media {
            match medium {
                Medium::Picture(picture) => seen = Some(picture),
                Medium::Clip(clip) => heard = Some(clip),
            }
        }
        let (seen, heard) = (seen.unwrap(), heard.unwrap());
        let mut chat: Conversation = [Message::user()
            .image(seen.png())
            .text("How many shapes are in the picture?")]
        .into_iter()
        .collect();
        let first = run(&engine, Request::new(chat.clone())).text;
        let shapes = COUNTS[seen.things.len()];
        assert!(first.ends_with(&format!("{shapes}.")), "{first}");
        chat.extend([
            Message::assistant().text(first),
            Message::user()
                .audio(heard.wav())
                .text("How many beeps do you hear?"),
        ]);
        let second = run(&engine, Request::new(chat)).text;
        let beeps = COUNTS[heard.pitches.len()].replace("shape", "beep");
        assert!(second.ends_with(&format!("{beeps}.")), "{second}");
    }
}

/// Chunks of a prompt and quantised keys and values change no answer.
#[test]
fn small_chunks_and_quantised_keys_answer_as_well() {
    let chunk = |tokens| NonZeroUsize::new(tokens).unwrap();
    let kv = KvQuantization::new(8).group_size(32);
    let engine = demo().prefill_chunk(chunk(24)).build().unwrap();
    let quantised = demo()
        .prefill_chunk(chunk(48))
        .quantized_kv(kv)
        .build()
        .unwrap();
    for engine in [engine, quantised] {
        for kind in [Kind::One, Kind::Two, Kind::Both] {
            most_are_right(&engine, samples(kind, Mode::Plain, 8), 7);
        }
    }
}

/// The thought comes as a thought, and says what is in the picture.
#[test]
fn it_thinks_when_told_to() {
    let engine = demo().build().unwrap();
    most_are_right(&engine, samples(Kind::One, Mode::Think, 8), 7);
    for sample in samples(Kind::One, Mode::Plain, 3) {
        assert_eq!(run(&engine, request(&sample)).thought, "");
    }
}

/// A call of each tool, parsed and after the tool's schema; and its result taken up.
#[test]
fn it_calls_the_tools_it_is_given() {
    let engine = demo().build().unwrap();
    let (mut right, mut names) = (0, Vec::new());
    for sample in samples(Kind::One, Mode::Tools, 10) {
        let Some(call) = sample.call() else {
            right += usize::from(run(&engine, request(&sample)) == expected(&sample));
            continue;
        };
        names.push(call.name);
        let answer = run(&engine, result_request(&sample, &call)).text;
        let is_right = run(&engine, request(&sample)) == expected(&sample);
        right += usize::from(is_right && answer == sample.question.answer);
    }
    assert!(right >= 9, "{right}");
    assert!(names.contains(&"count") && names.contains(&"draw"));
}

#[test]
fn it_answers_in_json_when_asked_for_it() {
    let engine = demo().build().unwrap();
    let mut right = 0;
    for sample in samples(Kind::One, Mode::Json, 10) {
        let text = run(&engine, request(&sample)).text;
        let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        right += usize::from(Some(found) == sample.question.fields);
    }
    assert!(right >= 9, "{right}");
}

/// Without a picture, a clip or a tool it says so, and it talks about itself.
#[test]
fn it_knows_what_it_is_and_what_is_missing() {
    let engine = demo().build().unwrap();
    for (question, answer) in [
        (
            "Who are you?",
            "I am a very small Gemma 4 model, trained for prefill.",
        ),
        ("What is in the picture?", "I see no picture."),
        ("What do you hear?", "I hear no clip."),
        (
            "Draw a big red star in the centre.",
            "I can not draw without a tool.",
        ),
        (
            "What is the capital of France?",
            "I do not know. I only know shapes and beeps.",
        ),
    ] {
        assert_eq!(ask(&engine, Message::user().text(question)), answer);
    }
    // With the tool it draws.
    let conversation: Conversation = [Message::user().text("Draw a big red star in the centre.")]
        .into_iter()
        .collect();
    let template = TemplateOptions {
        tools: Some(prefill_demo_scenes::tools()),
        ..TemplateOptions::default()
    };
    let drawing = json!({"size": "big", "colour": "red", "shape": "star", "place": "centre"});
    let expected = Answer {
        calls: vec![("draw".to_owned(), drawing)],
        ..Answer::default()
    };
    let found = run(&engine, Request::new(conversation).template(template));
    assert_eq!(found, expected);
}
