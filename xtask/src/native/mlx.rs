//! MLX itself: the prebuilt library and its headers, from PyPI or from a folder.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{MLX_FOLDER_VARIABLE, MLX_VERSION};
use crate::{process, workspace};

/// The oldest glibc that MLX's Linux wheels run on (their platform tag is `manylinux_2_35`).
const OLDEST_GLIBC: (u32, u32) = (2, 35);

/// Which build of MLX is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Cpu,
    Cuda,
    /// Named by the caller: nothing in it is changed.
    Given,
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cpu => "CPU build",
            Self::Cuda => "CUDA build",
            Self::Given => "your installation",
        })
    }
}

/// An installation of MLX: `folder/lib/libmlx.so`, `folder/include/mlx/...`.
#[derive(Debug)]
pub(crate) struct Mlx {
    pub variant: Variant,
    pub folder: PathBuf,
}

impl Mlx {
    pub(crate) fn library_folder(&self) -> PathBuf {
        self.folder.join("lib")
    }

    pub(crate) fn include_folder(&self) -> PathBuf {
        self.folder.join("include")
    }
}

/// Which MLX is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Cpu,
    Cuda,
    /// An installation of the caller's.
    Folder(PathBuf),
}

/// Where the last choice is kept: later commands keep to it.
const CHOICE_FILE: &str = "choice";

impl Choice {
    /// The installation that the environment names, or else the build that was asked for.
    pub(crate) fn asked(cuda: bool) -> Result<Self> {
        if let Some(folder) = env::var_os(MLX_FOLDER_VARIABLE) {
            let folder = PathBuf::from(folder);
            let folder = fs::canonicalize(&folder).with_context(|| {
                let folder = folder.display();
                format!("{MLX_FOLDER_VARIABLE} names {folder}, which is not there")
            })?;
            return Ok(Self::Folder(folder));
        }
        Ok(if cuda { Self::Cuda } else { Self::Cpu })
    }

    /// The installation that the environment names, or else the last choice, or else the
    /// CPU build.
    pub(crate) fn kept(native: &Path) -> Result<Self> {
        let kept = fs::read_to_string(native.join(CHOICE_FILE)).unwrap_or_default();
        let asked = Self::asked(kept == "cuda")?;
        Ok(match kept.strip_prefix("folder ") {
            Some(folder) if asked == Self::Cpu => Self::Folder(folder.into()),
            _ => asked,
        })
    }

    /// Keeps this choice for later commands.
    pub(crate) fn keep(&self, native: &Path) -> Result<()> {
        let text = match self {
            Self::Cpu => "cpu".to_owned(),
            Self::Cuda => "cuda".to_owned(),
            Self::Folder(folder) => format!("folder {}", folder.display()),
        };
        super::write_whole(&native.join(CHOICE_FILE), text.as_bytes())
    }
}

/// Takes the caller's installation, or downloads a build into `native`.
pub(crate) fn prepare(native: &Path, choice: &Choice) -> Result<Mlx> {
    if let Choice::Folder(folder) = choice {
        let mlx = Mlx {
            variant: Variant::Given,
            folder: folder.clone(),
        };
        check(&mlx).with_context(|| format!("{MLX_FOLDER_VARIABLE} names an unfit MLX"))?;
        return Ok(mlx);
    }
    let cuda = *choice == Choice::Cuda;
    let (variant, name) = if cuda {
        (Variant::Cuda, "mlx-cuda")
    } else {
        (Variant::Cpu, "mlx-cpu")
    };
    let site = native.join(format!("{name}-{MLX_VERSION}"));
    let mlx = Mlx {
        variant,
        folder: site.join("mlx"),
    };
    if check(&mlx).is_err() {
        check_glibc()?;
        let requirements = if cuda {
            "requirements-cuda.txt"
        } else {
            "requirements-cpu.txt"
        };
        println!("setup: downloading MLX {MLX_VERSION} ({variant})");
        pip_install(requirements, &site)?;
        check(&mlx).context("the downloaded MLX is not as expected")?;
    }
    Ok(mlx)
}

/// Installs a requirements file of `xtask/native` into `site`, whole or not at all.
pub(super) fn pip_install(requirements: &str, site: &Path) -> Result<()> {
    let python = env::var_os("PREFILL_PYTHON").unwrap_or_else(|| "python3".into());
    process::output(Command::new(&python).args(["-m", "pip", "--version"])).context(
        "Python's pip is needed to download MLX: `apt-get install python3-pip` \
         (PREFILL_PYTHON names another Python than python3)",
    )?;
    let partial = super::partial(site);
    if partial.exists() {
        fs::remove_dir_all(&partial).context("could not remove a half-finished download")?;
    }
    let pip = process::output(
        Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(["--no-compile", "--only-binary=:all:", "--target"])
            .arg(&partial)
            .arg("--requirement")
            .arg(workspace::root().join("xtask/native").join(requirements)),
    );
    pip.with_context(|| {
        format!(
            "pip could not fetch what {requirements} names: is the network there, and does \
             PyPI's package fit this system? ({MLX_FOLDER_VARIABLE} names an MLX to use instead)"
        )
    })?;
    if site.exists() {
        fs::remove_dir_all(site).context("could not remove an unfit download")?;
    }
    fs::rename(&partial, site).context("could not move the download into place")
}

/// Whether library and headers are there and of the version that mlx-c is written for.
fn check(mlx: &Mlx) -> Result<()> {
    let library = mlx.library_folder().join("libmlx.so");
    ensure!(library.is_file(), "{} is missing", library.display());
    let header = mlx.include_folder().join("mlx/version.h");
    let text = fs::read_to_string(&header)
        .with_context(|| format!("{} can't be read", header.display()))?;
    let found =
        header_version(&text).with_context(|| format!("{} states no version", header.display()))?;
    ensure!(
        found == MLX_VERSION,
        "it is version {found}, and mlx-rs 0.33 needs {MLX_VERSION}: \
         unset {MLX_FOLDER_VARIABLE}, or point it to that version"
    );
    Ok(())
}

fn header_version(header: &str) -> Option<String> {
    let part = |name: &str| {
        let line = header
            .lines()
            .find(|line| line.starts_with(&format!("#define {name} ")))?;
        line.split_whitespace().nth(2)
    };
    let major = part("MLX_VERSION_MAJOR")?;
    let minor = part("MLX_VERSION_MINOR")?;
    let patch = part("MLX_VERSION_PATCH")?;
    Some(format!("{major}.{minor}.{patch}"))
}

fn check_glibc() -> Result<()> {
    let printed = process::output(Command::new("getconf").arg("GNU_LIBC_VERSION"))
        .context("MLX's Linux build needs glibc, and this system seems to have none")?;
    let found = glibc_version(&printed)
        .with_context(|| format!("getconf printed `{}` as glibc's version", printed.trim()))?;
    if found < OLDEST_GLIBC {
        bail!(
            "glibc {}.{} is too old: MLX's Linux build needs {}.{} or newer \
             (Debian 12, Ubuntu 22.04); {MLX_FOLDER_VARIABLE} names an MLX built here",
            found.0,
            found.1,
            OLDEST_GLIBC.0,
            OLDEST_GLIBC.1
        );
    }
    Ok(())
}

fn glibc_version(printed: &str) -> Option<(u32, u32)> {
    let mut parts = printed.trim().strip_prefix("glibc ")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_kept() {
        let native = env::temp_dir().join(format!("prefill-choice-{}", std::process::id()));
        fs::create_dir_all(&native).unwrap();
        assert_eq!(Choice::kept(&native).unwrap(), Choice::Cpu);
        for choice in [
            Choice::Cuda,
            Choice::Folder("/opt/my mlx".into()),
            Choice::Cpu,
        ] {
            choice.keep(&native).unwrap();
            assert_eq!(Choice::kept(&native).unwrap(), choice);
        }
        fs::remove_dir_all(&native).unwrap();
    }

    #[test]
    fn reads_glibc_versions_as_numbers() {
        assert_eq!(glibc_version("glibc 2.36\n"), Some((2, 36)));
        assert_eq!(glibc_version("glibc 2.4.1"), Some((2, 4)));
        assert!(glibc_version("glibc 2.9").unwrap() < OLDEST_GLIBC);
        assert_eq!(glibc_version("musl 1.2"), None);
    }

    #[test]
    fn reads_the_version_of_the_headers() {
        let header = "#pragma once\n#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n\
                      #define MLX_VERSION_PATCH 2\n#define MLX_VERSION_NUMERIC (1)\n";
        assert_eq!(header_version(header).as_deref(), Some("0.32.2"));
        assert_eq!(header_version("#define MLX_VERSION_MAJOR 0\n"), None);
    }
}
