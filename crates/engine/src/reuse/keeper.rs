//! The thread that knows when something is to be written.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};

use super::Reuse;
use super::disk::Written;
use crate::{Error, Result, runtime};

/// Wakes the MLX thread when what was computed is due to be written, and brings it what the
/// writer is done with. It does no work itself.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// When something was computed.
    computed: Sender<Instant>,
    written: Receiver<Written>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread, or none where there is no runtime to wake.
    ///
    /// # Errors
    /// [`Error::RuntimeStart`].
    pub(crate) fn start(
        reuse: &Arc<Reuse>,
        written: Receiver<Written>,
        has_runtime: bool,
    ) -> Result<Self> {
        let (computed, news) = unbounded();
        let reuse = Arc::downgrade(reuse);
        let acknowledgements = written.clone();
        let run = move || run(&reuse, &news, &acknowledgements);
        let thread = has_runtime.then(|| {
            let builder = std::thread::Builder::new().name("prefill-keeper".to_owned());
            builder.spawn(run)
        });
        let thread = thread.transpose().map_err(Error::RuntimeStart)?;
        Ok(Self {
            computed,
            written,
            thread,
        })
    }

    /// Says that something was computed, to be written after the delay.
    pub(crate) fn wake(&self, now: Instant) {
        // A thread that ended writes nothing.
        let _ = self.computed.send(now);
    }

    /// What the writer is done with and was not passed on yet.
    pub(crate) fn written(&self) -> Vec<Written> {
        self.written.try_iter().collect()
    }

    /// Ends the thread, and gives what it did not pass on.
    pub(crate) fn stop(self) -> Vec<Written> {
        drop(self.computed);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes behind panicked");
        }
        self.written.try_iter().collect()
    }
}

/// Runs until nobody can say any more that something was computed.
fn run(reuse: &Weak<Reuse>, computed: &Receiver<Instant>, written: &Receiver<Written>) {
    let mut due: Option<Instant> = None;
    loop {
        let timer = due.map_or_else(never, |due| {
            after(due.saturating_duration_since(Instant::now()))
        });
        select! {
            recv(computed) -> news => match news {
                Ok(since) => {
                    let delay = reuse.upgrade().and_then(|reuse| {
                        reuse.options.disk.as_ref()?.delay
                    });
                    // The first of a burst: what follows is written with it.
                    if due.is_none() {
                        due = delay.and_then(|delay| since.checked_add(delay));
                    }
                }
                Err(_) => return,
            },
            recv(written) -> done => match done {
                Ok(done) => pass_on(reuse, done),
                Err(_) => return,
            },
            recv(timer) -> _ => {
                due = None;
                if let Some(reuse) = reuse.upgrade() {
                    // In its turn, behind the requests that wait: it is not for this that a
                    // token comes late. Without a runtime there is nothing left to write.
                    let _ = runtime::submit(move |_| reuse.write());
                }
            }
        }
    }
}

fn pass_on(reuse: &Weak<Reuse>, done: Written) {
    let Some(reuse) = reuse.upgrade() else { return };
    // What was lent is dropped where all arrays are, or here if there is no such place.
    let _ = runtime::submit_urgent(move |_| {
        reuse.acknowledge(&done);
        drop(done);
    });
}
