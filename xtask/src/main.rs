//! `cargo xtask`: the commands of this workspace.
//!
//! `setup` prepares native MLX on Linux; `demo` and `test` do it on their own when needed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod commands;
mod native;
mod process;
mod workspace;

/// Commands of the prefill workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prepare native MLX (Linux; on macOS mlx-sys builds it itself).
    Setup(native::Options),
    /// Set up, then ask the bundled model about the bundled picture.
    Demo,
    /// Set up, then run every test of the workspace.
    Test {
        /// Passed on to the test runner, such as a filter.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Formatting, lints and documentation: what CI checks beside the tests.
    Lint,
    /// Write mlx-sys's bindings: `setup` runs this in a process of its own, where
    /// `LIBCLANG_PATH` can be set.
    #[command(hide = true)]
    Bindings(native::bindings::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Setup(options) => native::setup(&options),
        Command::Demo => commands::demo(),
        Command::Test { arguments } => commands::test(&arguments),
        Command::Lint => commands::lint(),
        Command::Bindings(options) => native::bindings::write(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
