//! The trait of eviction policies.

use std::fmt;

use crate::entry::{EntryId, Meta};
use crate::ledger::Ledger;

/// Why an entry left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The policy chose it as victim.
    Evicted,
    /// Its owner removed it: this says nothing about its worth.
    Removed,
}

/// Decides what to evict. A policy sees identifiers and [`Meta`], never keys, tensors, storage
/// or time, and it is told of every change in order.
///
/// It need not know about pins and parents: [`Ledger::evictable`] says whether an entry may go
/// now, and [`release`](Self::release) that an entry which may have been passed over can go
/// again.
///
/// Implementors may rely on this: `insert` comes first for an id, then any number of the
/// others, then `remove` once; `meta` is already up to date.
///
/// ```
/// use prefill_retention::{Budget, EntryId, Ledger, Meta, NewEntry, Policy, Removal};
///
/// /// Evicts the largest entry.
/// #[derive(Debug, Default)]
/// struct Largest(Vec<EntryId>);
///
/// impl Policy for Largest {
///     fn name(&self) -> &'static str {
///         "largest"
///     }
///     fn insert(&mut self, id: EntryId, _: &Meta) {
///         self.0.push(id);
///     }
///     fn access(&mut self, _: EntryId, _: &Meta) {}
///     fn remove(&mut self, id: EntryId, _: &Meta, _: Removal) {
///         self.0.retain(|other| *other != id);
///     }
///     fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
///         let may_go = self.0.iter().copied().filter(|id| ledger.evictable(*id));
///         may_go.max_by_key(|id| ledger.meta(*id).map(|meta| meta.bytes))
///     }
/// }
///
/// let mut budget = Budget::new(100, Largest::default());
/// budget.insert("small", NewEntry::new(10, 1.0))?;
/// budget.insert("large", NewEntry::new(60, 1.0))?;
/// let evicted = budget.insert("new", NewEntry::new(50, 1.0))?;
/// assert_eq!(evicted[0].key, "large");
/// # Ok::<(), prefill_retention::Refusal>(())
/// ```
pub trait Policy: fmt::Debug {
    /// A short name for tables and logs, such as `lru`.
    fn name(&self) -> &'static str;

    /// The budget's limit in bytes; called before anything else and whenever it changes.
    fn set_limit(&mut self, limit: u64) {
        let _ = limit;
    }

    /// Whether a newcomer is worth evicting for. Asked only when room must be made for it;
    /// `false` refuses it as [`Refusal::OneShot`](crate::Refusal::OneShot).
    fn admit(&mut self, newcomer: &Meta, ledger: &Ledger) -> bool {
        let _ = (newcomer, ledger);
        true
    }

    /// Something was looked up and was not there. `hash` is what [`Meta::hash`] would be.
    fn miss(&mut self, hash: u64) {
        let _ = hash;
    }

    /// A new entry.
    fn insert(&mut self, id: EntryId, meta: &Meta);

    /// The entry was used.
    fn access(&mut self, id: EntryId, meta: &Meta);

    /// The entry's bytes or cost changed. This is not a use.
    fn update(&mut self, id: EntryId, meta: &Meta) {
        let _ = (id, meta);
    }

    /// The entry leaves. `meta` is as it was at the end.
    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal);

    /// The entry became evictable: its last pin was taken off or its last child left.
    fn release(&mut self, id: EntryId, meta: &Meta) {
        let _ = (id, meta);
    }

    /// The entry to evict next: one that [`Ledger::evictable`] allows, or `None` when there is
    /// no such entry. The caller removes it; a victim that is not removed after all changes
    /// nothing.
    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId>;
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn set_limit(&mut self, limit: u64) {
        (**self).set_limit(limit);
    }
    fn admit(&mut self, newcomer: &Meta, ledger: &Ledger) -> bool {
        (**self).admit(newcomer, ledger)
    }
    fn miss(&mut self, hash: u64) {
        (**self).miss(hash);
    }
    fn insert(&mut self, id: EntryId, meta: &Meta) {
        (**self).insert(id, meta);
    }
    fn access(&mut self, id: EntryId, meta: &Meta) {
        (**self).access(id, meta);
    }
    fn update(&mut self, id: EntryId, meta: &Meta) {
        (**self).update(id, meta);
    }
    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal) {
        (**self).remove(id, meta, why);
    }
    fn release(&mut self, id: EntryId, meta: &Meta) {
        (**self).release(id, meta);
    }
    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        (**self).victim(ledger)
    }
}
