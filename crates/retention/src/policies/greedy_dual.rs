//! GreedyDual: cost, size, frequency and age in one number.

use std::cmp::Ordering;

use crate::entry::{EntryId, Meta};
use crate::heap::Heap;
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};

/// GreedyDual-Size (Cao and Irani 1997) and GreedyDual-Size-Frequency (Cherkasova 1998).
///
/// An entry's priority is `L + f * cost / max(1, bytes)`, set when it is inserted or used. `L`,
/// the inflation, is the priority of the last victim: what is not used again is overtaken by
/// newcomers as `L` grows, so that old popularity decays without a timer. The least priority
/// is evicted; among equals, the least recently used. O(log n).
///
/// `f` is 1 in the size form. In the size-and-frequency form it is the number of uses, up to a
/// cap: where all entries have the same cost per byte (dense KV blocks, say), the form without
/// cap is LFU with ageing, and loses to LRU. [`GreedyDual::cost_size`] has no cap.
///
/// A changed size or cost changes the priority from the inflation that the last use saw. A
/// sum that is not finite counts as [`f64::MAX`]. Where `L` has grown so large that a term is
/// lost in it, entries are equal and the policy falls back to the least recently used.
///
/// ```
/// use prefill_retention::{Budget, GreedyDual, NewEntry};
///
/// let mut budget = Budget::new(100, GreedyDual::size());
/// budget.insert("dear", NewEntry::new(50, 500.0))?;
/// budget.insert("cheap", NewEntry::new(50, 5.0))?;
/// assert_eq!(budget.insert("new", NewEntry::new(50, 50.0))?[0].key, "cheap");
/// # Ok::<(), prefill_retention::Refusal>(())
/// ```
#[derive(Debug)]
pub struct GreedyDual {
    name: &'static str,
    max_frequency: u32,
    inflation: f64,
    heap: Heap<Priority>,
    /// What was passed over because it could not be evicted, by slot.
    set_aside: Vec<bool>,
    /// Inflation at the last use, by slot.
    base: Vec<f64>,
}

/// Orders by value, then by last use. Values are finite.
#[derive(Clone, Copy, Debug)]
struct Priority {
    value: f64,
    last_used: u64,
}

impl GreedyDual {
    /// The size form: cost per byte, and age.
    #[must_use]
    pub fn size() -> Self {
        Self::new("greedy-dual", 1)
    }

    /// The size-and-frequency form. `max_frequency` caps the number of uses that count;
    /// `None` counts all of them. A cap of 0 counts as 1.
    #[must_use]
    pub fn size_frequency(max_frequency: Option<u32>) -> Self {
        Self::new(
            "greedy-dual-frequency",
            max_frequency.unwrap_or(u32::MAX).max(1),
        )
    }

    /// The setting of the system that prefill started from: uncapped frequency, ties evicting
    /// the older use. (There the inflation also grew when an entry was removed by its owner;
    /// here only an eviction moves it.)
    #[must_use]
    pub fn cost_size() -> Self {
        Self::size_frequency(None)
    }

    /// The priority of the last victim.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        self.inflation
    }

    fn new(name: &'static str, max_frequency: u32) -> Self {
        Self {
            name,
            max_frequency,
            inflation: 0.0,
            heap: Heap::default(),
            set_aside: Vec::new(),
            base: Vec::new(),
        }
    }

    fn priority(&self, id: EntryId, meta: &Meta) -> Priority {
        let frequency = f64::from(meta.uses.min(self.max_frequency));
        let worth = frequency * meta.cost / meta.bytes.max(1) as f64;
        let value = (self.base[id.index()] + worth).min(f64::MAX);
        Priority {
            value,
            last_used: meta.last_used,
        }
    }

    fn place(&mut self, id: EntryId, meta: &Meta) {
        if !self.set_aside[id.index()] {
            self.heap.set(id, self.priority(id, meta));
        }
    }
}

impl Policy for GreedyDual {
    fn name(&self) -> &'static str {
        self.name
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        if self.base.len() <= id.index() {
            self.base.resize(id.index() + 1, 0.0);
            self.set_aside.resize(id.index() + 1, false);
        }
        self.set_aside[id.index()] = false;
        self.access(id, meta);
    }

    fn access(&mut self, id: EntryId, meta: &Meta) {
        self.base[id.index()] = self.inflation;
        self.place(id, meta);
    }

    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.place(id, meta);
    }

    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal) {
        self.heap.remove(id);
        if why == Removal::Evicted {
            self.inflation = self.inflation.max(self.priority(id, meta).value);
        }
    }

    fn release(&mut self, id: EntryId, meta: &Meta) {
        self.set_aside[id.index()] = false;
        self.place(id, meta);
    }

    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        loop {
            let (_, id) = self.heap.first()?;
            if ledger.evictable(id) {
                return Some(id);
            }
            self.heap.remove(id);
            self.set_aside[id.index()] = true;
        }
    }
}

impl PartialEq for Priority {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Priority {}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value
            .total_cmp(&other.value)
            .then(self.last_used.cmp(&other.last_used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, NewEntry};

    fn keys(budget: &mut Budget<&'static str, GreedyDual>) -> Vec<&'static str> {
        budget.evict_to(0).map(|victim| victim.key).collect()
    }

    #[test]
    fn the_frequency_cap_decides_between_often_and_recently() {
        for (policy, expected) in [
            (GreedyDual::size_frequency(Some(2)), ["often", "twice"]),
            (GreedyDual::cost_size(), ["twice", "often"]),
            (GreedyDual::size(), ["often", "twice"]),
        ] {
            let mut budget = Budget::new(10, policy);
            budget.insert("often", NewEntry::new(1, 1.0)).unwrap();
            budget.insert("twice", NewEntry::new(1, 1.0)).unwrap();
            for key in ["often", "often", "often", "twice"] {
                assert!(budget.access(&key));
            }
            assert_eq!(keys(&mut budget), expected);
        }
    }

    #[test]
    fn old_popularity_decays() {
        let mut budget = Budget::new(2, GreedyDual::cost_size());
        budget.insert("old", NewEntry::new(1, 1.0)).unwrap();
        (0..4).for_each(|_| assert!(budget.access(&"old")));
        let mut evicted = Vec::new();
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            evicted.extend(budget.insert(key, NewEntry::new(1, 1.0)).unwrap());
        }
        let evicted: Vec<_> = evicted.iter().map(|victim| victim.key).collect();
        assert_eq!(evicted, ["a", "b", "c", "d", "old", "e"]);
        assert!((budget.policy().inflation() - 5.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_changed_size_changes_the_priority_and_removal_leaves_the_inflation() {
        let mut budget = Budget::new(100, GreedyDual::size());
        budget.insert("a", NewEntry::new(1, 10.0)).unwrap();
        budget.insert("b", NewEntry::new(2, 10.0)).unwrap();
        budget.update(&"a", 5, 10.0).unwrap();
        budget.remove(&"b");
        assert!(budget.policy().inflation().abs() < f64::EPSILON);
        budget.insert("c", NewEntry::new(4, 10.0)).unwrap();
        assert_eq!(keys(&mut budget), ["a", "c"]);
    }

    #[test]
    fn infinite_costs_and_empty_entries_have_an_order() {
        let mut budget = Budget::new(100, GreedyDual::cost_size());
        budget
            .insert("infinite", NewEntry::new(0, f64::INFINITY))
            .unwrap();
        budget
            .insert("nothing", NewEntry::new(0, f64::NAN))
            .unwrap();
        budget.insert("negative", NewEntry::new(0, -1.0)).unwrap();
        (0..3).for_each(|_| assert!(budget.access(&"infinite")));
        let victims: Vec<_> = std::iter::from_fn(|| budget.evict_one())
            .map(|v| v.key)
            .collect();
        assert_eq!(victims, ["nothing", "negative", "infinite"]);
        assert!(budget.policy().inflation().is_finite());
    }
}
