use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::{Info, Vfs, VfsFile};

/// A store's folder in memory: for tests, and for programs that want the same cache without a
/// disk. Clones share their files, as processes share a folder.
#[derive(Clone, Debug, Default)]
pub struct MemoryVfs(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<Node>>>,
    next_identity: AtomicU64,
    changes: AtomicU64,
    locked: AtomicBool,
}

#[derive(Debug)]
struct Node {
    identity: u64,
    body: RwLock<Body>,
    locks: Mutex<Locks>,
}

#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    /// Ranges given back, by their start; they do not overlap.
    holes: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Locks {
    shared: usize,
    exclusive: bool,
}

impl MemoryVfs {
    /// An empty folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of every file, for tests that look at or alter them.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let files = self.0.files.lock();
        files
            .iter()
            .map(|(name, node)| (name.clone(), node.body.read().bytes.clone()))
            .collect()
    }

    /// A folder with these files.
    #[must_use]
    pub fn with_contents(contents: BTreeMap<String, Vec<u8>>) -> Self {
        let vfs = Self::new();
        for (name, bytes) in contents {
            let node = vfs.node(Body {
                bytes,
                ..Body::default()
            });
            vfs.0.files.lock().insert(name, node);
        }
        vfs
    }

    fn node(&self, body: Body) -> Arc<Node> {
        let identity = self.0.next_identity.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node {
            identity,
            body: RwLock::new(body),
            locks: Mutex::default(),
        })
    }
}

impl Node {
    fn info(&self) -> Info {
        let body = self.body.read();
        let len = body.bytes.len() as u64;
        Info {
            len,
            allocated: len.saturating_sub(body.holes.values().sum()),
            identity: u128::from(self.identity),
            regular: true,
        }
    }
}

struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Vfs for MemoryVfs {
    fn create(&self, name: &str) -> io::Result<Box<dyn VfsFile>> {
        let node = self.node(Body::default());
        let mut files = self.0.files.lock();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(name.to_owned(), node.clone());
        Ok(Box::new(MemoryFile {
            node,
            held: Mutex::default(),
        }))
    }

    fn open(&self, name: &str, _write: bool) -> io::Result<Box<dyn VfsFile>> {
        let node = self
            .0
            .files
            .lock()
            .get(name)
            .cloned()
            .ok_or_else(not_found)?;
        Ok(Box::new(MemoryFile {
            node,
            held: Mutex::default(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.files.lock();
        let node = files.remove(from).ok_or_else(not_found)?;
        files.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0
            .files
            .lock()
            .remove(name)
            .map(drop)
            .ok_or_else(not_found)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.files.lock().keys().cloned().collect())
    }

    fn info(&self, name: &str) -> io::Result<Info> {
        Ok(self.0.files.lock().get(name).ok_or_else(not_found)?.info())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn outside_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn available(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn try_lock(&self) -> io::Result<Option<Box<dyn Send>>> {
        let taken = !self.0.locked.swap(true, Ordering::Acquire);
        Ok(taken.then(|| Box::new(Guard(self.0.clone())) as Box<dyn Send>))
    }

    fn changes(&self) -> io::Result<u64> {
        Ok(self.0.changes.load(Ordering::Acquire))
    }

    fn set_changes(&self, value: u64) -> io::Result<()> {
        self.0.changes.store(value, Ordering::Release);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    node: Arc<Node>,
    /// The lock that this handle holds: exclusive or shared.
    held: Mutex<Option<bool>>,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut locks = self.node.locks.lock();
        match *self.held.lock() {
            Some(true) => locks.exclusive = false,
            Some(false) => locks.shared -= 1,
            None => {}
        }
    }
}

impl VfsFile for MemoryFile {
    fn read_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let body = self.node.body.read();
        let mut rest = body.bytes.get(offset as usize..).unwrap_or_default();
        let before = rest.len();
        for slice in into {
            let n = slice.len().min(rest.len());
            slice[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(before - rest.len())
    }

    fn write_at(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut body = self.node.body.write();
        let total: usize = from.iter().map(|s| s.len()).sum();
        let mut at = offset as usize;
        if body.bytes.len() < at + total {
            body.bytes.resize(at + total, 0);
        }
        for slice in from {
            body.bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Ok(total)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.node.body.write().bytes.reserve_exact(len as usize);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut body = self.node.body.write();
        let end = (offset + len).min(body.bytes.len() as u64);
        if offset < end {
            body.bytes[offset as usize..end as usize].fill(0);
            body.holes.insert(offset, end - offset);
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut body = self.node.body.write();
        body.bytes.truncate(len as usize);
        body.holes.retain(|&start, _| start < len);
        Ok(())
    }

    fn sync_data(&self, _flush: bool) -> io::Result<()> {
        Ok(())
    }

    fn info(&self) -> io::Result<Info> {
        Ok(self.node.info())
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        let mut locks = self.node.locks.lock();
        let mut held = self.held.lock();
        let free = !locks.exclusive && (!exclusive || locks.shared == 0);
        if held.is_some() || !free {
            return Ok(held.is_some_and(|h| h || !exclusive));
        }
        *held = Some(exclusive);
        if exclusive {
            locks.exclusive = true;
        } else {
            locks.shared += 1;
        }
        Ok(true)
    }
}
