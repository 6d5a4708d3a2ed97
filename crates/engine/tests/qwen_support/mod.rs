//! What the tests of the Qwen models share.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::Path;

use prefill_engine::{
    Checkpoint, MediaKind, MlxThread, Model, Mrope, Positions, PreparedMedium, PreparedPrompt,
    Prompt, Span, WorkingType,
};
use prefill_media_preprocess::image::{DecodeOptions, Limits, QwenImageProcessor, decode};
use prefill_media_preprocess::video::{Animation, QwenVideoProcessor};
use prefill_test_support::Golden;
use serde_json::Value;

/// A model, and a golden's prompt for it.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) prepared: PreparedPrompt,
}

pub(crate) fn load(folder: &Path, golden: &Golden, working_type: WorkingType) -> Loaded {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let thread = MlxThread::claim().unwrap();
    let model = Model::load(&thread, &checkpoint, working_type, &mut |_| {}).unwrap();
    let prepared = prepare(folder, golden);
    Loaded { model, prepared }
}

/// The golden's ids, spans and positions, with its media prepared anew.
pub(crate) fn prepare(folder: &Path, golden: &Golden) -> PreparedPrompt {
    let messages = golden.messages().as_array().unwrap();
    let parts = messages
        .iter()
        .filter_map(|message| message["content"].as_array());
    let kinds: Vec<&str> = parts
        .flatten()
        .filter_map(|part| part["type"].as_str())
        .filter(|&kind| kind != "text")
        .collect();
    let media: Vec<PreparedMedium> = golden
        .media()
        .iter()
        .zip(&kinds)
        .map(|(file, &kind)| medium(folder, file, kind))
        .collect();
    let mut medium = 0;
    let mut rows = 0;
    let spans = golden
        .spans()
        .iter()
        .map(|span| {
            if rows == media[medium].soft_tokens() {
                (medium, rows) = (medium + 1, 0);
            }
            rows += span.length;
            Span {
                kind: match span.kind.as_str() {
                    "image" => MediaKind::Image,
                    _ => MediaKind::Video,
                },
                start: span.start,
                length: span.length,
                medium,
                offset: rows - span.length,
                digest: media[medium].digest().0,
                grid: None,
            }
        })
        .collect();
    let document = golden.document();
    let axis = |axis: usize| -> Vec<i32> {
        let ids = document["position_ids"][axis].as_array().unwrap();
        ids.iter().map(|id| id.as_i64().unwrap() as i32).collect()
    };
    PreparedPrompt {
        text: golden.prompt().to_owned(),
        prompt: Prompt {
            ids: golden.prompt_ids().to_vec(),
            spans,
            positions: Positions::Mrope(Mrope {
                ids: [axis(0), axis(1), axis(2)],
                delta: document["rope_delta"].as_i64().unwrap(),
            }),
            ..Prompt::default()
        },
        media,
    }
}

fn medium(folder: &Path, file: &Path, kind: &str) -> PreparedMedium {
    let bytes = fs::read(file).unwrap();
    if kind == "image" {
        let processor = QwenImageProcessor::from_folder(folder).unwrap();
        let image = decode(&bytes, &DecodeOptions::default()).unwrap();
        return PreparedMedium::QwenImage(processor.prepare(&image).unwrap());
    }
    let processor = QwenVideoProcessor::from_folder(folder).unwrap();
    let mut frames = Animation::new(bytes, Limits::default()).unwrap();
    PreparedMedium::QwenVideo(processor.prepare(&mut frames).unwrap())
}

/// One value of a JSON document.
pub(crate) fn at<'v>(document: &'v Value, pointer: &str) -> &'v Value {
    document.pointer(pointer).unwrap()
}
