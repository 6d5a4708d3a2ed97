//! Least recently used.

use crate::entry::{EntryId, Meta};
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::queues::Queues;

/// Evicts what was used least recently; every operation takes constant time (amortised).
///
/// ```
/// use prefill_retention::{Budget, Lru, NewEntry};
///
/// let mut budget = Budget::new(2, Lru::default());
/// budget.insert("a", NewEntry::new(1, 1.0))?;
/// budget.insert("b", NewEntry::new(1, 1.0))?;
/// budget.access(&"a");
/// assert_eq!(budget.insert("c", NewEntry::new(1, 1.0))?[0].key, "b");
/// # Ok::<(), prefill_retention::Refusal>(())
/// ```
#[derive(Debug)]
pub struct Lru {
    queue: Queues,
}

impl Default for Lru {
    fn default() -> Self {
        Self {
            queue: Queues::new(1),
        }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        self.queue.push_at(0, id, meta.bytes, meta.last_used);
    }

    fn access(&mut self, id: EntryId, meta: &Meta) {
        self.queue.push_at(0, id, meta.bytes, meta.last_used);
    }

    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.queue.resize(id, meta.bytes);
    }

    fn remove(&mut self, id: EntryId, _: &Meta, _: Removal) {
        self.queue.remove(id);
    }

    fn release(&mut self, id: EntryId, _: &Meta) {
        self.queue.release(id);
    }

    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        self.queue.first(0, ledger)
    }
}
