//! mlx-sys's Rust bindings, written by bindgen as mlx-sys's own build script does.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The root of mlx-c's sources.
    #[arg(long)]
    pub mlxc: PathBuf,
    /// A folder with `stddef.h` and its like, for a libclang that comes without.
    #[arg(long)]
    pub compiler_headers: Option<PathBuf>,
    /// The file to write.
    #[arg(long)]
    pub out: PathBuf,
}

/// Writes the bindings. Needs libclang, which the system has or `LIBCLANG_PATH` names.
#[cfg(target_os = "linux")]
pub(crate) fn write(options: &Options) -> Result<()> {
    use anyhow::Context;

    clang_sys::load()
        .map_err(anyhow::Error::msg)
        .context("no libclang")?;
    let headers = super::mlxc::files(&options.mlxc.join("mlx/c"), "h")?;
    // The same settings as mlx-sys 0.7's build script (src/bindgen_config.rs), except
    // that half.h is switched off: additions.rs holds what it would declare.
    let mut builder = bindgen::Builder::default()
        .rust_target("1.73.0".parse().context("a version that bindgen knows")?)
        .clang_arg(format!("-I{}", options.mlxc.display()))
        .clang_arg("-DMLX_HALF_H")
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    if let Some(folder) = &options.compiler_headers {
        builder = builder
            .clang_arg("-idirafter")
            .clang_arg(folder.to_string_lossy());
    }
    for header in headers {
        builder = builder.header(header.to_string_lossy());
    }
    let bindings = builder.generate().context("bindgen failed")?.to_string();
    let text = bindings + include_str!("../../native/additions.rs");
    super::write_whole(&options.out, text.as_bytes())
}

/// Nothing asks for this elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn write(_: &Options) -> Result<()> {
    anyhow::bail!("bindings are written on Linux only")
}
