//! What an operator asks of a store: list, verify, collect, wipe.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::batch::{Address, Namespace};
use crate::fetch::{Source, Span, fetch};
use crate::format::{ExtentLayout, SnapshotTable};
use crate::index::{Commit, Location};
use crate::refresh::{FileKind, file_name};
use crate::store::{RecordInfo, Store, TensorInfo};
use crate::{Error, Key, Kind, Miss, Result, SnapshotInfo};

/// How far long work has come, in bytes; it goes on while the callback returns `true`.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> bool;

/// One line of a listing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listed {
    /// The record.
    pub record: RecordInfo,
    /// The snapshot, if it is the record of one.
    pub snapshot: Option<SnapshotInfo>,
    /// How many snapshots refer to it, if it is a content block.
    pub references: u32,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Records whose every byte has its hash.
    pub sound: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Records that are damaged, by namespace and key, with the reason.
    pub damaged: Vec<(String, Key, Miss)>,
    /// Files that this program can't read.
    pub foreign: Vec<String>,
    /// Whether the callback stopped it.
    pub stopped: bool,
}

impl VerifyReport {
    /// Whether everything in the folder was read and found sound.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.foreign.is_empty() && !self.stopped
    }
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectReport {
    /// Records taken out of manifests: damaged, replaced, or without a snapshot.
    pub records: usize,
    /// Bytes that the folder held before.
    pub before: u64,
    /// Bytes that it holds now.
    pub after: u64,
}

impl Store {
    /// All records, ordered by namespace and kind and then by age.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        // A listing that can't be refreshed shows what was known.
        let _ = self.inner.refresh_if_changed();
        let index = self.inner.index.read();
        // A manifest's records share its layouts; so must their descriptions, or a list would be
        // much larger than the files.
        let mut described: HashMap<*const ExtentLayout, Arc<[TensorInfo]>> = HashMap::new();
        let mut all: Vec<(u64, u32, Listed)> = index
            .records()
            .map(|(address, location)| {
                let table = (location.entry().kind == Kind::Snapshot)
                    .then(|| SnapshotTable::decode(&location.entry().metadata).ok())
                    .flatten();
                let layout = location.commit.manifest.layout(location.entry());
                let tensors = described
                    .entry(Arc::as_ptr(layout))
                    .or_insert_with(|| TensorInfo::of(layout));
                let listed = Listed {
                    record: RecordInfo::with_tensors(location, tensors.clone()),
                    snapshot: table.map(|t| t.info()),
                    references: index.references(address),
                };
                (location.commit.manifest.sequence, location.entry, listed)
            })
            .collect();
        all.sort_by(|a, b| {
            let key = |(sequence, entry, l): &(u64, u32, Listed)| {
                (
                    l.record.namespace.clone(),
                    l.record.kind.code(),
                    *sequence,
                    *entry,
                )
            };
            key(a).cmp(&key(b))
        });
        all.into_iter().map(|(_, _, listed)| listed).collect()
    }

    /// The namespaces that have records, by name.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let index = self.inner.index.read();
        let all: HashSet<&Namespace> = index.commits.values().map(|c| &c.namespace).collect();
        let mut all: Vec<Namespace> = all.into_iter().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Reads every record and checks every byte of it. Damaged records are dropped, as when a
    /// read finds them.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can't be listed.
    pub fn verify(&self, progress: Progress<'_>) -> Result<VerifyReport> {
        let inner = &*self.inner;
        inner.refresh()?;
        let (mut commits, foreign): (Vec<Arc<Commit>>, _) = {
            let index = inner.index.read();
            (
                index.commits.values().cloned().collect(),
                index.foreign.keys().cloned().collect(),
            )
        };
        commits.sort_by_key(|c| c.manifest.sequence);
        let total = commits.iter().map(|c| extent_bytes(c)).sum();
        let mut report = VerifyReport {
            foreign,
            ..VerifyReport::default()
        };
        for commit in commits {
            for (i, entry) in commit.manifest.records.iter().enumerate() {
                if inner
                    .index
                    .read()
                    .is_condemned(&commit.manifest.id, &entry.key)
                {
                    report.damaged.push((
                        commit.namespace.name().to_owned(),
                        entry.key,
                        Miss::Torn,
                    ));
                    continue;
                }
                let location = Location {
                    commit: commit.clone(),
                    entry: i as u32,
                };
                match inner.check(&location)? {
                    None => report.sound += 1,
                    Some(Miss::Removed) => {}
                    Some(reason) => {
                        let name = commit.namespace.name().to_owned();
                        report.damaged.push((name, entry.key, reason));
                    }
                }
                report.bytes += entry.len;
                if !progress(report.bytes, total) {
                    report.stopped = true;
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    /// Removes records.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Busy`], [`Error::Io`]. Keys that are not there are no error.
    pub fn remove(&self, namespace: &Namespace, keys: &[Key]) -> Result<usize> {
        let mut writing = self.inner.write()?;
        let addresses: Vec<Address> = keys.iter().map(|key| namespace.address(*key)).collect();
        self.inner.remove_records(&mut writing, &addresses)
    }

    /// Frees what nobody can find: damaged and replaced records, content blocks without a
    /// snapshot, and the bytes of removed records that somebody was reading at the time.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Busy`], [`Error::Io`].
    pub fn collect(&self) -> Result<CollectReport> {
        let inner = &*self.inner;
        let before = inner.index.read().used();
        let mut writing = inner.write()?;
        inner.drop_condemned(&mut writing)?;
        let dead = inner.index.read().dead_records();
        let records = dead.values().map(HashSet::len).sum();
        inner.rewrite(&mut writing, &dead)?;
        let packs: Vec<Arc<Commit>> = inner.index.read().commits.values().cloned().collect();
        for commit in packs.iter().filter(|c| c.pack_bytes() > extent_bytes(c)) {
            writing.begin_change()?;
            inner.shrink_pack(commit)?;
        }
        drop(writing);
        let after = inner.index.read().used();
        Ok(CollectReport {
            records,
            before,
            after,
        })
    }

    /// Removes everything in a namespace. Returns how many records that was.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Busy`], [`Error::Io`].
    pub fn wipe(&self, namespace: &Namespace) -> Result<usize> {
        self.wipe_where(|commit| commit.namespace == *namespace)
    }

    /// Removes every record of every namespace; foreign files stay.
    ///
    /// # Errors
    /// As [`Store::wipe`].
    pub fn wipe_all(&self) -> Result<usize> {
        self.wipe_where(|_| true)
    }

    fn wipe_where(&self, which: impl Fn(&Commit) -> bool) -> Result<usize> {
        let inner = &*self.inner;
        let mut writing = inner.write()?;
        let doomed = {
            let index = inner.index.read();
            let chosen = index.commits.values().filter(|c| which(c));
            chosen
                .map(|c| {
                    let keys: HashSet<Key> = c.manifest.records.iter().map(|e| e.key).collect();
                    (c.manifest.id, keys)
                })
                .collect::<std::collections::BTreeMap<_, _>>()
        };
        inner.rewrite(&mut writing, &doomed)?;
        Ok(doomed.values().map(HashSet::len).sum())
    }

    /// Removes the files in the store's own folder that this program can't read: manifests of a
    /// newer version or damaged ones, with their packs, and whatever else lies there. Returns
    /// their bytes. Files beside that folder stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Busy`], [`Error::Io`].
    pub fn remove_foreign(&self) -> Result<u64> {
        let inner = &*self.inner;
        let mut writing = inner.write()?;
        let foreign = inner.index.read().foreign.clone();
        let mut bytes = 0;
        for (name, file) in foreign {
            writing.begin_change()?;
            let pack = match crate::refresh::parse_name(&name) {
                Some((id, FileKind::Commit)) => Some(file_name(&id, FileKind::Pack)),
                _ => None,
            };
            for name in [Some(name.clone()), pack].into_iter().flatten() {
                match inner.vfs.remove(&name) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        writing.unsettle();
                        return Err(Error::io("remove", name)(e));
                    }
                    _ => {}
                }
            }
            bytes += file.bytes;
            inner.index.write().foreign.remove(&name);
        }
        inner.vfs.sync_folder().map_err(Error::io("sync", "v1"))?;
        Ok(bytes)
    }
}

fn extent_bytes(commit: &Commit) -> u64 {
    commit.manifest.records.iter().map(|e| e.len).sum()
}

impl crate::store::Inner {
    /// Reads a record and throws its bytes away; nothing if it is sound.
    pub(crate) fn check(&self, location: &Location) -> Result<Option<Miss>> {
        let entry = location.entry();
        let address = location.commit.namespace.address(entry.key);
        let outcome = match self.open_all(std::slice::from_ref(location)) {
            Err((_, reason)) => Err(reason),
            Ok(sources) => self.read_discarding(&sources)?,
        };
        Ok(outcome.err().map(|reason| {
            // A copy that a later commit replaced is damaged too, though nobody would find it.
            self.diagnose(&address, location, reason).unwrap_or(reason)
        }))
    }

    fn read_discarding(&self, sources: &[Source]) -> Result<Result<(), Miss>> {
        const CHUNK: u64 = 64 << 20;
        let len = sources[0].location.entry().len;
        let mut buffer = vec![0; len.min(CHUNK) as usize];
        let mut at = 0;
        while at < len {
            let n = (len - at).min(CHUNK) as usize;
            let span = Span {
                buffer: 0,
                offset: 0,
                len: n,
                record: 0,
                at: at as usize,
            };
            let threads = self.options.piece_threads();
            let done = fetch(sources, vec![span], &mut [&mut buffer[..n]], threads)?;
            if let Err((_, reason)) = done {
                return Ok(Err(reason));
            }
            at += n as u64;
        }
        Ok(Ok(()))
    }
}
