//! OpenBLAS in the place of the wheel's reference BLAS.
//!
//! MLX's CPU wheel brings the reference implementation, on which f32 products are
//! some 35 times slower. The wheel's library finds it by file name, so a link of
//! that name to the system's OpenBLAS, which has the same interface, is all it takes.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mlx::{Mlx, Variant};
use crate::process;

/// Which BLAS the CPU's f32 products run on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Blas {
    System(PathBuf),
    Reference,
    /// Not ours to change, or not used.
    Untouched,
}

impl fmt::Display for Blas {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(path) => write!(formatter, "OpenBLAS ({})", path.display()),
            Self::Reference => formatter.write_str(
                "the wheel's reference BLAS, where f32 products are some 35 times slower \
                 than with OpenBLAS: `apt-get install libopenblas0-pthread`, then set up again",
            ),
            Self::Untouched => formatter.write_str("as the installation has it"),
        }
    }
}

/// Puts the system's OpenBLAS into the place of the wheel's BLAS, if there is one.
pub(crate) fn put_first(mlx: &Mlx) -> Result<Blas> {
    if mlx.variant != Variant::Cpu {
        return Ok(Blas::Untouched);
    }
    let libraries = mlx.folder.with_file_name("mlx_cpu.libs");
    let Some(blas) = bundled_blas(&libraries)? else {
        return Ok(Blas::Untouched);
    };
    let kept = blas.with_file_name("reference-blas.so");
    let Some(openblas) = system_openblas() else {
        // OpenBLAS may have been here at an earlier set-up and be gone now.
        if kept.exists() {
            fs::rename(&kept, &blas).context("could not put the reference BLAS back")?;
        }
        return Ok(Blas::Reference);
    };
    if fs::read_link(&blas).is_ok_and(|target| target == openblas) {
        return Ok(Blas::System(openblas));
    }
    if !kept.exists() {
        let partial = super::partial(&kept);
        fs::copy(&blas, &partial)
            .and_then(|_| fs::rename(&partial, &kept))
            .context("could not keep the reference BLAS")?;
    }
    let partial = super::partial(&blas);
    let _ = fs::remove_file(&partial);
    symlink(&openblas, &partial)
        .and_then(|()| fs::rename(&partial, &blas))
        .context("could not link OpenBLAS")?;
    Ok(Blas::System(openblas))
}

/// The wheel's BLAS: `libblas-<hash>.so.<version>`.
fn bundled_blas(libraries: &Path) -> Result<Option<PathBuf>> {
    let entries = fs::read_dir(libraries)
        .with_context(|| format!("{} can't be read", libraries.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libblas-") && name.contains(".so") && !name.ends_with(".partial") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The OpenBLAS that the loader's cache knows for this architecture.
fn system_openblas() -> Option<PathBuf> {
    let printed = ["/sbin/ldconfig", "ldconfig"]
        .iter()
        .find_map(|program| process::output(Command::new(program).arg("-p")).ok())?;
    let architecture = if cfg!(target_arch = "aarch64") {
        "AArch64"
    } else {
        "x86-64"
    };
    printed
        .lines()
        .filter(|line| line.trim_start().starts_with("libopenblas.so.0 "))
        .filter(|line| line.contains(architecture))
        .find_map(|line| line.split("=> ").nth(1))
        .map(|path| PathBuf::from(path.trim()))
        .filter(|path| path.exists())
}
