//! The runtime thread: the one that holds MLX while there are engines.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::memory::Memory;
use crate::model::Model;
use crate::reuse::Reuse;
use crate::thread::MlxThread;
use crate::{Error, Result};

/// Work for the runtime thread, done in the order of arrival.
type Job = Box<dyn FnOnce(&mut Models) + Send>;

/// Names a loaded model.
pub(crate) type ModelId = u64;

/// What the runtime thread holds.
pub(crate) struct Models {
    pub thread: MlxThread,
    pub loaded: HashMap<ModelId, Rc<Model>>,
    /// What is kept for loaded models, to be given up first when memory is short.
    pub reuse: HashMap<ModelId, Arc<Reuse>>,
    pub memory: Memory,
    urgent: Receiver<Job>,
}

impl Models {
    /// Sees to it that `needed` more bytes fit into the budget, and gives up what is kept if
    /// they do not.
    ///
    /// # Errors
    /// [`Error::Memory`] if they do not fit even so.
    pub(crate) fn make_room(&self, needed: usize) -> Result<()> {
        let lacking = match self.memory.make_room(needed) {
            Err(Error::Memory {
                needed,
                in_use,
                limit,
            }) => in_use.saturating_add(needed) - limit,
            other => return other,
        };
        let mut lacking = lacking as u64;
        for reuse in self.reuse.values() {
            let before = reuse.ram_bytes();
            reuse.shrink_to(before.saturating_sub(lacking));
            lacking -= (before - reuse.ram_bytes()).min(lacking);
        }
        // What waits to be written is in memory until it is.
        for reuse in self.reuse.values() {
            reuse.flush_here();
        }
        self.memory.make_room(needed)
    }

    /// Does what can't wait until the work at hand is done.
    pub(crate) fn run_urgent(&mut self) {
        while let Ok(job) = self.urgent.try_recv() {
            run(job, self);
        }
    }
}

/// The ways to the thread.
#[derive(Clone)]
struct Lanes {
    jobs: Sender<Job>,
    urgent: Sender<Job>,
}

/// The ways to the thread, once it runs. It runs until the process ends.
static LANES: Mutex<Option<Lanes>> = Mutex::new(None);

/// Queues a job, and starts the thread if none runs. A job that panics ends only itself.
///
/// # Errors
/// [`Error::MlxTaken`] if the program holds MLX itself.
pub(crate) fn submit(job: impl FnOnce(&mut Models) + Send + 'static) -> Result<()> {
    let sent = lanes()?.jobs.send(Box::new(job));
    sent.map_err(|_| Error::RuntimeGone)
}

/// Queues a short job that is done before the others, between two steps of the work at hand.
///
/// # Errors
/// Those of [`submit`].
pub(crate) fn submit_urgent(job: impl FnOnce(&mut Models) + Send + 'static) -> Result<()> {
    let lanes = lanes()?;
    lanes
        .urgent
        .send(Box::new(job))
        // Wakes the thread if it has nothing to do.
        .and_then(|()| lanes.jobs.send(Box::new(Models::run_urgent)))
        .map_err(|_| Error::RuntimeGone)
}

fn lanes() -> Result<Lanes> {
    let mut lanes = LANES.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match &*lanes {
        Some(lanes) => lanes.clone(),
        None => lanes.insert(start()?).clone(),
    })
}

/// Runs a job and waits for its answer.
///
/// # Errors
/// [`Error::OnRuntimeThread`] on the runtime thread itself, which would wait for ever.
pub(crate) fn call<T: Send + 'static>(
    job: impl FnOnce(&mut Models) -> Result<T> + Send + 'static,
) -> Result<T> {
    call_by(submit, job)
}

/// [`call`] for a short job that can't wait; see [`submit_urgent`].
///
/// # Errors
/// Those of [`call`].
pub(crate) fn call_urgent<T: Send + 'static>(
    job: impl FnOnce(&mut Models) -> Result<T> + Send + 'static,
) -> Result<T> {
    call_by(submit_urgent, job)
}

fn call_by<T: Send + 'static>(
    submit: impl FnOnce(Job) -> Result<()>,
    job: impl FnOnce(&mut Models) -> Result<T> + Send + 'static,
) -> Result<T> {
    if is_current() {
        return Err(Error::OnRuntimeThread);
    }
    let (answer, answers) = bounded(1);
    submit(Box::new(move |models: &mut Models| {
        let result = catch_unwind(AssertUnwindSafe(|| job(models)))
            .unwrap_or_else(|panic| Err(Error::Panicked(message(&*panic))));
        // Nobody may be waiting any more.
        let _ = answer.send(result);
    }))?;
    answers.recv().map_err(|_| Error::RuntimeGone)?
}

/// Whether the calling thread is the runtime's.
pub(crate) fn is_current() -> bool {
    IS_RUNTIME.get()
}

thread_local! {
    static IS_RUNTIME: Cell<bool> = const { Cell::new(false) };
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}

fn start() -> Result<Lanes> {
    let (jobs, queue) = unbounded();
    let (urgent, urgent_queue) = unbounded();
    let (ready, readiness) = bounded(1);
    thread::Builder::new()
        .name("prefill-mlx".to_owned())
        .spawn(
            move || match MlxThread::claim_as("prefill's runtime thread") {
                Ok(thread) => {
                    IS_RUNTIME.set(true);
                    let _ = ready.send(Ok(()));
                    let mut models = Models {
                        thread,
                        loaded: HashMap::new(),
                        reuse: HashMap::new(),
                        memory: Memory::default(),
                        urgent: urgent_queue,
                    };
                    for job in queue {
                        models.run_urgent();
                        run(job, &mut models);
                    }
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            },
        )
        .map_err(Error::RuntimeStart)?;
    readiness.recv().map_err(|_| Error::RuntimeGone)??;
    Ok(Lanes { jobs, urgent })
}

fn run(job: Job, models: &mut Models) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(models))) {
        let message = message(&*panic);
        tracing::error!(message, "a job of the MLX thread panicked");
    }
}
