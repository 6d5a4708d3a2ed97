//! Keeping the index in step with the folder, which other processes change too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use crate::batch::Namespace;
use crate::format::{MAX_MANIFEST, Manifest, SnapshotTable};
use crate::index::{Commit, Foreign};
use crate::key::{Kind, parse_hex, write_hex};
use crate::store::Inner;
use crate::vfs::{Info, Vfs, read_file};
use crate::{Error, Result};

/// A value that the change counter does not have: the index may be behind the folder.
pub(crate) const UNSETTLED: u64 = u64::MAX;

/// The files of one commit, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Commit,
    Pack,
    Temporary,
}

pub(crate) fn file_name(id: &[u8; 16], kind: FileKind) -> String {
    let mut name = String::with_capacity(44);
    // Writing to a String does not fail.
    let _ = write_hex(id, &mut name);
    name.push_str(match kind {
        FileKind::Commit => ".commit",
        FileKind::Pack => ".pack",
        FileKind::Temporary => ".commit.tmp",
    });
    name
}

pub(crate) fn parse_name(name: &str) -> Option<([u8; 16], FileKind)> {
    let mut id = [0; 16];
    let (stem, suffix) = name.split_at_checked(32)?;
    let kind = match suffix {
        ".commit" => FileKind::Commit,
        ".pack" => FileKind::Pack,
        ".commit.tmp" => FileKind::Temporary,
        _ => return None,
    };
    parse_hex(stem, &mut id).then_some((id, kind))
}

impl Inner {
    /// Brings the index up to date if the change counter moved; whether it did.
    pub(crate) fn refresh_if_changed(&self) -> Result<bool> {
        let now = self.vfs.changes().map_err(Error::io("read", "lock"))?;
        if now == self.seen.load(Acquire) {
            return Ok(false);
        }
        self.refresh()
    }

    /// Reads what is new in the folder, and forgets what is gone.
    ///
    /// Without the lock, a commit may appear while the folder is listed: the counter then
    /// differs at the end, or is odd, and the next look-up lists again.
    /// A commit of this process may be made meanwhile too: then it is done again, so that no
    /// old listing takes the place of what the writer knows. Whether it could be done.
    pub(crate) fn refresh(&self) -> Result<bool> {
        let _one_at_a_time = self.refreshing.lock();
        for _ in 0..20 {
            if self.try_refresh()? {
                return Ok(true);
            }
        }
        self.seen.store(UNSETTLED, Release);
        Ok(false)
    }

    fn try_refresh(&self) -> Result<bool> {
        let epoch = self.index.read().epoch;
        let before = self.vfs.changes().map_err(Error::io("read", "lock"))?;
        let names = self.vfs.list().map_err(Error::io("list", "v1"))?;
        let outside = self.vfs.outside_bytes().map_err(Error::io("list", "."))?;
        let listing = Listing::new(&*self.vfs, &names).map_err(Error::io("stat", "v1"))?;
        let (known, unread) = self.known();
        let changed: Vec<_> = listing
            .commits
            .iter()
            .filter(|(id, identity)| known.get(*id) != Some(identity))
            .filter(|(id, identity)| unread.get(*id).is_none_or(|f| f.identity != **identity))
            .map(|(id, _)| *id)
            .collect();
        let loaded = load_all(&*self.vfs, &changed, self.options.piece_threads());
        let mut index = self.index.write();
        if index.epoch != epoch {
            return Ok(false);
        }
        for id in known.keys().filter(|id| !listing.commits.contains_key(*id)) {
            index.remove(id);
        }
        index.outside = outside;
        index.foreign = listing.foreign;
        // What could not be read and is still the same need not be tried again.
        for (id, foreign) in unread {
            if listing.commits.get(&id) == Some(&foreign.identity) {
                index
                    .foreign
                    .insert(file_name(&id, FileKind::Commit), foreign);
            }
        }
        // In the order in which they were committed: that is their age for the policy.
        let mut loaded: Vec<_> = changed.iter().zip(loaded).collect();
        loaded.sort_by_key(|(_, result)| match result {
            Ok(Some(commit)) => (commit.manifest.sequence, commit.manifest.id),
            _ => (0, [0; 16]),
        });
        for (id, result) in loaded {
            match result {
                Ok(Some(commit)) => index.insert(Arc::new(commit)),
                Ok(None) => index.remove(id),
                Err(foreign) => {
                    index.remove(id);
                    index
                        .foreign
                        .insert(file_name(id, FileKind::Commit), foreign);
                }
            }
        }
        drop(index);
        let after = self.vfs.changes().map_err(Error::io("read", "lock"))?;
        let settled = before == after && before.is_multiple_of(2);
        self.seen
            .store(if settled { before } else { UNSETTLED }, Release);
        Ok(true)
    }

    /// The manifests that were read, by what identifies them, and those that could not be.
    fn known(&self) -> (HashMap<[u8; 16], u128>, HashMap<[u8; 16], Foreign>) {
        let index = self.index.read();
        let unread = index
            .foreign
            .iter()
            .filter_map(|(name, foreign)| match parse_name(name) {
                Some((id, FileKind::Commit)) => Some((id, *foreign)),
                _ => None,
            });
        (
            index
                .commits
                .iter()
                .map(|(id, c)| (*id, c.identity))
                .collect(),
            unread.collect(),
        )
    }
}

/// What the folder's names say.
struct Listing {
    /// Manifests, with what identifies their files.
    commits: HashMap<[u8; 16], u128>,
    foreign: BTreeMap<String, Foreign>,
}

impl Listing {
    fn new(vfs: &dyn Vfs, names: &[String]) -> io::Result<Self> {
        let mut listing = Self {
            commits: HashMap::new(),
            foreign: BTreeMap::new(),
        };
        let present: HashSet<&str> = names.iter().map(String::as_str).collect();
        for name in names {
            let parsed = parse_name(name);
            if let Some((id, FileKind::Pack)) = parsed
                && present.contains(file_name(&id, FileKind::Commit).as_str())
            {
                // Counted with its manifest.
                continue;
            }
            let Some(info) = stat(vfs, name)? else {
                continue;
            };
            if let Some((id, FileKind::Commit)) = parsed {
                listing.commits.insert(id, info.identity);
                continue;
            }
            // A pack or a temporary in flight, or left by a dead writer, or something else:
            // counted until it is gone.
            let foreign = Foreign {
                bytes: info.allocated,
                identity: info.identity,
            };
            listing.foreign.insert(name.clone(), foreign);
        }
        Ok(listing)
    }
}

/// What is known of a file; nothing if there is none. Any other failure is not to be taken for
/// its absence: records would be lost by that.
pub(crate) fn stat(vfs: &dyn Vfs, name: &str) -> io::Result<Option<Info>> {
    match vfs.info(name) {
        Ok(info) => Ok(Some(info)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

type Loaded = Result<Option<Commit>, Foreign>;

fn load_all(vfs: &dyn Vfs, ids: &[[u8; 16]], threads: usize) -> Vec<Loaded> {
    const CHUNK: usize = 64;
    if ids.len() <= CHUNK || threads == 1 {
        return ids.iter().map(|id| load(vfs, id)).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some(chunk) = ids.chunks(CHUNK).nth(next.fetch_add(1, Relaxed)) {
            done.push((
                chunk[0],
                chunk.iter().map(|id| load(vfs, id)).collect::<Vec<_>>(),
            ));
        }
        done
    };
    let mut by_first: HashMap<[u8; 16], Vec<Loaded>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        others
            .into_iter()
            .filter_map(|t| t.join().ok())
            .flatten()
            .chain(own)
            .collect()
    });
    ids.chunks(CHUNK)
        .flat_map(|chunk| {
            by_first
                .remove(&chunk[0])
                .unwrap_or_else(|| chunk.iter().map(|id| load(vfs, id)).collect())
        })
        .collect()
}

/// Reads a manifest: nothing if it vanished, a foreign file if it can't be understood.
fn load(vfs: &dyn Vfs, id: &[u8; 16]) -> Loaded {
    let name = file_name(id, FileKind::Commit);
    let pack = file_name(id, FileKind::Pack);
    let read = || -> Result<_, LoadError> {
        let file = vfs.open(&name, false)?;
        let info = file.info()?;
        let manifest = Manifest::decode(&read_file(&*file, MAX_MANIFEST)?)?;
        if manifest.id != *id {
            return Err(Error::Invalid {
                what: "a manifest under another's name",
            }
            .into());
        }
        // A table that is not understood may refer to any block, as a manifest may.
        for entry in manifest.records.iter().filter(|e| e.kind == Kind::Snapshot) {
            SnapshotTable::decode(&entry.metadata)?;
        }
        let pack = stat(vfs, &pack)?.unwrap_or_default();
        let namespace = Namespace::from_name(manifest.namespace.clone());
        Ok(Commit::new(
            manifest,
            namespace,
            info.identity,
            info.allocated,
            pack,
        ))
    };
    match read() {
        Ok(commit) => Ok(Some(commit)),
        Err(LoadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            tracing::warn!(file = name, %error, "a manifest can't be read; its pack is kept");
            let info = vfs.info(&name).unwrap_or_default();
            let pack = vfs.info(&pack).unwrap_or_default();
            // An error of the file system may pass: no identity means that it is tried again.
            let identity = if matches!(error, LoadError::Io(_)) {
                0
            } else {
                info.identity
            };
            Err(Foreign {
                bytes: info.allocated + pack.allocated,
                identity,
            })
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] Error),
}
