//! One render, within bounds.
//!
//! minijinja counts steps and the bytes of text, but not two things that a hostile template
//! can do: lists that hold lists, a level a step, overflow a small stack when they are
//! dropped; and lists that hold themselves twice, level upon level, take exponential time to
//! compare. So a render has a thread with a stack for the deepest list that the steps allow,
//! and a deadline at which it is given up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use minijinja::Environment;
use minijinja::value::{Serde, Value};
use serde_json::{Map, Value as Json};

use super::{OUTPUT_LIMIT, namespace, template, time};
use crate::{Error, Result};

/// How long one render may take; most take milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Address space, of which only what is used takes memory.
const STACK: usize = 1 << 30;

/// Renders that were given up and still run.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

/// So many may still run before no other is begun.
const GIVEN_UP_LIMIT: usize = 4;

pub(super) fn render(
    environment: Arc<Environment<'static>>,
    name: String,
    context: Map<String, Json>,
    now: SystemTime,
) -> Result<String> {
    if GIVEN_UP.load(Ordering::Relaxed) >= GIVEN_UP_LIMIT {
        let fact = format!("{GIVEN_UP_LIMIT} others that were given up still run");
        return Err(Error::Template(fact));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    // Set by whoever comes first: the thread when it is done, or the caller who gives it up.
    let settled = Arc::new(AtomicBool::new(false));
    let settled_by_thread = Arc::clone(&settled);
    let work = move || {
        let rendered = run(&environment, &name, &context, now);
        if settled_by_thread.swap(true, Ordering::AcqRel) {
            GIVEN_UP.fetch_sub(1, Ordering::Relaxed);
        } else {
            // Nobody may wait any more; then nobody wants it.
            let _ = sender.send(rendered);
        }
    };
    let spawned = thread::Builder::new()
        .name("chat-template".to_owned())
        .stack_size(STACK)
        .spawn(work);
    spawned.map_err(|error| Error::Template(format!("its thread can't be begun: {error}")))?;
    let mut received = receiver.recv_timeout(TIME_LIMIT);
    if matches!(received, Err(RecvTimeoutError::Timeout)) {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
        if !settled.swap(true, Ordering::AcqRel) {
            return Err(Error::TemplateTime { limit: TIME_LIMIT });
        }
        // It was done at the last moment.
        GIVEN_UP.fetch_sub(1, Ordering::Relaxed);
        received = receiver.recv().map_err(|_| RecvTimeoutError::Disconnected);
    }
    received.unwrap_or_else(|_| Err(Error::Template("its thread panicked".to_owned())))
}

fn run(
    environment: &Environment<'static>,
    name: &str,
    context: &Map<String, Json>,
    now: SystemTime,
) -> Result<String> {
    let _now = time::set(now);
    let _namespaces = namespace::guard();
    let mut output = LimitedOutput::default();
    let rendered = environment.get_template(name).and_then(|found| {
        found
            .render_captured_to(Value::from(Serde(context)), &mut output)
            .map(drop)
    });
    if output.full {
        return Err(Error::TemplateOutput {
            limit: OUTPUT_LIMIT,
        });
    }
    rendered.map_err(|error| template(&error))?;
    String::from_utf8(output.bytes).map_err(|error| Error::Template(error.to_string()))
}

/// Collects output up to [`OUTPUT_LIMIT`].
#[derive(Default)]
struct LimitedOutput {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_LIMIT {
            self.full = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
