//! `demo`, `test` and `lint`: each sets up first.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::native;
use crate::process::{output, run};
use crate::workspace::{cargo, root};

/// Asks the bundled model about the bundled picture, and shows the right answers beside its
/// own: the first question computes, the second finds the picture in memory, and the third, in
/// another process, on disk.
pub(crate) fn demo() -> Result<()> {
    native::ensure()?;
    let assets = root().join("assets");
    let text = fs::read_to_string(assets.join("demo/shapes.json"))?;
    let picture: Value = serde_json::from_str(&text)?;
    let asked = |index: usize| {
        let entry = &picture["questions"][index];
        entry["question"].as_str().zip(entry["answer"].as_str())
    };
    let (Some(first), Some(second), Some(third)) = (asked(0), asked(1), asked(2)) else {
        bail!("assets/demo/shapes.json holds no three questions with answers");
    };
    let kept = root().join("target/demo-cache");
    if kept.exists() {
        fs::remove_dir_all(&kept)?;
    }
    println!("demo: building the example");
    run(cargo().args(["build", "--quiet", "--release", "--example", "describe"]))?;
    let ask = |questions: &[(&str, &str)]| -> Result<()> {
        let mut describe = cargo();
        describe
            .args(["run", "--quiet", "--release", "--example", "describe", "--"])
            .arg("--model")
            .arg(assets.join("demo-model"))
            .arg("--image")
            .arg(assets.join("demo/shapes.png"))
            .arg("--cache")
            .arg(&kept)
            // Short prompts take blocks that are shorter still.
            .args(["--block-size", "32", "--stats"]);
        for (question, _) in questions {
            println!("assets/demo/shapes.png: {question}");
            describe.args(["--prompt", question]);
        }
        run(&mut describe)?;
        for (_, answer) in questions {
            println!("right: {answer}");
        }
        Ok(())
    };
    println!("\nTwo questions about one picture: the second finds it in memory.");
    ask(&[first, second])?;
    println!("\nAnother process: it finds the picture on disk.");
    ask(&[third])
}

/// Features that are off by default, need nothing of the system, and are tested.
const FEATURES: [&str; 2] = ["--features", "prefill-engine/fetch"];

/// Runs every test. MLX's state is shared by a whole process, so cargo-nextest, which
/// gives each test a process of its own, is used where it is installed.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    native::ensure()?;
    let has_nextest = cargo()
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_nextest {
        run(cargo()
            .args(["nextest", "run", "--workspace", "--no-fail-fast"])
            .args(FEATURES)
            .args(arguments))?;
    } else {
        // The documentation's examples included.
        println!("test: cargo-nextest is not installed; running one test at a time");
        return run(cargo()
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(FEATURES)
            .args(["--", "--test-threads", "1"])
            .args(arguments));
    }
    if arguments.is_empty() {
        run(cargo()
            .args(["test", "--workspace", "--doc"])
            .args(FEATURES))?;
    }
    Ok(())
}

/// Runs the benchmarks.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    native::ensure()?;
    run(cargo().arg("bench").args(if arguments.is_empty() {
        vec!["--workspace".to_owned(), "--benches".to_owned()]
    } else {
        arguments.to_vec()
    }))
}

/// Makes the goldens anew, fails if one has changed, and shows how near the engine is to each.
pub(crate) fn parity() -> Result<()> {
    native::ensure()?;
    run(Command::new(root().join("tests/reference/make.sh")).arg("check"))?;
    let test = |name: &str| {
        let mut cargo = cargo();
        cargo.args(["test", "--package", "prefill-engine", "--test", name]);
        cargo
    };
    for name in ["gemma4_parity", "qwen_parity"] {
        run(test(name).args(["--", "--nocapture", "--test-threads", "1"]))?;
    }
    run(test("demo_eval").args(["--", "--ignored", "--nocapture", "--test-threads", "1"]))?;
    let variable = "PREFILL_REFERENCE_PYTHON";
    let made = || root().join("tests/reference/.venv/bin/python").into();
    for name in ["gemma4_bits", "qwen_bits"] {
        run(test(name)
            .env(variable, std::env::var_os(variable).unwrap_or_else(made))
            .args(["--", "--ignored", "--test-threads", "1"]))?;
    }
    Ok(())
}

/// Formatting, clippy and the documentation, with warnings denied.
pub(crate) fn lint() -> Result<()> {
    native::ensure()?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    run(cargo()
        .args(["doc", "--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "--deny warnings"))?;
    check_apple_graph()
}

/// The override is Linux's alone: on macOS mlx-rs keeps its Apple features, and
/// nothing of `setup` is in the graph.
fn check_apple_graph() -> Result<()> {
    let tree = output(cargo().args([
        "tree",
        "--package=prefill-engine",
        "--target=aarch64-apple-darwin",
        "--edges=normal,features",
        "--invert=mlx-sys",
        "--prefix=none",
    ]))?;
    for feature in ["metal", "accelerate"] {
        anyhow::ensure!(
            tree.contains(&format!("mlx-sys feature \"{feature}\"")),
            "mlx-sys lacks its feature {feature} in the graph for macOS"
        );
    }
    Ok(())
}
