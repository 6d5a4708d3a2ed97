//! Running other programs, with errors that say what was run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `command` with this process's output and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` quietly and returns its standard output. On failure the error
/// carries what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start `{shown}`"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{shown}` failed ({}):\n{}",
            output.status,
            printed.trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(
        command
            .get_args()
            .map(|argument| argument.to_string_lossy()),
    );
    words.join(" ")
}
