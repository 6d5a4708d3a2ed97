//! A program that runs no longer than it may.

use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};

/// How much of a program's messages is kept.
const MESSAGE_LIMIT: usize = 4096;

/// A running program: its output to read, and a watch that stops it when its time is over.
pub(super) struct Run {
    pub(super) output: BufReader<ChildStdout>,
    program: String,
    child: Arc<Mutex<Child>>,
    messages: JoinHandle<Vec<u8>>,
    /// Dropped to send the watch home.
    done: mpsc::Sender<()>,
    late: Arc<AtomicBool>,
    limit: Duration,
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(super) fn start(mut command: Command, program: String, limit: Duration) -> Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let fail = |source| Error::Program {
            program: program.clone(),
            source,
        };
        let mut child = command.spawn().map_err(fail)?;
        let missing = || fail(std::io::Error::other("its output is not a pipe"));
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut errors = child.stderr.take().ok_or_else(missing)?;
        let messages = thread::spawn(move || {
            let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
            // Read to the end, so that the program isn't stuck on a full pipe.
            while let Ok(len @ 1..) = errors.read(&mut piece) {
                let room = MESSAGE_LIMIT.saturating_sub(kept.len()).min(len);
                kept.extend_from_slice(&piece[..room]);
            }
            kept
        });
        let child = Arc::new(Mutex::new(child));
        let late = Arc::new(AtomicBool::new(false));
        let (done, wait) = mpsc::channel::<()>();
        thread::spawn({
            let (child, late) = (Arc::clone(&child), Arc::clone(&late));
            move || {
                if wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                    late.store(true, Ordering::Release);
                    let _ = lock(&child).kill();
                }
            }
        });
        Ok(Self {
            output,
            program,
            child,
            messages,
            done,
            late,
            limit,
        })
    }

    /// Ends the run with what reading its output gave. A failure of the program itself is the
    /// better reason.
    pub(super) fn finish(mut self, result: Result<()>) -> Result<()> {
        if result.is_ok() {
            // Whatever else it writes is not wanted, but its status is.
            let _ = std::io::copy(&mut self.output, &mut std::io::sink());
        } else {
            let _ = lock(&self.child).kill();
        }
        drop(self.output);
        let status = loop {
            match lock(&self.child).try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => break status,
                Err(source) => {
                    return Err(Error::Program {
                        program: self.program,
                        source,
                    });
                }
            }
            thread::sleep(Duration::from_millis(2));
        };
        drop(self.done);
        let messages = self.messages.join().unwrap_or_default();
        if self.late.load(Ordering::Acquire) {
            return Err(Error::TimeLimit { limit: self.limit });
        }
        // Without a code it was stopped by us.
        if status.code().is_some_and(|code| code != 0) {
            let message = String::from_utf8_lossy(&messages).trim().to_owned();
            let status = status.to_string();
            return Err(Error::ProgramFailed {
                program: self.program,
                status,
                message,
            });
        }
        result
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Run::start(command, "sh".to_owned(), limit).expect("a shell")
    }

    #[test]
    fn a_program_over_its_time_is_stopped() {
        let run = shell("exec sleep 60", Duration::from_millis(50));
        let error = run.finish(Ok(())).unwrap_err();
        assert!(matches!(error, Error::TimeLimit { .. }), "{error}");
    }

    #[test]
    fn failures_carry_the_programs_words() {
        let run = shell("echo no such codec >&2; exit 3", Duration::from_mins(1));
        let error = run.finish(Ok(())).unwrap_err().to_string();
        assert!(
            error.contains("no such codec") && error.contains('3'),
            "{error}"
        );
    }

    #[test]
    fn a_reader_that_fails_stops_the_program() {
        let run = shell("while true; do echo x; done", Duration::from_mins(1));
        let error = run
            .finish(Err(Error::FrameIndex {
                index: 3,
                frames: 2,
            }))
            .unwrap_err();
        assert!(matches!(error, Error::FrameIndex { .. }), "{error}");
    }
}
