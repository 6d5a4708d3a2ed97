use std::collections::HashSet;
use std::sync::Arc;

use crate::format::{ExtentLayout, MAX_METADATA, MAX_NAME, MAX_RECORDS};
use crate::{Error, Key, Kind, Result, View};

/// A part of the store whose records are found only through it, and that can be wiped by itself:
/// one model, one tenant. The name is kept inside manifests and never becomes a path.
///
/// ```
/// let namespace = prefill_kv_store::Namespace::new("gemma-4 ../ for alice")?;
/// assert_eq!(namespace.name(), "gemma-4 ../ for alice");
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    name: Arc<str>,
    id: [u8; 16],
}

impl Namespace {
    /// A namespace of any name of at most 1024 bytes, the empty one included.
    ///
    /// # Errors
    /// [`Error::Limit`] if the name is longer.
    pub fn new(name: &str) -> Result<Self> {
        if name.len() > MAX_NAME {
            return Err(Error::limit(
                "namespace length",
                name.len(),
                MAX_NAME as u64,
            ));
        }
        Ok(Self::from_name(name.into()))
    }

    pub(crate) fn from_name(name: Arc<str>) -> Self {
        let hash = blake3::derive_key("prefill-kv-store 2026-11-29 namespace v1", name.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        Self { name, id }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    pub(crate) const fn address(&self, key: Key) -> Address {
        Address {
            namespace: self.id,
            key,
        }
    }
}

/// Where a record is found: its key inside its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) namespace: [u8; 16],
    pub(crate) key: Key,
}

/// One record to write: tensors under a key.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What it is found by.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// The record that this one is useless without. Eviction keeps a parent longer than its
    /// children; it need not be present.
    pub parent: Option<Key>,
    /// What losing it would cost, in any unit that is used throughout, such as the tokens to
    /// prefill again: finite and not negative.
    pub cost: f64,
    /// Its tensors by name; names need not differ.
    pub tensors: Vec<(&'a str, View<'a>)>,
    /// Anything of at most 16 MiB, given back as it is.
    pub metadata: &'a [u8],
}

impl<'a> Record<'a> {
    /// A record without parent, tensors or metadata.
    #[must_use]
    pub const fn new(key: Key, kind: Kind) -> Self {
        Self {
            key,
            kind,
            parent: None,
            cost: 0.0,
            tensors: Vec::new(),
            metadata: &[],
        }
    }

    /// Sets the parent.
    #[must_use]
    pub const fn parent(mut self, parent: Key) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sets the cost.
    #[must_use]
    pub const fn cost(mut self, cost: f64) -> Self {
        self.cost = cost;
        self
    }

    /// Adds a tensor.
    #[must_use]
    pub fn tensor(mut self, name: &'a str, view: View<'a>) -> Self {
        self.tensors.push((name, view));
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub const fn metadata(mut self, metadata: &'a [u8]) -> Self {
        self.metadata = metadata;
        self
    }

    pub(crate) fn layout(&self) -> Result<ExtentLayout> {
        ExtentLayout::place(self.tensors.iter().map(|(n, v)| (*n, v.dtype(), v.shape())))
    }

    fn check(&self) -> Result<()> {
        if !self.kind.is_callers() {
            return Err(Error::Invalid {
                what: "only the store makes records of this kind",
            });
        }
        if !(self.cost.is_finite() && self.cost >= 0.0) {
            return Err(Error::Invalid {
                what: "a cost must be finite and not negative",
            });
        }
        if self.metadata.len() > MAX_METADATA as usize {
            return Err(Error::limit(
                "metadata length",
                self.metadata.len(),
                MAX_METADATA.into(),
            ));
        }
        Ok(())
    }
}

/// Records that are committed together: after a crash all of them are there, or none.
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    pub(crate) records: Vec<Record<'a>>,
    pub(crate) removals: Vec<Key>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record. Parents go before their children, for the order of eviction.
    pub fn push(&mut self, record: Record<'a>) -> &mut Self {
        self.records.push(record);
        self
    }

    /// Removes a record once the batch is durable: a tail that a longer one supersedes.
    /// A key that is not there is no error.
    pub fn remove(&mut self, key: Key) -> &mut Self {
        self.removals.push(key);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.records.len() > MAX_RECORDS as usize {
            return Err(Error::limit(
                "record count",
                self.records.len(),
                MAX_RECORDS.into(),
            ));
        }
        let mut seen = HashSet::with_capacity(self.records.len());
        for record in &self.records {
            record.check()?;
            if !seen.insert(record.key) {
                return Err(Error::Duplicate { key: record.key });
            }
        }
        Ok(())
    }
}
