//! The Cargo configuration that puts our MLX in place of mlx-sys's build script.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::mlx::Mlx;
use super::mlxc::Mlxc;
use super::write_whole;

/// The file that the committed `.cargo/config.toml` includes.
const FILE: &str = "cargo.toml";

/// Where the linker script `xtask/native/cc` finds the folder of libmlx.so.
const RUN_PATH_FILE: &str = "run-path";

/// Writes both; false if they were as they should be.
pub(crate) fn write(native: &Path, mlx: &Mlx, mlxc: &Mlxc) -> Result<bool> {
    let run_path = format!("{}\n", mlx.library_folder().display());
    let config = config(mlx, mlxc);
    let is = |name: &str, text: &str| {
        fs::read_to_string(native.join(name)).is_ok_and(|found| found == text)
    };
    if is(RUN_PATH_FILE, &run_path) && is(FILE, &config) {
        return Ok(false);
    }
    write_whole(&native.join(RUN_PATH_FILE), run_path.as_bytes())?;
    write_whole(&native.join(FILE), config.as_bytes())?;
    Ok(true)
}

fn config(mlx: &Mlx, mlxc: &Mlxc) -> String {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    format!(
        "# Written by `cargo xtask setup`, read by way of .cargo/config.toml,\n\
         # in place of the build script of mlx-sys.\n\
         [target.{target}.mlx]\n\
         rustc-link-search = [{mlxc_search}, {mlx_search}]\n\
         rustc-link-lib = [\"static=mlxc\", \"dylib=mlx\", \"dylib=stdc++\"]\n\
         rustc-env = {{ OUT_DIR = {mlxc_folder} }}\n",
        mlxc_search = quoted(Path::new(&format!("native={}", mlxc.folder.display()))),
        mlx_search = quoted(Path::new(&format!(
            "native={}",
            mlx.library_folder().display()
        ))),
        mlxc_folder = quoted(&mlxc.folder),
    )
}
