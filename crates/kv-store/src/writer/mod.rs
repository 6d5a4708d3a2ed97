//! Writing behind the caller's back, bounded in bytes.

mod job;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex};

use crate::batch::{Address, Namespace};
use crate::stats::PutReport;
use crate::{Error, Key, Result, Store};

use job::{job_bytes, write};

pub use job::{Job, OwnedTensor, OwnedWrite};

/// What the writer does with a job that its queue has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// [`Writer::submit`] waits.
    Block,
    /// The job is given back at once, and counted.
    Drop,
}

/// How a writer is made.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The most bytes of tensors that wait or are being written. A greater job is taken when
    /// the queue is empty. Default: 1 GiB.
    pub queue_bytes: u64,
    /// What happens when there is no room. Default: the job is dropped.
    pub when_full: WhenFull,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            queue_bytes: 1 << 30,
            when_full: WhenFull::Drop,
        }
    }
}

/// What became of a submitted job.
#[derive(Debug)]
pub enum Submitted<O> {
    /// It waits; its acknowledgement will have this number.
    Queued(u64),
    /// There was no room. Nothing of it will be written.
    Dropped(Job<O>),
}

/// The end of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ack<O> {
    /// The number that [`Submitted::Queued`] gave.
    pub ticket: u64,
    /// What was written, or why nothing was.
    pub result: Result<PutReport>,
    /// The owners of all buffers, in order, to be dropped wherever they should be.
    pub owners: Vec<O>,
}

/// What a writer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterStats {
    /// Jobs that wait or are being written.
    pub queued_jobs: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// The most bytes that were in the queue.
    pub peak_queued_bytes: u64,
    /// Jobs written.
    pub written_jobs: u64,
    /// Jobs that failed.
    pub failed_jobs: u64,
    /// Jobs dropped because the queue was full.
    pub dropped_jobs: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

/// One thread that writes batches to a store in the order in which they were submitted.
/// Dropping it writes what is queued first.
///
/// ```
/// use prefill_kv_store::{
///     DType, Job, Key, Kind, Layout, Namespace, Options, OwnedTensor, OwnedWrite, Store, Submitted,
///     Writer, WriterOptions,
/// };
/// let store = Store::in_memory(Options::default())?;
/// let space = Namespace::new("demo")?;
/// let (writer, acks) = Writer::spawn(store.clone(), WriterOptions::default())?;
/// let tensor = OwnedTensor {
///     name: "k".into(),
///     dtype: DType::U8,
///     layout: Layout::contiguous(&[3])?,
///     owner: vec![1, 2, 3],
/// };
/// let record = OwnedWrite {
///     key: Key::new([1; 32]),
///     kind: Kind::Rows,
///     parent: None,
///     cost: 1.0,
///     tensors: vec![tensor],
///     metadata: vec![],
/// };
/// let job = Job { namespace: space.clone(), records: vec![record], removals: vec![] };
/// assert!(matches!(writer.submit(job)?, Submitted::Queued(0)));
/// writer.flush();
/// assert_eq!(acks.recv().unwrap().owners, [vec![1, 2, 3]]);
/// assert!(store.contains(&space, &Key::new([1; 32])));
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<O> {
    shared: Arc<Shared<O>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<O> {
    options: WriterOptions,
    state: Mutex<State<O>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<O> {
    queue: VecDeque<(u64, Job<O>)>,
    pending: HashMap<Address, u32>,
    stats: WriterStats,
    next_ticket: u64,
    closing: bool,
    stopped: bool,
}

impl<O: AsRef<[u8]> + Send + 'static> Writer<O> {
    /// Starts the thread. Acknowledgements come on the receiver, one for each queued job.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub fn spawn(store: Store, options: WriterOptions) -> Result<(Self, Receiver<Ack<O>>)> {
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                pending: HashMap::new(),
                stats: WriterStats::default(),
                next_ticket: 0,
                closing: false,
                stopped: false,
            }),
            changed: Condvar::new(),
        });
        let (sender, receiver) = crossbeam_channel::unbounded();
        let run = {
            let shared = shared.clone();
            move || Running { shared: &shared }.run(&store, &sender)
        };
        let thread = std::thread::Builder::new()
            .name("kv-store writer".into())
            .spawn(run)
            .map_err(Error::io("start", "writer thread"))?;
        Ok((
            Self {
                shared,
                thread: Some(thread),
            },
            receiver,
        ))
    }

    /// Queues a job. Every layout is checked against its owner's bytes first.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if a layout reaches outside its owner's bytes, as far as its batch
    /// can't be written the errors of [`Store::put`] in its acknowledgement, and
    /// [`Error::Stopped`] if the thread has died.
    pub fn submit(&self, job: Job<O>) -> Result<Submitted<O>> {
        let bytes = job_bytes(&job)?;
        let mut state = self.shared.state.lock();
        loop {
            if state.stopped {
                return Err(Error::Stopped);
            }
            let queued = state.stats.queued_bytes;
            let limit = self.shared.options.queue_bytes;
            if queued == 0 || queued.saturating_add(bytes) <= limit {
                break;
            }
            if self.shared.options.when_full == WhenFull::Drop {
                state.stats.dropped_jobs += 1;
                state.stats.dropped_bytes += bytes;
                tracing::debug!(bytes, queued, "the write queue is full: a job is dropped");
                return Ok(Submitted::Dropped(job));
            }
            self.shared.changed.wait(&mut state);
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.stats.queued_jobs += 1;
        state.stats.queued_bytes += bytes;
        state.stats.peak_queued_bytes = state.stats.peak_queued_bytes.max(state.stats.queued_bytes);
        for record in &job.records {
            *state
                .pending
                .entry(job.namespace.address(record.key))
                .or_default() += 1;
        }
        state.queue.push_back((ticket, job));
        self.shared.changed.notify_all();
        Ok(Submitted::Queued(ticket))
    }

    /// Whether a record of this key waits to be written.
    #[must_use]
    pub fn is_pending(&self, namespace: &Namespace, key: &Key) -> bool {
        self.shared
            .state
            .lock()
            .pending
            .contains_key(&namespace.address(*key))
    }

    /// Waits until every job that was queued before is written, or has failed.
    pub fn flush(&self) {
        let mut state = self.shared.state.lock();
        let target = state.next_ticket;
        let done = |s: &State<O>| s.stats.written_jobs + s.stats.failed_jobs >= target || s.stopped;
        while !done(&state) {
            self.shared.changed.wait(&mut state);
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        self.shared.state.lock().stats
    }
}

impl<O> Drop for Writer<O> {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

/// The thread's side; that it ends, for whatever reason, wakes those who wait.
struct Running<'s, O> {
    shared: &'s Shared<O>,
}

impl<O: AsRef<[u8]>> Running<'_, O> {
    fn run(&self, store: &Store, acks: &Sender<Ack<O>>) {
        while let Some((ticket, job)) = self.next() {
            let result = write(store, &job);
            let (failed, bytes) = (result.is_err(), job_bytes(&job).unwrap_or(0));
            if let Err(error) = &result {
                tracing::warn!(ticket, %error, "a queued write failed");
            }
            let keys: Vec<Address> = job
                .records
                .iter()
                .map(|r| job.namespace.address(r.key))
                .collect();
            let tensors = job.records.into_iter().flat_map(|r| r.tensors);
            let owners = tensors.map(|t| t.owner).collect();
            // Nobody may be listening any more; then the owners are dropped here.
            let _ = acks.send(Ack {
                ticket,
                result,
                owners,
            });
            self.done(&keys, bytes, failed);
        }
    }

    fn next(&self) -> Option<(u64, Job<O>)> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(next) = state.queue.pop_front() {
                return Some(next);
            }
            if state.closing {
                return None;
            }
            self.shared.changed.wait(&mut state);
        }
    }

    fn done(&self, keys: &[Address], bytes: u64, failed: bool) {
        let mut state = self.shared.state.lock();
        for address in keys {
            if let Some(count) = state.pending.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    state.pending.remove(address);
                }
            }
        }
        state.stats.queued_jobs -= 1;
        state.stats.queued_bytes -= bytes;
        *(if failed {
            &mut state.stats.failed_jobs
        } else {
            &mut state.stats.written_jobs
        }) += 1;
        self.shared.changed.notify_all();
    }
}

impl<O> Drop for Running<'_, O> {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
    }
}
