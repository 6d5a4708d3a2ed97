//! The example programs, run as a person runs them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prefill_test_support::{Golden, assets_dir, compare_logits};
use safetensors::SafeTensors;
use serde_json::{Value, json};

/// An example's executable: cargo builds it beside the tests.
fn example(name: &str) -> Command {
    let test = env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    Command::new(folder.join("examples").join(name))
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn picture() -> PathBuf {
    assets_dir().join("demo/shapes.png")
}

#[test]
fn describe_answers_and_states_what_it_took() {
    let output = succeed(
        example("describe")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .arg("--image")
            .arg(picture())
            .args(["--prompt", "What is in the picture?"]),
    );
    let golden = Golden::read("demo", "list").unwrap();
    let expected = golden.document()["text"].as_str().unwrap().to_owned() + "\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let statistics = String::from_utf8(output.stderr).unwrap();
    for word in [
        "load ",
        "first token after ",
        "prefill ",
        "decode ",
        "peak memory ",
    ] {
        assert!(statistics.contains(word), "{statistics}");
    }
}

#[test]
fn describe_finds_a_model_in_the_hub_cache() {
    let cache = tempfile::tempdir().unwrap();
    let snapshots = cache.path().join("models--prefill--demo/snapshots");
    let refs = cache.path().join("models--prefill--demo/refs");
    fs::create_dir_all(snapshots.join("abc123")).unwrap();
    fs::create_dir_all(&refs).unwrap();
    fs::write(refs.join("main"), "abc123").unwrap();
    for file in fs::read_dir(assets_dir().join("demo-model")).unwrap() {
        let path = file.unwrap().path();
        fs::copy(
            &path,
            snapshots.join("abc123").join(path.file_name().unwrap()),
        )
        .unwrap();
    }
    let output = succeed(
        example("describe")
            .env("HF_HUB_CACHE", cache.path())
            .args(["--model", "prefill/demo", "--image"])
            .arg(picture())
            .args(["--prompt", "How many shapes are in the picture?"]),
    );
    assert_eq!(output.stdout, b"There are four shapes.\n");
}

#[test]
fn describe_names_what_is_missing() {
    let output = example("describe")
        .args(["--model", "no-such-org/no-such-model", "--prompt", "x"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("no-such-org/no-such-model"), "{message}");
}

/// What `logits` reports of a golden's messages, and the logits that it writes.
fn logits(golden: &Golden, model: &Path, arguments: &[&str]) -> (Value, Vec<f32>) {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("logits.safetensors");
    let output = succeed(
        example("logits")
            .arg("--model")
            .arg(model)
            .args([
                "--steps",
                &golden.greedy_ids().len().to_string(),
                "--dtype",
                "f32",
            ])
            .args(arguments)
            .arg("--out")
            .arg(&out),
    );
    let bytes = fs::read(&out).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor("logits").unwrap();
    let expected = golden.logits().unwrap();
    assert_eq!(tensor.shape(), [expected.rows(), expected.columns()]);
    let values = tensor
        .data()
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    (serde_json::from_slice(&output.stdout).unwrap(), values)
}

fn check(golden: &Golden, (report, logits): (Value, Vec<f32>)) {
    assert_eq!(report["prompt_ids"], json!(golden.prompt_ids()));
    assert_eq!(report["greedy_ids"], json!(golden.greedy_ids()));
    assert_eq!(report["text"], golden.document()["text"]);
    let spans: Vec<Value> = golden
        .spans()
        .iter()
        .map(|span| json!({"kind": span.kind, "start": span.start, "length": span.length}))
        .collect();
    assert_eq!(report["spans"], json!(spans));
    compare_logits(&golden.logits().unwrap(), &logits, golden.tolerance()).unwrap();
    let top = report["top"].as_array().unwrap();
    assert_eq!(top.len(), 10);
    assert_eq!(top[0][0], golden.greedy_ids()[0]);
    let first = top[0][1].as_f64().unwrap();
    assert!(top.iter().all(|pair| pair[1].as_f64().unwrap() <= first));
}

#[test]
fn logits_of_messages_that_name_their_files() {
    let golden = Golden::read("gemma4_e2b", "two_images").unwrap();
    let model = golden.checkpoint().unwrap().build().unwrap();
    let messages = model.path().join("messages.json");
    fs::write(&messages, golden.messages_with_paths().to_string()).unwrap();
    let arguments = ["--messages", messages.to_str().unwrap()];
    check(&golden, logits(&golden, model.path(), &arguments));
}

#[test]
fn logits_of_bare_parts_with_files_in_order() {
    let golden = Golden::read("gemma4_e2b", "two_images").unwrap();
    let model = golden.checkpoint().unwrap().build().unwrap();
    let mut bare = golden.messages().clone();
    for message in bare.as_array_mut().unwrap() {
        for part in message["content"].as_array_mut().unwrap() {
            part.as_object_mut().unwrap().remove("image");
        }
    }
    let messages = model.path().join("messages.json");
    fs::write(&messages, bare.to_string()).unwrap();
    let media: Vec<String> = golden
        .media()
        .iter()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    let mut arguments = vec!["--messages", messages.to_str().unwrap()];
    for path in &media {
        arguments.extend(["--image", path]);
    }
    check(&golden, logits(&golden, model.path(), &arguments));
}

#[test]
fn logits_of_a_prompt() {
    let golden = Golden::read("demo", "colour").unwrap();
    let picture = picture();
    let arguments = [
        "--image",
        picture.to_str().unwrap(),
        "--prompt",
        "What colour is the circle in the picture?",
    ];
    check(
        &golden,
        logits(&golden, &assets_dir().join("demo-model"), &arguments),
    );
}
