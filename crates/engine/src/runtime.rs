//! The runtime thread: the one that holds MLX while there are engines.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::model::Model;
use crate::thread::MlxThread;
use crate::{Error, Result};

/// Work for the runtime thread, done in the order of arrival.
type Job = Box<dyn FnOnce(&mut Models) + Send>;

/// Names a loaded model.
pub(crate) type ModelId = u64;

/// What the runtime thread holds.
pub(crate) struct Models {
    pub thread: MlxThread,
    pub loaded: HashMap<ModelId, Model>,
}

/// The way to the thread, once it runs. It runs until the process ends.
static JOBS: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Queues a job, and starts the thread if none runs. A job that panics ends only itself.
///
/// # Errors
/// [`Error::MlxTaken`] if the program holds MLX itself.
pub(crate) fn submit(job: impl FnOnce(&mut Models) + Send + 'static) -> Result<()> {
    let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match &*jobs {
        Some(sender) => sender.clone(),
        None => jobs.insert(start()?).clone(),
    };
    drop(jobs);
    sender.send(Box::new(job)).map_err(|_| Error::RuntimeGone)
}

/// Runs a job and waits for its answer.
pub(crate) fn call<T: Send + 'static>(
    job: impl FnOnce(&mut Models) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (answer, answers) = bounded(1);
    submit(move |models| {
        let result = catch_unwind(AssertUnwindSafe(|| job(models)))
            .unwrap_or_else(|panic| Err(Error::Panicked(message(&*panic))));
        // Nobody may be waiting any more.
        let _ = answer.send(result);
    })?;
    answers.recv().map_err(|_| Error::RuntimeGone)?
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}

fn start() -> Result<Sender<Job>> {
    let (jobs, queue) = unbounded();
    let (ready, readiness) = bounded(1);
    thread::Builder::new()
        .name("prefill-mlx".to_owned())
        .spawn(
            move || match MlxThread::claim_as("prefill's runtime thread") {
                Ok(thread) => {
                    let _ = ready.send(Ok(()));
                    run(
                        &queue,
                        Models {
                            thread,
                            loaded: HashMap::new(),
                        },
                    );
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            },
        )
        .map_err(Error::RuntimeStart)?;
    readiness.recv().map_err(|_| Error::RuntimeGone)??;
    Ok(jobs)
}

fn run(queue: &Receiver<Job>, mut models: Models) {
    for job in queue {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&mut models))) {
            tracing::error!(
                message = message(&*panic),
                "a job of the MLX thread panicked"
            );
        }
    }
}
