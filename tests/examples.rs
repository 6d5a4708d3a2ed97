//! The example programs, run as a person runs them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use prefill_test_support::{Golden, assets_dir, compare_logits, reference_dir};
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
            .args(["--prompt", "What is in the picture?", "--stats"]),
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

/// One process asks, another goes on: what the first computed is found on disk.
#[test]
fn describe_finds_on_disk_what_another_process_computed() {
    let cache = tempfile::tempdir().unwrap();
    let ask = |question: &str| -> Value {
        let output = succeed(
            example("describe")
                .arg("--model")
                .arg(assets_dir().join("demo-model"))
                .arg("--image")
                .arg(picture())
                .arg("--cache")
                .arg(cache.path())
                .args(["--block-size", "32", "--json", "--prompt", question]),
        );
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let first = ask("What is in the picture?");
    assert_eq!(first["statistics"]["encoded_media"], 1);
    let second = ask("How many shapes are in the picture?");
    assert_eq!(second["text"], "There are four shapes.");
    let statistics = &second["statistics"];
    assert_eq!(statistics["encoded_media"], 0);
    assert!(
        statistics["reused_tokens"]["disk"].as_u64().unwrap() > 64,
        "{statistics}"
    );
}

/// A conversation is closed, and taken up again by its name.
#[test]
fn a_chat_is_taken_up_by_its_name() {
    let cache = tempfile::tempdir().unwrap();
    let chat = |name: &str, said: &str| {
        let mut child = example("chat")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .arg("--cache")
            .arg(cache.path())
            .args(["--block-size", "32", "--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(said.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let image = format!("/image {}\n", picture().display());
    let first = chat(
        "shapes",
        &format!("{image}How many shapes are in the picture?\n"),
    );
    assert!(first.status.success());
    assert_eq!(
        String::from_utf8_lossy(&first.stdout),
        "There are four shapes.\n"
    );
    // It goes on, knows the picture, and reads it from disk.
    let second = chat(
        "shapes",
        "/nonsense\n/image no-such.png\nWhat is in the picture?\n",
    );
    let golden = Golden::read("demo", "list").unwrap();
    let expected = golden.document()["text"].as_str().unwrap();
    assert_eq!(String::from_utf8_lossy(&second.stdout).trim_end(), expected);
    let told = String::from_utf8_lossy(&second.stderr);
    for words in [
        "going on after 1",
        "/nonsense: no such command",
        "no-such.png",
        "reused from disk with 1 medium",
    ] {
        assert!(told.contains(words), "{words:?} in {told}");
    }
    // Names are no paths.
    let refused = chat("../shapes", "");
    assert!(!refused.status.success());
}

#[test]
fn describe_takes_media_in_order_and_writes_json() {
    let clip = reference_dir().join("media/short.wav");
    let output = succeed(
        example("describe")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .arg("--audio")
            .arg(&clip)
            .arg("--image")
            .arg(picture())
            .args(["--prompt", "What colour is the circle in the picture?"])
            .args([
                "--json",
                "--max-tokens",
                "4",
                "--temperature",
                "0.5",
                "--seed",
                "1",
            ]),
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["finish_reason"], "length");
    assert_eq!(report["statistics"]["generated_tokens"], 4);
    assert!(!report["text"].as_str().unwrap().is_empty());
    // A stop string and the same question without sound.
    let output = succeed(
        example("describe")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .arg("--image")
            .arg(picture())
            .args([
                "--prompt",
                "How many shapes are in the picture?",
                "--stop",
                " four",
            ]),
    );
    assert_eq!(output.stdout, b"There are\n");
}

#[test]
fn transcribe_goes_through_a_clip_in_pieces() {
    let output = succeed(
        example("transcribe")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .args(["--piece", "1", "--max-tokens", "3", "--json"])
            .arg(reference_dir().join("media/long.wav")),
    );
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), 2, "{answers}");
}

#[test]
fn quantize_writes_a_checkpoint_that_describe_reads() {
    let scratch = tempfile::tempdir().unwrap();
    let output = scratch.path().join("demo-4bit");
    let done = succeed(
        example("quantize")
            .arg("--model")
            .arg(assets_dir().join("demo-model"))
            .arg("--output")
            .arg(&output)
            .args(["--bits", "4", "--group-size", "32"])
            .args(["--override", "*.down_proj=8,32"]),
    );
    let report = String::from_utf8(done.stdout).unwrap();
    assert!(report.contains("matrices quantised"), "{report}");
    let answer = succeed(
        example("describe")
            .arg("--model")
            .arg(&output)
            .arg("--image")
            .arg(picture())
            .args(["--prompt", "How many shapes are in the picture?"]),
    );
    assert_eq!(answer.stdout, b"There are four shapes.\n");
}

/// Sends a request and reads the answer to its end.
fn post(address: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn serve_axum_answers_whole_and_in_pieces() {
    let mut server = example("serve_axum")
        .arg("--model")
        .arg(assets_dir().join("demo-model"))
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("listening at http://").unwrap();
    let picture = base64::engine::general_purpose::STANDARD.encode(fs::read(picture()).unwrap());
    let messages = json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}},
        {"type": "text", "text": "How many shapes are in the picture?"},
    ]}]);
    let whole = post(address, &json!({"messages": messages, "temperature": 0}));
    assert!(whole.contains("There are four shapes."), "{whole}");
    assert!(whole.contains("\"finish_reason\":\"stop\""), "{whole}");
    let pieces = post(address, &json!({"messages": messages, "stream": true}));
    assert!(pieces.contains("text/event-stream"), "{pieces}");
    assert!(pieces.contains("data: [DONE]"), "{pieces}");
    let file = json!([{"role": "user", "content": [
        {"type": "image", "image": "/etc/hostname"}, {"type": "text", "text": "What?"}]}]);
    let refused = post(address, &json!({"messages": file}));
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    server.kill().unwrap();
    server.wait().unwrap();
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
        .env("HF_HUB_OFFLINE", "1")
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
