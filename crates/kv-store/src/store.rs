use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use crate::batch::Address;
use crate::format::ExtentLayout;
use crate::index::{Index, Location};
use crate::options::Options;
use crate::refresh::UNSETTLED;
use crate::stats::{Counters, Stats};
use crate::vfs::{DiskVfs, MemoryVfs, Vfs};
use crate::{Error, Key, Miss, Namespace, Result};

/// A durable store of tensors under keys. Clones share it; all methods may be called from any
/// thread, and other processes may use the same folder.
///
/// ```
/// use prefill_kv_store::{Batch, DType, Key, Kind, Namespace, Options, Record, Store, View};
///
/// let folder = tempfile::tempdir()?;
/// let store = Store::open(folder.path(), Options { free_floor: 0, ..Default::default() })?;
/// let (space, key) = (Namespace::new("demo")?, Key::new([1; 32]));
///
/// let rows: Vec<u8> = (0..24).collect();
/// let view = View::contiguous(&rows, DType::U8, &[2, 3, 4])?;
/// let mut batch = Batch::new();
/// batch.push(Record::new(key, Kind::Rows).tensor("k", view).cost(3.0));
/// store.put(&space, &batch)?;
///
/// let record = store.read(&space, &key)?;
/// assert_eq!(record.tensor(0)?.to_vec(), rows);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) options: Options,
    pub(crate) read_only: bool,
    pub(crate) index: RwLock<Index>,
    /// The change counter whose state the index shows, or [`UNSETTLED`].
    pub(crate) seen: AtomicU64,
    pub(crate) refreshing: Mutex<()>,
    /// Held by the one writer of this process; the guard of the folder's lock is taken within.
    pub(crate) writing: Mutex<()>,
    pub(crate) counters: Counters,
}

/// What is known of a record without reading its tensors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its key.
    pub key: Key,
    /// What it is.
    pub kind: crate::Kind,
    /// The record that it builds upon.
    pub parent: Option<Key>,
    /// What losing it would cost.
    pub cost: f64,
    /// The bytes of its extent in the pack, padding included.
    pub bytes: u64,
    /// Its tensors. Records that are listed share this if they look alike.
    pub tensors: Arc<[TensorInfo]>,
    /// The metadata given with it.
    pub metadata: Vec<u8>,
    /// When its batch was committed, in seconds since 1970-01-01 UTC.
    pub created: u64,
}

/// Name, dtype and shape of a stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name, which may be empty.
    pub name: String,
    /// Its element type.
    pub dtype: crate::DType,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl Store {
    /// Opens the store in a folder, which is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can't be made, listed or locked. Damaged and foreign files are
    /// no error: they are counted, and kept.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = folder.as_ref();
        let vfs = DiskVfs::create(folder).map_err(Error::io("open", folder))?;
        Self::with_vfs(Arc::new(vfs), options, false)
    }

    /// Opens an existing store for reading only: nothing in the folder is changed, and nothing
    /// is kept from other processes' writers.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no store or it can't be listed.
    pub fn open_read_only(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = folder.as_ref();
        let vfs = DiskVfs::open(folder).map_err(Error::io("open", folder))?;
        Self::with_vfs(Arc::new(vfs), options, true)
    }

    /// An empty store in memory, with the same behaviour, that is gone with its last clone.
    ///
    /// # Errors
    /// As [`Store::open`]; in practice none.
    pub fn in_memory(options: Options) -> Result<Self> {
        Self::with_vfs(Arc::new(MemoryVfs::new()), options, false)
    }

    /// A store over a file system of the caller.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can't be listed.
    pub fn with_vfs(vfs: Arc<dyn Vfs>, options: Options, read_only: bool) -> Result<Self> {
        let inner = Inner {
            vfs,
            options,
            read_only,
            index: RwLock::default(),
            seen: AtomicU64::new(UNSETTLED),
            refreshing: Mutex::new(()),
            writing: Mutex::new(()),
            counters: Counters::default(),
        };
        let store = Self {
            inner: Arc::new(inner),
        };
        store.inner.refresh()?;
        Ok(store)
    }

    /// Whether a record can be found. Its bytes are not looked at.
    #[must_use]
    pub fn contains(&self, namespace: &Namespace, key: &Key) -> bool {
        self.longest_prefix(namespace, std::slice::from_ref(key)) == 1
    }

    /// How many of these keys, from the first on, can be found: the longest present prefix of a
    /// chain of blocks. What other processes have written is taken into account.
    #[must_use]
    pub fn longest_prefix(&self, namespace: &Namespace, keys: &[Key]) -> usize {
        let count = || {
            let index = self.inner.index.read();
            keys.iter()
                .take_while(|key| index.get(&namespace.address(**key)).is_some())
                .count()
        };
        let present = count();
        if present < keys.len() && self.inner.refresh_if_changed().unwrap_or(false) {
            return count();
        }
        present
    }

    /// What is known of a record without reading its tensors.
    ///
    /// # Errors
    /// [`Error::Miss`] if it can't be found.
    pub fn info(&self, namespace: &Namespace, key: &Key) -> Result<RecordInfo> {
        self.inner
            .locate(namespace.address(*key))
            .map(|location| RecordInfo::of(&location))
    }

    /// Counters since the store was opened, and its present size.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let index = self.inner.index.read();
        Stats {
            records: index.record_count() as u64,
            commits: index.commits.len() as u64,
            used_bytes: index.used(),
            foreign_bytes: index.foreign_bytes(),
            foreign_files: index.foreign.len() as u64,
            quarantined: index.condemned_count() as u64,
            ..self.inner.counters.snapshot()
        }
    }
}

impl Inner {
    /// The place of a record, after a look at what other processes did if it is not known.
    pub(crate) fn locate(&self, address: Address) -> Result<Location> {
        let find = || self.index.read().get(&address).cloned();
        let mut found = find();
        if found.is_none() && self.refresh_if_changed().unwrap_or(false) {
            found = find();
        }
        found.ok_or_else(|| {
            self.index.read().residents.lock().access(&address);
            self.miss(address.key, Miss::Absent)
        })
    }

    /// Counts a miss.
    pub(crate) fn miss(&self, key: Key, reason: Miss) -> Error {
        self.counters.miss(reason);
        Error::Miss { key, reason }
    }
}

impl RecordInfo {
    pub(crate) fn of(location: &Location) -> Self {
        let layout = location.commit.manifest.layout(location.entry());
        Self::with_tensors(location, TensorInfo::of(layout))
    }

    /// Of a record whose tensors are described already.
    pub(crate) fn with_tensors(location: &Location, tensors: Arc<[TensorInfo]>) -> Self {
        let (commit, entry) = (&location.commit, location.entry());
        Self {
            namespace: commit.namespace.name().to_owned(),
            key: entry.key,
            kind: entry.kind,
            parent: entry.parent,
            cost: entry.cost,
            bytes: entry.len,
            tensors,
            metadata: entry.metadata.to_vec(),
            created: commit.manifest.created,
        }
    }
}

impl TensorInfo {
    pub(crate) fn of(layout: &ExtentLayout) -> Arc<[Self]> {
        let tensors = layout.tensors.iter();
        tensors
            .map(|t| Self {
                name: t.name.clone(),
                dtype: t.dtype,
                shape: t.shape.clone(),
            })
            .collect()
    }
}
