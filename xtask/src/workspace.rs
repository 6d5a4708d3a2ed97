//! Where things lie in the workspace.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The root folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace's root")
}

/// The folder that holds everything native: ignored by git, outside `target`.
pub(crate) fn native_folder() -> PathBuf {
    root().join(".native")
}

/// `cargo` as it runs this program, started in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The unpacked source folder of one dependency, fetched if it is not there yet.
pub(crate) fn dependency_source(name: &str) -> Result<PathBuf> {
    let printed = process::output(cargo().args(["metadata", "--format-version", "1", "--locked"]))
        .context("cargo could not fetch the dependencies: is the network there?")?;
    let metadata: Value =
        serde_json::from_str(&printed).context("cargo metadata printed no JSON")?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .map(Path::to_owned)
        .with_context(|| format!("{name} is not among the dependencies of this workspace"))
}
