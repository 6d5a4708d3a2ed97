//! A heap that knows where each entry is.

use crate::entry::EntryId;

/// Children of a node; four keep the heap shallow and a node's children in two cache lines.
const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// A minimum heap of entries by `K`, with O(log n) change and removal of any entry.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, EntryId)>,
    /// Index into `items` by slot.
    places: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> Heap<K> {
    /// Adds the entry, or changes its key.
    pub(crate) fn set(&mut self, id: EntryId, key: K) {
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, ABSENT);
        }
        let place = match self.places[id.index()] {
            ABSENT => {
                self.items.push((key, id));
                self.items.len() - 1
            }
            place => {
                self.items[place as usize].0 = key;
                place as usize
            }
        };
        self.restore(place);
    }

    /// Removes the entry; gives its key, or `None` when it is not there.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<K> {
        let place = self
            .places
            .get(id.index())
            .copied()
            .filter(|place| *place != ABSENT)? as usize;
        self.places[id.index()] = ABSENT;
        let (key, _) = self.items.swap_remove(place);
        if place < self.items.len() {
            self.restore(place);
        }
        Some(key)
    }

    /// The least item.
    pub(crate) fn first(&self) -> Option<(K, EntryId)> {
        self.items.first().copied()
    }

    /// Moves the item at `place`, whose key may be wrong for it, to where it belongs.
    fn restore(&mut self, mut place: usize) {
        let item = self.items[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.items[parent].0 <= item.0 {
                break;
            }
            self.put(place, self.items[parent]);
            place = parent;
        }
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.items.len());
            let Some(least) = children.min_by_key(|child| self.items[*child].0) else {
                break;
            };
            if item.0 <= self.items[least].0 {
                break;
            }
            self.put(place, self.items[least]);
            place = least;
        }
        self.put(place, item);
    }

    fn put(&mut self, place: usize, item: (K, EntryId)) {
        self.items[place] = item;
        self.places[item.1.index()] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            operations in proptest::collection::vec((0u32..40, proptest::option::of(0u64..50)), 0..300),
        ) {
            let mut heap = Heap::default();
            let mut model = BTreeMap::new();
            for (slot, key) in operations {
                if let Some(key) = key {
                    heap.set(EntryId(slot), (key, slot));
                    model.insert(slot, (key, slot));
                } else {
                    prop_assert_eq!(heap.remove(EntryId(slot)), model.remove(&slot));
                }
                let least = model.values().min().map(|key| (*key, EntryId(key.1)));
                prop_assert_eq!(heap.first(), least);
            }
        }
    }
}
