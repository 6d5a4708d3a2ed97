//! Python's generators and these draw the same.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_demo_scenes::{Kind, Medium, Mode, Sample};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn start_of_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let start = digest.iter().take(8);
    let start = start.fold(0, |start, &byte| start << 8 | u64::from(byte));
    format!("{start:016x}")
}

/// The digests of the media, in order, and of everything that is said.
fn digests(sample: &Sample) -> Value {
    let media = sample.media.iter().map(|medium| match medium {
        Medium::Picture(picture) => {
            let size = [picture.width() as u32, picture.height() as u32];
            let size = size.iter().flat_map(|side| side.to_le_bytes());
            start_of_digest(&size.chain(picture.pixels()).collect::<Vec<u8>>())
        }
        Medium::Clip(clip) => {
            let samples = clip.waveform().into_iter().flat_map(i16::to_le_bytes);
            start_of_digest(&samples.collect::<Vec<u8>>())
        }
    });
    let q = &sample.question;
    let call = sample.call().map(|call| {
        let mut lines = vec![call.name.to_owned(), call.result];
        for (key, value) in call.arguments.as_object().unwrap() {
            lines.push(format!("{key} {}", said(value)));
        }
        lines.join("\n")
    });
    let call = call.unwrap_or_default();
    let text = [q.task, &q.text, &q.answer, &q.thought, &call].join("\n");
    json!([media.collect::<Vec<_>>(), start_of_digest(text.as_bytes())])
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[test]
fn everything_is_drawn_as_python_draws_it() {
    let document: Value = serde_json::from_str(include_str!("digests.json")).unwrap();
    let seed = document["seed"].as_u64().unwrap();
    let sets = document["sets"].as_object().unwrap();
    let mut compared = 0;
    for kind in Kind::ALL {
        for mode in [Mode::Plain, Mode::Think, Mode::Json, Mode::Tools] {
            for (name, draw) in [
                ("held out", Sample::held_out as fn(_, _, _, _) -> _),
                ("seen", Sample::seen),
            ] {
                let name = format!("{}/{}, {name}", kind.name(), mode.name());
                let expected = sets[&name].as_array().unwrap();
                for (index, expected) in expected.iter().enumerate() {
                    let sample: Sample = draw(seed, kind, mode, index);
                    assert_eq!(&digests(&sample), expected, "{name} {index}: {sample:?}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 200, "{compared}");
}
