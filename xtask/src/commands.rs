//! `demo`, `test` and `lint`: each sets up first.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::native;
use crate::process::{output, run};
use crate::workspace::{cargo, root};

/// Asks the bundled model about the bundled picture, and shows the right answer beside its own.
pub(crate) fn demo() -> Result<()> {
    native::ensure()?;
    let assets = root().join("assets");
    let text = fs::read_to_string(assets.join("demo/shapes.json"))?;
    let picture: Value = serde_json::from_str(&text)?;
    let first = &picture["questions"][0];
    let (Some(question), Some(answer)) = (first["question"].as_str(), first["answer"].as_str())
    else {
        bail!("assets/demo/shapes.json holds no question and answer");
    };
    println!("demo: building the example");
    run(cargo().args(["build", "--quiet", "--release", "--example", "describe"]))?;
    println!("\nassets/demo/shapes.png: {question}");
    run(cargo()
        .args(["run", "--quiet", "--release", "--example", "describe", "--"])
        .arg("--model")
        .arg(assets.join("demo-model"))
        .arg("--image")
        .arg(assets.join("demo/shapes.png"))
        .args(["--prompt", question, "--stats"]))?;
    println!("right: {answer}");
    Ok(())
}

/// Features that are off by default, need nothing of the system, and are tested.
const FEATURES: [&str; 2] = ["--features", "prefill-multimodal-prompt/fetch"];

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
