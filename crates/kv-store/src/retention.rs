//! Which record to evict: the seam between the store and `prefill-retention`.

use std::collections::HashMap;

use prefill_retention::{Adaptive, Budget, NewEntry};

use crate::batch::Address;

/// What may be evicted, in the order in which the policy would have it. The store keeps the
/// ledger of the folder, which knows of padding, manifests and foreign files; here a budget
/// without limit only says who is next. A parent is never a victim while a child of it is here.
#[derive(Debug)]
pub(crate) struct Residents {
    budget: Budget<Address, Adaptive>,
    /// The parents of the entries, here or not.
    parents: HashMap<Address, Address>,
}

impl Default for Residents {
    fn default() -> Self {
        Self {
            budget: Budget::new(u64::MAX, Adaptive::default()),
            parents: HashMap::new(),
        }
    }
}

impl Residents {
    pub(crate) fn insert(
        &mut self,
        address: Address,
        bytes: u64,
        cost: f64,
        parent: Option<Address>,
    ) {
        self.remove(&address);
        match parent {
            Some(parent) => self.parents.insert(address, parent),
            None => self.parents.remove(&address),
        };
        let alone = NewEntry::new(bytes, cost);
        let entry = match &parent {
            Some(parent) if self.budget.contains(parent) => alone.child_of(parent),
            _ => alone,
        };
        // There is room for anything, and a parent that is not here was left out.
        if let Err(refusal) = self.budget.insert(address, entry) {
            tracing::warn!(key = %address.key, ?refusal, "a record is out of the policy's sight");
        }
    }

    /// Forgets an entry. Its descendants are on disk still, and stay.
    pub(crate) fn remove(&mut self, address: &Address) {
        self.parents.remove(address);
        // Children come before their parents.
        for left in self.budget.remove(address).into_iter().rev() {
            if left.key != *address {
                let parent = self.parents.get(&left.key).copied();
                self.insert(left.key, left.meta.bytes, left.meta.cost, parent);
            }
        }
    }

    /// Notes that a record was asked for. The policy learns from those that are gone too.
    pub(crate) fn access(&mut self, address: &Address) {
        self.budget.access(address);
    }

    /// Keeps an entry from being a victim; whether it is here.
    pub(crate) fn pin(&mut self, address: &Address) -> bool {
        self.budget.pin(address)
    }

    pub(crate) fn unpin(&mut self, address: &Address) {
        self.budget.unpin(address);
    }

    /// Takes out the entry to lose next.
    pub(crate) fn victim(&mut self) -> Option<Address> {
        let victim = self.budget.evict_one()?.key;
        self.parents.remove(&victim);
        Some(victim)
    }
}
