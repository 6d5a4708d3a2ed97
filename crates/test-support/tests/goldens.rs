//! Every committed golden is complete and agrees with itself.
#![allow(
    clippy::unwrap_used,
    reason = "a panic in a test's helper is the report"
)]

use prefill_test_support::{Golden, LogitsMismatch, assets_dir, compare_logits};
use serde_json::Value;

const MODEL: &str = "gemma4_e2b";
const MODELS: [&str; 9] = [
    "gemma4_e2b",
    "gemma4_26b",
    "gemma4_unified",
    "qwen3",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "demo",
];

fn goldens() -> Vec<Golden> {
    let goldens: Vec<_> = MODELS.into_iter().flat_map(goldens_of).collect();
    assert!(goldens.len() >= 89);
    goldens
}

fn goldens_of(model: &str) -> Vec<Golden> {
    let cases = Golden::cases(model).unwrap();
    cases
        .iter()
        .map(|case| Golden::read(model, case).unwrap())
        .collect()
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    u32::try_from(best.unwrap().0).unwrap()
}

#[test]
fn greedy_ids_are_the_best_of_their_logits() {
    for golden in goldens() {
        let logits = golden.logits().unwrap();
        let best: Vec<_> = (0..logits.rows()).map(|i| argmax(logits.row(i))).collect();
        assert_eq!(best, golden.greedy_ids());
        assert_eq!(logits.values().len(), logits.rows() * logits.columns());
    }
}

#[test]
fn spans_lie_in_the_prompt_and_have_features() {
    for golden in goldens() {
        // A video has a span for each of its frames.
        let media = golden.media().len();
        let is_video = golden.spans().iter().any(|span| span.kind == "video");
        assert!(golden.spans().len() == media || (is_video && golden.spans().len() > media));
        assert!(
            golden.media().iter().all(|file| file.exists()),
            "{:?}",
            golden.media()
        );
        for (i, span) in golden.spans().iter().enumerate() {
            let ids = &golden.prompt_ids()[span.start..span.start + span.length];
            assert!(ids.iter().all(|id| *id == ids[0]));
            let features = golden.features(i).unwrap();
            assert_eq!(features.rows(), span.length);
            assert_eq!(features.columns() % 64, 0);
        }
    }
}

#[test]
fn a_media_part_gets_the_path_of_its_file() {
    let golden = Golden::read(MODEL, "image_between").unwrap();
    let messages = golden.messages_with_paths();
    let image = messages[0]["content"][1]["image"].as_str().unwrap();
    assert!(std::path::Path::new(image).is_absolute());
    assert_eq!(std::path::Path::new(image), golden.media()[0]);
    assert!(golden.prompt().contains("<|image|>"));
}

/// Two independent implementations give the same first logits, far below the tolerance that the
/// engine is held to.
#[test]
fn the_references_agree() {
    let mut compared = 0;
    for golden in goldens() {
        if golden.document()["mlx_vlm"]["right"] == Value::Bool(true) {
            let first = golden.tensor("mlx_vlm_logits").unwrap();
            let logits = golden.logits().unwrap();
            // Where the two define something otherwise, the golden says how far that shows.
            let stated = golden.document()["mlx_vlm"]["tolerance"].as_f64();
            let tolerance = stated.map_or(golden.tolerance(), |stated| stated as f32);
            let difference = compare_logits(&first, logits.row(0), tolerance).unwrap();
            assert!(difference.other_argmax.is_empty());
            compared += 1;
        }
    }
    assert!(compared >= 22);
}

#[test]
fn the_demo_answers_are_those_beside_its_picture() {
    let file = std::fs::read_to_string(assets_dir().join("demo/shapes.json")).unwrap();
    let shapes: Value = serde_json::from_str(&file).unwrap();
    let questions = shapes["questions"].as_array().unwrap();
    for golden in goldens_of("demo") {
        assert_eq!(golden.media()[0].file_name().unwrap(), "shapes.png");
        let question = &golden.messages()[0]["content"][1]["text"];
        let entry = questions
            .iter()
            .find(|q| q["question"] == *question)
            .unwrap();
        assert_eq!(golden.document()["text"], entry["answer"]);
    }
}

#[test]
fn a_mismatch_says_where() {
    let expected = Golden::read(MODEL, "text").unwrap().logits().unwrap();
    let columns = expected.columns();
    let mut found = expected.values().to_vec();
    found[2 * columns + 7] += 100.0;
    let error = compare_logits(&expected, &found, 1e-3).unwrap_err();
    let LogitsMismatch::Values { comparison, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((comparison.step, comparison.id), (2, 7));
    assert_eq!(comparison.other_argmax, [2]);
    assert!(
        error.to_string().contains("another best id at steps [2]"),
        "{error}"
    );

    found[3] = f32::NAN;
    let error = compare_logits(&expected, &found, 1e9).unwrap_err();
    assert!(matches!(error, LogitsMismatch::Values { .. }), "{error}");

    let error = compare_logits(&expected, &found[1..], 1e-3).unwrap_err();
    assert!(matches!(error, LogitsMismatch::Shape { .. }), "{error}");
}

#[test]
fn a_missing_golden_is_named() {
    let error = Golden::read(MODEL, "none").unwrap_err().to_string();
    assert!(error.contains("none.json"), "{error}");
    let error = Golden::read(MODEL, "text")
        .unwrap()
        .features(0)
        .unwrap_err()
        .to_string();
    assert!(error.contains("features.0"), "{error}");
}
