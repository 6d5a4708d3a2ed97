//! mlx-c, compiled from the sources that come with the mlx-sys package.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::mlx::{Mlx, pip_install};
use crate::{process, workspace};

/// What this module makes: a folder with `libmlxc.a` and `bindings.rs`.
#[derive(Debug)]
pub(crate) struct Mlxc {
    pub folder: PathBuf,
}

/// Our own files that go into the library and the bindings.
const ADDITIONS: [(&str, &str); 3] = [
    ("additions.cpp", include_str!("../../native/additions.cpp")),
    ("additions.rs", include_str!("../../native/additions.rs")),
    ("format", include_str!("../../native/format/format")),
];

/// Compiles mlx-c against `mlx` and writes the bindings, unless that is done already.
/// The folder's name says what it was made from, so that a change makes another.
pub(crate) fn prepare(native: &Path, mlx: &Mlx) -> Result<Mlxc> {
    let source = workspace::dependency_source("mlx-sys")?.join("src/mlx-c");
    let compiler = Compiler::find()?;
    let mut hash = Sha256::new();
    hash.update(compiler.version.as_bytes());
    hash.update(super::MLX_VERSION.as_bytes());
    hash.update(mlx.folder.to_string_lossy().as_bytes());
    for (name, text) in ADDITIONS {
        hash.update(name.as_bytes());
        hash.update(text.as_bytes());
    }
    for flag in FLAGS {
        hash.update(flag.as_bytes());
    }
    for folder in ["mlx/c", "mlx/c/private"] {
        for extension in ["cpp", "h"] {
            for file in files(&source.join(folder), extension)? {
                hash.update(fs::read(&file)?);
            }
        }
    }
    let digest = hash.finalize();
    let name = u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    let folder = native.join(format!("mlxc-{name:016x}"));
    if folder.exists() {
        return Ok(Mlxc { folder });
    }

    let partial = super::partial(&folder);
    if partial.exists() {
        fs::remove_dir_all(&partial).context("could not remove a half-finished build")?;
    }
    fs::create_dir_all(&partial)?;
    compile(&compiler, &source, mlx, &partial)?;
    write_bindings(native, &source, &compiler, &partial.join("bindings.rs"))?;
    fs::rename(&partial, &folder).context("could not move mlx-c into place")?;
    Ok(Mlxc { folder })
}

/// The files of `folder` with this extension, in a fixed order.
pub(super) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

struct Compiler {
    /// CXX may be several words, such as `ccache g++`.
    words: Vec<String>,
    version: String,
}

/// How mlx-c is compiled.
const FLAGS: [&str; 3] = ["-std=c++20", "-O2", "-fPIC"];

impl Compiler {
    fn find() -> Result<Self> {
        let program = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let words: Vec<String> = program.split_whitespace().map(str::to_owned).collect();
        let version = process::output(bare(&words).arg("--version")).context(
            "a C++20 compiler is needed to build mlx-c: `apt-get install g++` (CXX names another)",
        )?;
        Ok(Self { words, version })
    }

    fn command(&self) -> Command {
        let mut command = bare(&self.words);
        command.args(FLAGS);
        command
    }

    /// Whether the compiler's library has `<format>` (GCC from 13 on).
    fn has_format(&self, scratch: &Path) -> Result<bool> {
        let probe = scratch.join("probe.cpp");
        fs::write(&probe, "#include <format>\nint main() {}\n")?;
        let compiled = process::output(self.command().arg("-fsyntax-only").arg(&probe)).is_ok();
        fs::remove_file(&probe)?;
        Ok(compiled)
    }

    /// The folder of the compiler's own headers (`stddef.h`).
    fn headers(&self) -> Option<PathBuf> {
        let printed = process::output(bare(&self.words).arg("-print-file-name=include")).ok()?;
        let folder = PathBuf::from(printed.trim());
        folder.is_absolute().then_some(folder)
    }
}

/// The compiler, without arguments of ours.
fn bare(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("c++", String::as_str));
    command.args(words);
    command
}

fn compile(compiler: &Compiler, source: &Path, mlx: &Mlx, out: &Path) -> Result<()> {
    let additions = workspace::root().join("xtask/native");
    let mut sources = files(&source.join("mlx/c"), "cpp")?;
    sources.push(additions.join("additions.cpp"));
    let shim = (!compiler.has_format(out)?).then(|| additions.join("format"));
    println!("setup: compiling mlx-c ({} files)", sources.len());

    let objects: Vec<PathBuf> = (0..sources.len())
        .map(|index| out.join(format!("{index}.o")))
        .collect();
    let next = AtomicUsize::new(0);
    let worker = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(source_file), Some(object)) = (sources.get(index), objects.get(index)) else {
                return Ok(());
            };
            let mut command = compiler.command();
            // See additions.cpp on half.h. mlx-c uses <format> without naming it.
            command
                .args(["-DMLX_HALF_H", "-include", "format", "-I"])
                .arg(source);
            command.arg("-isystem").arg(mlx.include_folder());
            if let Some(shim) = &shim {
                command.arg("-I").arg(shim);
            }
            process::output(command.arg("-c").arg(source_file).arg("-o").arg(object))
                .context("mlx-c did not compile")?;
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a compile thread panicked")))
        })
    })?;

    process::output(
        Command::new("ar")
            .arg("crs")
            .arg(out.join("libmlxc.a"))
            .args(&objects),
    )
    .context("`ar` is needed to build mlx-c: `apt-get install binutils`")?;
    for object in objects {
        fs::remove_file(object)?;
    }
    Ok(())
}

/// Runs bindgen in a process of its own: with the system's libclang, or else with PyPI's.
fn write_bindings(native: &Path, source: &Path, compiler: &Compiler, out: &Path) -> Result<()> {
    let bindgen = |libclang: Option<&Path>| {
        let mut command = Command::new(env::current_exe().context("this program's own path")?);
        command
            .arg("bindings")
            .arg("--mlxc")
            .arg(source)
            .arg("--out")
            .arg(out);
        if let Some(headers) = compiler.headers() {
            command.arg("--compiler-headers").arg(headers);
        }
        if let Some(folder) = libclang {
            command.env("LIBCLANG_PATH", folder);
        }
        process::output(&mut command)
    };
    let Err(with_system) = bindgen(None) else {
        return Ok(());
    };
    let site = native.join("libclang");
    let folder = site.join("clang/native");
    if !folder.join("libclang.so").exists() {
        println!("setup: no usable libclang on this system; downloading PyPI's");
        pip_install("requirements-libclang.txt", &site).with_context(|| {
            format!(
                "bindgen needs libclang: `apt-get install libclang-dev`, or LIBCLANG_PATH \
                 (what the system's gave: {with_system:#})"
            )
        })?;
    }
    bindgen(Some(&folder)).context("bindgen failed with PyPI's libclang")?;
    Ok(())
}
