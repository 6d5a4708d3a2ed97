//! Which record to evict: the seam between the store and its policy.

use std::collections::{BTreeMap, HashMap};

use crate::batch::Address;

/// What may be evicted. A parent is never a victim while a child of it is here.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    entries: HashMap<Address, Resident>,
    /// Entries without children and pins, by their last use.
    candidates: BTreeMap<u64, Address>,
    /// Children here by parent, which need not be here.
    children: HashMap<Address, u32>,
    clock: u64,
}

#[derive(Debug)]
struct Resident {
    last_use: u64,
    parent: Option<Address>,
    pins: u32,
}

impl Residents {
    pub(crate) fn insert(
        &mut self,
        address: Address,
        _bytes: u64,
        _cost: f64,
        parent: Option<Address>,
    ) {
        self.remove(&address);
        if let Some(parent) = parent {
            *self.children.entry(parent).or_default() += 1;
            self.reconsider(&parent);
        }
        self.clock += 1;
        self.entries.insert(
            address,
            Resident {
                last_use: self.clock,
                parent,
                pins: 0,
            },
        );
        self.reconsider(&address);
    }

    pub(crate) fn remove(&mut self, address: &Address) {
        let Some(old) = self.entries.remove(address) else {
            return;
        };
        self.candidates.remove(&old.last_use);
        if let Some(parent) = old.parent
            && let Some(count) = self.children.get_mut(&parent)
        {
            *count -= 1;
            if *count == 0 {
                self.children.remove(&parent);
            }
            self.reconsider(&parent);
        }
    }

    pub(crate) fn access(&mut self, address: &Address) {
        if let Some(entry) = self.entries.get_mut(address) {
            self.clock += 1;
            self.candidates.remove(&entry.last_use);
            entry.last_use = self.clock;
            self.reconsider(address);
        }
    }

    /// Keeps an entry from being a victim; whether it is here.
    pub(crate) fn pin(&mut self, address: &Address) -> bool {
        let Some(entry) = self.entries.get_mut(address) else {
            return false;
        };
        entry.pins += 1;
        self.reconsider(address);
        true
    }

    pub(crate) fn unpin(&mut self, address: &Address) {
        if let Some(entry) = self.entries.get_mut(address) {
            entry.pins = entry.pins.saturating_sub(1);
            self.reconsider(address);
        }
    }

    /// The entry to lose next, which stays until it is removed.
    pub(crate) fn victim(&mut self) -> Option<Address> {
        self.candidates
            .first_key_value()
            .map(|(_, address)| *address)
    }

    fn reconsider(&mut self, address: &Address) {
        if let Some(entry) = self.entries.get(address) {
            if entry.pins == 0 && !self.children.contains_key(address) {
                self.candidates.insert(entry.last_use, *address);
            } else {
                self.candidates.remove(&entry.last_use);
            }
        }
    }
}
