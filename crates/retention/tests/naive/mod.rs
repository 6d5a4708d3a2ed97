//! The plainest possible budget: a vector that is searched for everything.

mod rules;

use std::collections::BTreeMap;

pub(crate) use rules::{NaiveArc, NaiveGreedyDual, NaiveLru, NaiveS3Fifo, NaiveWTinyLfu};

/// An entry of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: u8,
    pub(crate) bytes: u64,
    pub(crate) cost: f64,
    pub(crate) uses: u32,
    pub(crate) last_used: u64,
    pub(crate) parent: Option<u8>,
    pub(crate) pins: u32,
}

/// A policy of the model: rules over all entries, without clever structures.
pub(crate) trait Rules {
    fn limit(&mut self, _limit: u64) {}
    /// An entry of this key and size is about to be inserted.
    fn newcomer(&mut self, _key: u8, _bytes: u64) {}
    /// The entry was inserted (`uses` is 1) or used.
    fn touched(&mut self, entry: &Entry);
    fn updated(&mut self, _entry: &Entry) {}
    fn left(&mut self, _entry: &Entry, _evicted: bool) {}
    /// Chooses one of `candidates`; asked even when there is none.
    fn choose(&mut self, candidates: &[Entry]) -> Option<u8>;
}

#[derive(Debug)]
pub(crate) struct Naive<R> {
    pub(crate) rules: R,
    limit: u64,
    pub(crate) entries: Vec<Entry>,
    clock: u64,
}

impl<R: Rules> Naive<R> {
    pub(crate) fn new(limit: u64, rules: R) -> Self {
        let mut model = Self {
            rules,
            limit,
            entries: Vec::new(),
            clock: 0,
        };
        model.set_limit(limit);
        model
    }

    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.rules.limit(limit);
    }

    pub(crate) fn used(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    pub(crate) fn index(&self, key: u8) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    pub(crate) fn evictable(&self) -> Vec<Entry> {
        let has_child = |key| self.entries.iter().any(|entry| entry.parent == Some(key));
        let may_go = |entry: &&Entry| entry.pins == 0 && !has_child(entry.key);
        self.entries.iter().filter(may_go).cloned().collect()
    }

    /// Bytes of pinned entries and of their ancestors.
    pub(crate) fn held(&self) -> u64 {
        let mut held = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.pins > 0) {
            let mut next = Some(entry.key);
            while let Some(index) = next.and_then(|key| self.index(key)) {
                let entry = &self.entries[index];
                held.insert(entry.key, entry.bytes);
                next = entry.parent;
            }
        }
        held.values().sum()
    }

    /// `None` when refused, else the victims.
    pub(crate) fn insert(
        &mut self,
        key: u8,
        bytes: u64,
        cost: f64,
        parent: Option<u8>,
        pinned: bool,
    ) -> Option<Vec<u8>> {
        let parent_index = parent.map(|parent| self.index(parent));
        if self.index(key).is_some() || bytes > self.limit || parent_index == Some(None) {
            return None;
        }
        let guarded = parent_index.flatten();
        guarded.inspect(|index| self.entries[*index].pins += 1);
        let fits = self.held() + bytes <= self.limit;
        if fits {
            self.rules.newcomer(key, bytes);
        }
        let mut victims = Vec::new();
        while fits && self.used() + bytes > self.limit {
            victims.push(self.evict().expect("what is not held can be evicted"));
        }
        if let Some(index) = parent.and_then(|parent| self.index(parent)) {
            self.entries[index].pins -= 1;
        }
        if !fits {
            return None;
        }
        let pins = u32::from(pinned);
        let last_used = self.tick();
        let entry = Entry {
            key,
            bytes,
            cost,
            uses: 1,
            last_used,
            parent,
            pins,
        };
        self.rules.touched(&entry);
        self.entries.push(entry);
        Some(victims)
    }

    pub(crate) fn access(&mut self, key: u8) -> bool {
        let Some(index) = self.index(key) else {
            return false;
        };
        let now = self.tick();
        let entry = &mut self.entries[index];
        entry.uses += 1;
        entry.last_used = now;
        self.rules.touched(&entry.clone());
        true
    }

    pub(crate) fn update(&mut self, key: u8, bytes: u64, cost: f64) -> bool {
        let Some(index) = self.index(key).filter(|_| bytes <= self.limit) else {
            return false;
        };
        let entry = &mut self.entries[index];
        entry.bytes = bytes;
        entry.cost = cost;
        self.rules.updated(&entry.clone());
        true
    }

    pub(crate) fn remove(&mut self, key: u8) -> usize {
        let Some(index) = self.index(key) else {
            return 0;
        };
        let children = self
            .entries
            .iter()
            .filter(|entry| entry.parent == Some(key));
        let children: Vec<u8> = children.map(|entry| entry.key).collect();
        let below: usize = children.into_iter().map(|child| self.remove(child)).sum();
        let index = self.index(key).unwrap_or(index);
        let entry = self.entries.remove(index);
        self.rules.left(&entry, false);
        below + 1
    }

    pub(crate) fn pin(&mut self, key: u8) -> bool {
        let index = self.index(key);
        index
            .inspect(|index| self.entries[*index].pins += 1)
            .is_some()
    }

    pub(crate) fn unpin(&mut self, key: u8) -> bool {
        let index = self
            .index(key)
            .filter(|index| self.entries[*index].pins > 0);
        index
            .inspect(|index| self.entries[*index].pins -= 1)
            .is_some()
    }

    pub(crate) fn evict(&mut self) -> Option<u8> {
        let candidates = self.evictable();
        let key = self.rules.choose(&candidates)?;
        let index = self.index(key)?;
        let entry = self.entries.remove(index);
        self.rules.left(&entry, true);
        Some(key)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock - 1
    }
}
