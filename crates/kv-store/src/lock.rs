//! One writer at a time: in this process by a mutex, in the folder by its lock.

use std::io;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::refresh::{FileKind, UNSETTLED, file_name, parse_name, stat};
use crate::stats::add;
use crate::store::Inner;
use crate::{Error, Result};

/// The right to change the folder. While it is held the index shows the folder as it is.
pub(crate) struct Writing<'a> {
    inner: &'a Inner,
    changing: Option<u64>,
    _folder: Box<dyn Send>,
    _process: MutexGuard<'a, ()>,
}

impl Inner {
    /// Waits for the right to write, brings the index up to date, and removes what dead writers
    /// left.
    pub(crate) fn write(&self) -> Result<Writing<'_>> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let process = self.writing.lock();
        let folder = self.lock_folder()?;
        self.refresh_if_changed()?;
        let mut writing = Writing {
            inner: self,
            changing: None,
            _folder: folder,
            _process: process,
        };
        writing.remove_garbage()?;
        Ok(writing)
    }

    fn lock_folder(&self) -> Result<Box<dyn Send>> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(guard) = self.vfs.try_lock().map_err(Error::io("lock", "lock"))? {
                return Ok(guard);
            }
            let waited = start.elapsed();
            if waited >= self.options.lock_timeout {
                return Err(Error::Busy { waited });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Writing<'_> {
    /// Tells other processes that the folder is about to change. Called before every change.
    pub(crate) fn begin_change(&mut self) -> Result<()> {
        if self.changing.is_none() {
            let vfs = &self.inner.vfs;
            let odd = vfs.changes().map_err(Error::io("read", "lock"))? | 1;
            vfs.set_changes(odd).map_err(Error::io("write", "lock"))?;
            self.changing = Some(odd);
        }
        Ok(())
    }

    /// Says that the index may differ from the folder, after a change that failed half way.
    pub(crate) fn unsettle(&self) {
        self.inner.seen.store(UNSETTLED, Release);
    }

    /// Packs without manifest and manifests half written: nobody can be writing them now.
    fn remove_garbage(&mut self) -> Result<()> {
        let is_garbage = |name: &&String| {
            matches!(
                parse_name(name),
                Some((_, FileKind::Pack | FileKind::Temporary))
            )
        };
        let garbage: Vec<String> = self
            .inner
            .index
            .read()
            .foreign
            .keys()
            .filter(is_garbage)
            .cloned()
            .collect();
        let vfs = &*self.inner.vfs;
        for name in garbage {
            let Some((id, kind)) = parse_name(&name) else {
                continue;
            };
            let commit = file_name(&id, FileKind::Commit);
            // The index says so already, but what is lost by a mistake here is lost for ever.
            if kind == FileKind::Pack
                && stat(vfs, &commit)
                    .map_err(Error::io("stat", &commit))?
                    .is_some()
            {
                continue;
            }
            self.begin_change()?;
            match vfs.remove(&name) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &name)(e));
                }
                _ => {}
            }
            tracing::debug!(file = name, "removed what a dead writer left");
            self.inner.index.write().foreign.remove(&name);
            add(&self.inner.counters.garbage_files, 1);
        }
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let Some(odd) = self.changing else { return };
        let even = odd.wrapping_add(1);
        // If this fails the counter stays odd, and everybody lists again until a writer succeeds.
        let done = self.inner.vfs.set_changes(even).is_ok();
        let seen = &self.inner.seen;
        let settled = done && seen.load(std::sync::atomic::Ordering::Acquire) != UNSETTLED;
        seen.store(if settled { even } else { UNSETTLED }, Release);
    }
}
