//! A file system in memory that shows every call to a hook first, which may make it fail.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use prefill_kv_store::vfs::{Info, MemoryVfs, Vfs, VfsFile};

/// A call that may fail. Files go by the number in which they were created or opened.
#[derive(Clone, Debug)]
pub enum Op {
    Create(String),
    Open(String),
    Rename(String, String),
    Remove(String),
    List,
    Stat,
    SyncFolder,
    Lock,
    Counter,
    Read,
    Write(String, u64, Vec<u8>),
    Preallocate,
    Punch(String, u64, u64),
    Truncate(String, u64),
    SyncFile(String),
    LockFile,
}

pub type Hook = Arc<dyn Fn(Op) -> io::Result<()> + Send + Sync>;

pub struct Hooked {
    pub inner: MemoryVfs,
    pub hook: Hook,
    /// Writes take at most so many bytes at once.
    pub longest_write: usize,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Hooked {
    fn file(&self, name: &str, file: Box<dyn VfsFile>) -> Box<dyn VfsFile> {
        let (name, hook) = (name.to_owned(), self.hook.clone());
        Box::new(HookedFile {
            file,
            name,
            hook,
            longest_write: self.longest_write,
        })
    }
}

impl Vfs for Hooked {
    fn create(&self, name: &str) -> io::Result<Box<dyn VfsFile>> {
        (self.hook)(Op::Create(name.into()))?;
        Ok(self.file(name, self.inner.create(name)?))
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn VfsFile>> {
        (self.hook)(Op::Open(name.into()))?;
        Ok(self.file(name, self.inner.open(name, write)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.hook)(Op::Rename(from.into(), to.into()))?;
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        (self.hook)(Op::Remove(name.into()))?;
        self.inner.remove(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        (self.hook)(Op::List)?;
        self.inner.list()
    }
    fn info(&self, name: &str) -> io::Result<Info> {
        (self.hook)(Op::Stat)?;
        self.inner.info(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        (self.hook)(Op::SyncFolder)
    }
    fn outside_bytes(&self) -> io::Result<u64> {
        (self.hook)(Op::Stat)?;
        Ok(0)
    }
    fn available(&self) -> io::Result<u64> {
        (self.hook)(Op::Stat)?;
        self.inner.available()
    }
    fn try_lock(&self) -> io::Result<Option<Box<dyn Send>>> {
        (self.hook)(Op::Lock)?;
        self.inner.try_lock()
    }
    fn changes(&self) -> io::Result<u64> {
        (self.hook)(Op::Counter)?;
        self.inner.changes()
    }
    fn set_changes(&self, value: u64) -> io::Result<()> {
        (self.hook)(Op::Counter)?;
        self.inner.set_changes(value)
    }
}

struct HookedFile {
    file: Box<dyn VfsFile>,
    name: String,
    hook: Hook,
    longest_write: usize,
}

impl std::fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HookedFile({})", self.name)
    }
}

impl VfsFile for HookedFile {
    fn read_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        (self.hook)(Op::Read)?;
        self.file.read_at(into, offset)
    }
    fn write_at(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes: Vec<u8> = from.iter().flat_map(|s| s.iter().copied()).collect();
        bytes.truncate(self.longest_write);
        (self.hook)(Op::Write(self.name.clone(), offset, bytes.clone()))?;
        self.file.write_at(&[IoSlice::new(&bytes)], offset)
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        (self.hook)(Op::Preallocate)?;
        self.file.preallocate(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        (self.hook)(Op::Punch(self.name.clone(), offset, len))?;
        self.file.punch(offset, len)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        (self.hook)(Op::Truncate(self.name.clone(), len))?;
        self.file.truncate(len)
    }
    fn sync_data(&self, _flush: bool) -> io::Result<()> {
        (self.hook)(Op::SyncFile(self.name.clone()))
    }
    fn info(&self) -> io::Result<Info> {
        (self.hook)(Op::Stat)?;
        self.file.info()
    }
    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        (self.hook)(Op::LockFile)?;
        self.file.try_lock(exclusive)
    }
}

/// A file as a disk may hold it: what was synced, and what was written since.
#[derive(Clone, Debug, Default)]
struct DiskFile {
    synced: Vec<u8>,
    now: Vec<u8>,
}

/// What a power cut may leave of a sequence of calls.
///
/// Of what was not synced, any part may survive: `keep` decides, for each 4 KiB page of each
/// file and for each name in the folder.
pub fn after_power_cut(log: &[Op], keep: &mut dyn FnMut() -> bool) -> BTreeMap<String, Vec<u8>> {
    const PAGE: usize = 4096;
    let mut files: Vec<DiskFile> = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    // What each name meant since the folder was synced; nothing if it did not exist.
    let mut history: BTreeMap<String, Vec<Option<usize>>> = BTreeMap::new();
    for op in log {
        let mut set = |name: &str, value: Option<usize>, names: &mut BTreeMap<String, usize>| {
            let old = names.get(name).copied();
            history
                .entry(name.to_owned())
                .or_insert_with(|| vec![old])
                .push(value);
            match value {
                Some(file) => names.insert(name.to_owned(), file),
                None => names.remove(name),
            };
        };
        match op {
            Op::Create(name) => {
                files.push(DiskFile::default());
                set(name, Some(files.len() - 1), &mut names);
            }
            Op::Rename(from, to) => {
                let file = names.get(from).copied();
                set(from, None, &mut names);
                set(to, file, &mut names);
            }
            Op::Remove(name) => set(name, None, &mut names),
            Op::SyncFolder => history.clear(),
            Op::Write(name, offset, bytes) => {
                // A file that was opened and renamed meanwhile does not occur.
                let now = &mut files[names[name]].now;
                let end = *offset as usize + bytes.len();
                now.resize(now.len().max(end), 0);
                now[*offset as usize..end].copy_from_slice(bytes);
            }
            Op::Punch(name, offset, len) => {
                let now = &mut files[names[name]].now;
                let end = (*offset + *len).min(now.len() as u64) as usize;
                now[*offset as usize..end].fill(0);
            }
            Op::Truncate(name, len) => files[names[name]].now.truncate(*len as usize),
            Op::SyncFile(name) => {
                let file = &mut files[names[name]];
                file.synced = file.now.clone();
            }
            _ => {}
        }
    }
    for (name, meanings) in history {
        let mut meaning = meanings[0];
        for later in &meanings[1..] {
            if keep() {
                meaning = *later;
            }
        }
        match meaning {
            Some(file) => names.insert(name, file),
            None => names.remove(&name),
        };
    }
    let mut contents = BTreeMap::new();
    for (name, file) in names {
        let DiskFile { synced, now } = &files[file];
        let len = if keep() { now.len() } else { synced.len() };
        let mut bytes = vec![0; len];
        for start in (0..len).step_by(PAGE) {
            let end = (start + PAGE).min(len);
            let from = if keep() { now } else { synced };
            let upto = end.min(from.len());
            if start < upto {
                bytes[start..upto].copy_from_slice(&from[start..upto]);
            }
        }
        contents.insert(name, bytes);
    }
    contents
}
