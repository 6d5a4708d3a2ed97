use std::ops::Deref;
use std::sync::Arc;

use crate::batch::{Address, Namespace};
use crate::store::{Inner, Store};
use crate::{Key, Kind};

/// Records that this process does not evict while the value lives. See [`Store::pin`].
#[derive(Debug)]
pub struct Pinned {
    count: usize,
    _pins: Pins<Arc<Inner>>,
}

impl Pinned {
    /// How many of the keys were found, from the first on, and are pinned.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether not even the first was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Store {
    /// Finds the longest present prefix of a chain of keys, as [`Store::longest_prefix`] does,
    /// and keeps it from eviction by this process until the result is dropped, so that what was
    /// found can be read. Removing and wiping take it all the same, and another process may
    /// evict it: then reading it is a miss.
    #[must_use]
    pub fn pin(&self, namespace: &Namespace, keys: &[Key]) -> Pinned {
        let found = self.longest_prefix(namespace, keys);
        let addresses: Vec<Address> = keys[..found]
            .iter()
            .map(|key| namespace.address(*key))
            .collect();
        let pins = Pins::new(self.inner.clone(), &addresses);
        // One may have been evicted in between: only what is pinned counts.
        let count = pins.first_absent.unwrap_or(found);
        Pinned { count, _pins: pins }
    }
}

/// Keeps records and content blocks from being evicted for as long as it lives.
#[derive(Debug)]
pub(crate) struct Pins<I: Deref<Target = Inner>> {
    inner: I,
    records: Vec<Address>,
    blocks: Vec<Address>,
    /// The place of the first that was not there.
    first_absent: Option<usize>,
}

impl<I: Deref<Target = Inner>> Pins<I> {
    pub(crate) fn new(inner: I, addresses: &[Address]) -> Self {
        let (mut records, mut blocks, mut first_absent) = (Vec::new(), Vec::new(), None);
        let mut index = inner.index.write();
        for (place, address) in addresses.iter().enumerate() {
            let kind = index.get(address).map(|l| l.entry().kind);
            if kind == Some(Kind::Content) {
                index.hold(*address);
                blocks.push(*address);
            } else if index.residents.get_mut().pin(address) {
                records.push(*address);
            } else {
                first_absent = first_absent.or(Some(place));
            }
        }
        drop(index);
        Self {
            inner,
            records,
            blocks,
            first_absent,
        }
    }
}

impl<I: Deref<Target = Inner>> Drop for Pins<I> {
    fn drop(&mut self) {
        let mut index = self.inner.index.write();
        for address in &self.records {
            index.residents.get_mut().unpin(address);
        }
        for address in &self.blocks {
            index.release(address);
        }
    }
}
