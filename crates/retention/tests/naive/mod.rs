//! The plainest possible budget: a vector that is searched for everything.

use std::collections::BTreeMap;

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
    fn touched(&mut self, entry: &Entry);
    fn updated(&mut self, _entry: &Entry) {}
    fn left(&mut self, _entry: &Entry, _evicted: bool) {}
    /// Chooses one of `candidates`, which is not empty.
    fn choose(&mut self, candidates: &[Entry]) -> u8;
}

#[derive(Debug)]
pub(crate) struct Naive<R> {
    pub(crate) rules: R,
    pub(crate) limit: u64,
    pub(crate) entries: Vec<Entry>,
    clock: u64,
}

impl<R: Rules> Naive<R> {
    pub(crate) fn new(limit: u64, rules: R) -> Self {
        Self {
            rules,
            limit,
            entries: Vec::new(),
            clock: 0,
        }
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
        if candidates.is_empty() {
            return None;
        }
        let key = self.rules.choose(&candidates);
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

/// Least recently used.
#[derive(Debug, Default)]
pub(crate) struct NaiveLru;

impl Rules for NaiveLru {
    fn touched(&mut self, _: &Entry) {}
    fn choose(&mut self, candidates: &[Entry]) -> u8 {
        candidates
            .iter()
            .min_by_key(|entry| entry.last_used)
            .expect("not empty")
            .key
    }
}

/// The `CostSizeRetention` of prefill's predecessor, frequency capped, over all entries each time.
#[derive(Debug)]
pub(crate) struct NaiveGreedyDual {
    pub(crate) max_frequency: u32,
    pub(crate) age: f64,
    pub(crate) base: BTreeMap<u8, f64>,
}

impl NaiveGreedyDual {
    pub(crate) fn new(max_frequency: u32) -> Self {
        Self {
            max_frequency,
            age: 0.0,
            base: BTreeMap::new(),
        }
    }

    fn priority(&self, entry: &Entry) -> f64 {
        let cost = if entry.cost > 0.0 {
            entry.cost.min(f64::MAX)
        } else {
            0.0
        };
        let frequency = f64::from(entry.uses.min(self.max_frequency));
        (self.base[&entry.key] + cost * frequency / entry.bytes.max(1) as f64).min(f64::MAX)
    }
}

impl Rules for NaiveGreedyDual {
    fn touched(&mut self, entry: &Entry) {
        self.base.insert(entry.key, self.age);
    }

    fn left(&mut self, entry: &Entry, evicted: bool) {
        if evicted {
            self.age = self.age.max(self.priority(entry));
        }
    }

    fn choose(&mut self, candidates: &[Entry]) -> u8 {
        let least = candidates.iter().reduce(|a, b| {
            let (x, y) = (self.priority(a), self.priority(b));
            if x < y || (x.total_cmp(&y).is_eq() && a.last_used < b.last_used) {
                a
            } else {
                b
            }
        });
        least.expect("not empty").key
    }
}
