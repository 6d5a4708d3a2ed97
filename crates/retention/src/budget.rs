//! A byte budget: the keys, the ledger and the policy together.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::counters::Counters;
use crate::entry::{EntryId, Evicted, Meta, NewEntry};
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::refusal::{Refusal, Result};

/// Keeps entries of keys `K` within a number of bytes, evicting by the policy `P`.
///
/// A budget holds no data: its owner does, and drops what the budget says. Pinned entries and
/// entries with children stay; room that eviction can't make is known before anything is
/// evicted, so that a refusal loses nothing.
///
/// The same history gives the same victims in every process. Keys are hashed with a fixed
/// seed; keys that an adversary chooses should be cryptographic hashes.
///
/// ```
/// use prefill_retention::{Budget, Lru, NewEntry, Refusal};
///
/// let mut budget = Budget::new(300, Lru::default());
/// budget.insert("system", NewEntry::new(100, 256.0))?;
/// budget.insert("turn 1", NewEntry::new(100, 256.0).child_of(&"system"))?;
/// budget.insert("other", NewEntry::new(100, 256.0))?;
///
/// // "system" is the oldest, but "turn 1" needs it.
/// let evicted = budget.insert("new", NewEntry::new(50, 128.0))?;
/// assert_eq!(evicted[0].key, "turn 1");
///
/// budget.pin(&"system");
/// budget.pin(&"other");
/// let refusal = budget.insert("large", NewEntry::new(200, 512.0)).unwrap_err();
/// assert_eq!(refusal, Refusal::NoRoom { bytes: 200, held: 200, limit: 300 });
/// assert_eq!(budget.used(), 250);
/// # Ok::<(), Refusal>(())
/// ```
#[derive(Debug)]
pub struct Budget<K, P> {
    limit: u64,
    policy: P,
    ledger: Ledger,
    table: HashTable<EntryId>,
    /// Keys by slot; `None` where the slot is free.
    keys: Vec<Option<K>>,
    hasher: FixedState,
    counters: Counters,
}

impl<K: Hash + Eq, P: Policy> Budget<K, P> {
    /// An empty budget of `limit` bytes.
    pub fn new(limit: u64, mut policy: P) -> Self {
        policy.set_limit(limit);
        Self {
            limit,
            policy,
            ledger: Ledger::default(),
            table: HashTable::new(),
            keys: Vec::new(),
            hasher: FixedState::default(),
            counters: Counters::default(),
        }
    }

    /// Takes an entry, after evicting what must go for it. The caller drops what is returned
    /// before it makes the new data, and its memory never exceeds the limit.
    ///
    /// # Errors
    /// A [`Refusal`] says why the entry is not taken; then nothing was evicted.
    pub fn insert(&mut self, key: K, entry: NewEntry<'_, K>) -> Result<Vec<Evicted<K>>> {
        let hash = self.hasher.hash_one(&key);
        let result = self.insert_hashed(key, hash, entry);
        if let Err(refusal) = &result {
            self.counters.refuse(refusal);
        }
        result
    }

    /// Counts a use of `key`, or a miss. Gives whether it was there.
    ///
    /// The blocks of a chain are best accessed from the leaf to the root, so that an ancestor
    /// is never colder than its descendants: [`access_prefix`](Self::access_prefix) does.
    pub fn access(&mut self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        let Some(id) = self.find_hashed(key, hash) else {
            self.counters.misses += 1;
            self.policy.miss(hash);
            return false;
        };
        self.hit(id);
        true
    }

    /// Finds how many of the first `chain` keys, from the root on, are there, and counts a use
    /// of each of them, the leaf first, and a miss of each of the others.
    pub fn access_prefix(&mut self, chain: &[K]) -> usize {
        let present = chain.iter().take_while(|key| self.contains(key)).count();
        for key in chain[..present].iter().rev() {
            self.access(key);
        }
        for key in &chain[present..] {
            self.counters.misses += 1;
            self.policy.miss(self.hasher.hash_one(key));
        }
        present
    }

    /// Changes an entry's bytes and cost. This is not a use. The budget may exceed its limit
    /// by it, until [`fit`](Self::fit) is called.
    ///
    /// # Errors
    /// [`Refusal::Absent`] for an unknown key, [`Refusal::TooLarge`] for a size above the
    /// limit; then nothing was changed.
    pub fn update(&mut self, key: &K, bytes: u64, cost: f64) -> Result<()> {
        let id = self.find(key).ok_or(Refusal::Absent)?;
        if bytes > self.limit || !self.ledger.resize(id, bytes, cost) {
            return Err(Refusal::TooLarge {
                bytes,
                limit: self.limit,
            });
        }
        if let Some(meta) = self.ledger.meta(id) {
            self.policy.update(id, meta);
        }
        Ok(())
    }

    /// Removes an entry and all its descendants, pinned or not: their data are gone. Gives
    /// what left, children before parents; nothing when the key is not there.
    pub fn remove(&mut self, key: &K) -> Vec<Evicted<K>> {
        let Some(top) = self.find(key) else {
            return Vec::new();
        };
        let mut removed = Vec::new();
        let mut id = top;
        loop {
            if let Some(child) = self.ledger.children(id).next() {
                id = child;
                continue;
            }
            let parent = self.ledger.parent(id);
            let entry = self.take(id, Removal::Removed);
            if let Some(entry) = &entry {
                let counters = &mut self.counters;
                let with_parent = &mut counters.removed_with_parent;
                let tally = if id == top {
                    &mut counters.removed
                } else {
                    with_parent
                };
                tally.add(entry.meta.bytes);
            }
            removed.extend(entry);
            match parent {
                Some(parent) if id != top => id = parent,
                _ => return removed,
            }
        }
    }

    /// Makes an entry, and with it its ancestors, not evictable until as many
    /// [`unpin`](Self::unpin) calls. `false` when the key is not there (or has 2^32 - 1 pins).
    pub fn pin(&mut self, key: &K) -> bool {
        self.find(key).is_some_and(|id| self.ledger.pin(id))
    }

    /// Takes one pin off. `false` when the key is not there or has no pin.
    pub fn unpin(&mut self, key: &K) -> bool {
        self.find(key).is_some_and(|id| self.unpin_id(id))
    }

    /// Evicts one entry, whether or not the budget is full, such as under memory pressure.
    /// `None` when nothing is evictable.
    pub fn evict_one(&mut self) -> Option<Evicted<K>> {
        let evicted = self.evict_next()?;
        self.counters.evicted_on_request.add(evicted.meta.bytes);
        Some(evicted)
    }

    /// Yields victims until at most `bytes` are used or nothing is evictable. Each is evicted
    /// when it is yielded: a dropped iterator evicts no more.
    pub fn evict_to(&mut self, bytes: u64) -> Evictions<'_, K, P> {
        Evictions {
            budget: self,
            target: bytes,
        }
    }

    /// Yields victims until the budget fits its limit or nothing is evictable: after a smaller
    /// limit, an entry that grew, or pins that went.
    pub fn fit(&mut self) -> Evictions<'_, K, P> {
        self.evict_to(self.limit)
    }

    /// Changes the limit. Evicts nothing: call [`fit`](Self::fit).
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.policy.set_limit(limit);
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of all entries.
    pub fn used(&self) -> u64 {
        self.ledger.bytes()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ledger.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ledger.is_empty()
    }

    /// Whether `key` is there. Counts nothing.
    pub fn contains(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// What is known about `key`. Counts nothing.
    pub fn get(&self, key: &K) -> Option<&Meta> {
        self.find(key).and_then(|id| self.ledger.meta(id))
    }

    /// The id of `key`, to ask [`ledger`](Self::ledger) about it.
    pub fn find(&self, key: &K) -> Option<EntryId> {
        self.find_hashed(key, self.hasher.hash_one(key))
    }

    /// The key of `id`.
    pub fn key(&self, id: EntryId) -> Option<&K> {
        self.keys.get(id.index()).and_then(Option::as_ref)
    }

    /// The bookkeeping: pins, parents, held bytes.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn insert_hashed(
        &mut self,
        key: K,
        hash: u64,
        entry: NewEntry<'_, K>,
    ) -> Result<Vec<Evicted<K>>> {
        let NewEntry {
            bytes,
            cost,
            parent,
            uses,
            pinned,
        } = entry;
        let limit = self.limit;
        if self.find_hashed(&key, hash).is_some() {
            return Err(Refusal::Present);
        }
        if bytes > limit {
            return Err(Refusal::TooLarge { bytes, limit });
        }
        // Slots are numbered by 32 bits, of which one number is "none".
        if self.ledger.len() >= u32::MAX as usize {
            return Err(Refusal::TooManyEntries {
                entries: self.ledger.len(),
            });
        }
        let parent = match parent {
            None => None,
            Some(parent) => Some(self.find(parent).ok_or(Refusal::MissingParent)?),
        };
        // The parent and its ancestors must survive what is evicted for their child.
        let guarded = parent.filter(|parent| self.ledger.pin(*parent));
        let mut meta = self.ledger.preview(hash, bytes, cost, parent);
        meta.uses = uses.max(1);
        let result = self.make_room(&meta).and_then(|evicted| {
            let full = Refusal::TooManyEntries {
                entries: self.ledger.len(),
            };
            let id = self.ledger.insert(meta, parent).ok_or(full)?;
            Ok((id, evicted))
        });
        if let Some(parent) = guarded {
            self.unpin_id(parent);
        }
        let (id, evicted) = result?;
        if pinned {
            self.ledger.pin(id);
        }
        if self.keys.len() <= id.index() {
            self.keys.resize_with(id.index() + 1, || None);
        }
        self.keys[id.index()] = Some(key);
        let ledger = &self.ledger;
        let rehash = |id: &EntryId| ledger.meta(*id).map_or(0, |meta| meta.hash);
        self.table.insert_unique(hash, id, rehash);
        self.policy.insert(id, &meta);
        self.counters.inserted.add(bytes);
        Ok(evicted)
    }

    /// Evicts until `newcomer` fits.
    fn make_room(&mut self, newcomer: &Meta) -> Result<Vec<Evicted<K>>> {
        let (bytes, limit) = (newcomer.bytes, self.limit);
        let held = self.ledger.held_bytes();
        if limit.checked_sub(held).is_none_or(|room| bytes > room) {
            return Err(Refusal::NoRoom { bytes, held, limit });
        }
        let target = limit - bytes;
        if self.used() <= target {
            return Ok(Vec::new());
        }
        if !self.policy.admit(newcomer, &self.ledger) {
            return Err(Refusal::OneShot { bytes });
        }
        let mut evicted = Vec::new();
        while self.used() > target {
            let Some(victim) = self.evict_next() else {
                break;
            };
            self.counters.evicted_for_room.add(victim.meta.bytes);
            evicted.push(victim);
        }
        Ok(evicted)
    }

    fn evict_next(&mut self) -> Option<Evicted<K>> {
        let proposed = self.policy.victim(&self.ledger);
        // A policy that errs must not break the rules, nor keep the budget over its limit.
        let id = proposed
            .filter(|id| self.ledger.evictable(*id))
            .or_else(|| self.ledger.ids().find(|id| self.ledger.evictable(*id)))?;
        self.take(id, Removal::Evicted)
    }

    fn take(&mut self, id: EntryId, why: Removal) -> Option<Evicted<K>> {
        let (meta, freed_parent) = self.ledger.remove(id)?;
        let key = self.keys[id.index()].take()?;
        if let Ok(slot) = self.table.find_entry(meta.hash, |other| *other == id) {
            slot.remove();
        }
        self.policy.remove(id, &meta, why);
        if let Some(parent) = freed_parent {
            self.release(parent);
        }
        Some(Evicted { key, meta })
    }

    fn hit(&mut self, id: EntryId) {
        self.ledger.touch(id);
        if let Some(meta) = self.ledger.meta(id) {
            self.counters.hits.add(meta.bytes);
            self.counters.saved_cost = (self.counters.saved_cost + meta.cost).min(f64::MAX);
            self.policy.access(id, meta);
        }
    }

    fn unpin_id(&mut self, id: EntryId) -> bool {
        let Some(evictable) = self.ledger.unpin(id) else {
            return false;
        };
        if evictable {
            self.release(id);
        }
        true
    }

    fn release(&mut self, id: EntryId) {
        if let Some(meta) = self.ledger.meta(id) {
            self.policy.release(id, meta);
        }
    }

    fn find_hashed(&self, key: &K, hash: u64) -> Option<EntryId> {
        let same = |id: &EntryId| self.keys[id.index()].as_ref() == Some(key);
        self.table.find(hash, same).copied()
    }
}

/// Victims of a [`Budget`], evicted as they are yielded.
#[derive(Debug)]
pub struct Evictions<'a, K, P> {
    budget: &'a mut Budget<K, P>,
    target: u64,
}

impl<K: Hash + Eq, P: Policy> Iterator for Evictions<'_, K, P> {
    type Item = Evicted<K>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.budget.used() <= self.target {
            return None;
        }
        self.budget.evict_one()
    }
}
