//! `demo`, `test` and `lint`: each sets up first.

use std::process::Stdio;

use anyhow::Result;

use crate::native;
use crate::process::{output, run};
use crate::workspace::{cargo, root};

/// Asks the bundled model about the bundled picture.
pub(crate) fn demo() -> Result<()> {
    native::setup(&native::Options::default())?;
    let assets = root().join("assets");
    let question = "What is in the picture?";
    run(cargo()
        .args(["run", "--quiet", "--release", "--example", "describe", "--"])
        .arg("--model")
        .arg(assets.join("demo-model"))
        .arg("--image")
        .arg(assets.join("demo/shapes.png"))
        .args(["--prompt", question]))
}

/// Runs every test. MLX's state is shared by a whole process, so cargo-nextest, which
/// gives each test a process of its own, is used where it is installed.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    native::setup(&native::Options::default())?;
    let has_nextest = cargo()
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_nextest {
        run(cargo()
            .args(["nextest", "run", "--workspace", "--no-fail-fast"])
            .args(arguments))?;
    } else {
        println!("test: cargo-nextest is not installed; running one test at a time");
        run(cargo()
            .args([
                "test",
                "--workspace",
                "--all-targets",
                "--no-fail-fast",
                "--",
            ])
            .args(["--test-threads", "1"])
            .args(arguments))?;
    }
    if arguments.is_empty() {
        run(cargo().args(["test", "--workspace", "--doc"]))?;
    }
    Ok(())
}

/// Formatting, clippy and the documentation, with warnings denied.
pub(crate) fn lint() -> Result<()> {
    native::setup(&native::Options::default())?;
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
