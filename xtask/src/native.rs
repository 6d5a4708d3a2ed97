//! Native MLX on Linux, with mlx-rs and mlx-sys as they are on crates.io.
//!
//! mlx-sys's own build script builds for Apple only. Cargo lets a configuration
//! replace it for one target: this module prepares what that needs in `.native`,
//! which `.cargo/config.toml` includes. Nothing of it concerns macOS.
//!
//! Every step writes to a temporary name and renames at the end, and Cargo's
//! configuration comes last, so that an interrupted set-up is simply continued.

pub(crate) mod bindings;
mod mlx;
mod mlxc;
mod openblas;
mod override_config;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

/// The version of MLX that mlx-rs 0.33 is written against (mlx-sys 0.7, mlx-c 0.7).
pub(crate) const MLX_VERSION: &str = "0.32.2";

/// Names an MLX installation (a folder with `lib/libmlx.so` and `include/mlx`) to
/// use instead of a download.
pub(crate) const MLX_FOLDER_VARIABLE: &str = "PREFILL_MLX_DIR";

#[derive(Args, Debug, Default, Clone)]
pub(crate) struct Options {
    /// Take MLX's CUDA 13 build (with its NVIDIA libraries: some gigabytes).
    #[arg(long)]
    pub cuda: bool,
    /// Throw away what was prepared and start again.
    #[arg(long)]
    pub force: bool,
}

/// Prepares native MLX as asked. Quick when nothing has changed.
pub(crate) fn setup(options: &Options) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("setup: nothing to do here: mlx-sys builds MLX itself on this system");
        return Ok(());
    }
    let native = workspace::native_folder();
    if options.force && native.exists() {
        fs::remove_dir_all(&native).context("could not remove the old set-up")?;
    }
    prepare(&native, &mlx::Choice::asked(options.cuda)?)
}

/// Prepares native MLX as the last set-up chose it, for the commands that need it.
pub(crate) fn ensure() -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let native = workspace::native_folder();
    prepare(&native, &mlx::Choice::kept(&native)?)
}

fn prepare(native: &Path, choice: &mlx::Choice) -> Result<()> {
    fs::create_dir_all(native)?;
    let lock = File::create(native.join("lock"))?;
    lock.lock().context("could not wait for another set-up")?;

    let mlx = mlx::prepare(native, choice)?;
    let blas = openblas::put_first(&mlx)?;
    let mlxc = mlxc::prepare(native, &mlx)?;
    let changed = override_config::write(native, &mlx, &mlxc)?;
    choice.keep(native)?;
    let state = if changed { "ready" } else { "up to date" };
    println!(
        "setup: MLX {MLX_VERSION} ({}) {state}; BLAS: {blas}",
        mlx.variant
    );
    Ok(())
}

/// The name under which `path` is made, until it is whole.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Writes `content` to `path` so that the file is either whole or not there.
fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let partial = partial(path);
    fs::write(&partial, content)
        .and_then(|()| fs::rename(&partial, path))
        .with_context(|| format!("could not write {}", path.display()))
}
