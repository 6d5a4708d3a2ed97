//! The bookkeeping that all policies share: sizes, uses, pins, parents.

use crate::entry::{EntryId, Meta, finite_cost};

/// No slot.
const NONE: u32 = u32::MAX;

/// Bytes, uses, pins and parent links of all entries of a [`Budget`](crate::Budget).
///
/// Two rules live here and not in the policies: a pinned entry is not evictable, and an entry
/// with children is not evictable, so that a parent outlives its children. (The blocks of a
/// prompt are useless without the blocks before them.)
#[derive(Debug, Default)]
pub struct Ledger {
    slots: Vec<Slot>,
    /// Head of the list of free slots, which are linked by `next_sibling`.
    free: Option<u32>,
    len: usize,
    bytes: u64,
    held_bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    meta: Meta,
    pins: u32,
    /// Children that are held: pinned, or with a held child of their own.
    held_children: u32,
    parent: u32,
    first_child: u32,
    next_sibling: u32,
    prev_sibling: u32,
    live: bool,
}

impl Slot {
    fn held(&self) -> bool {
        self.pins > 0 || self.held_children > 0
    }

    fn evictable(&self) -> bool {
        self.live && self.pins == 0 && self.first_child == NONE
    }
}

impl Ledger {
    /// What is known about an entry, or `None` when the slot is free.
    #[must_use]
    pub fn meta(&self, id: EntryId) -> Option<&Meta> {
        self.slot(id).map(|slot| &slot.meta)
    }

    /// Whether the entry may be evicted now: it is there, it has no pin and no child.
    #[must_use]
    pub fn evictable(&self, id: EntryId) -> bool {
        self.slot(id).is_some_and(Slot::evictable)
    }

    /// The entry's parent.
    #[must_use]
    pub fn parent(&self, id: EntryId) -> Option<EntryId> {
        self.slot(id).and_then(|slot| some(slot.parent))
    }

    /// Number of pins on the entry.
    #[must_use]
    pub fn pins(&self, id: EntryId) -> u32 {
        self.slot(id).map_or(0, |slot| slot.pins)
    }

    /// The entry's children, the youngest first.
    pub fn children(&self, id: EntryId) -> impl Iterator<Item = EntryId> + '_ {
        let first = self.slot(id).and_then(|slot| some(slot.first_child));
        std::iter::successors(first, |child| {
            self.slot(*child).and_then(|slot| some(slot.next_sibling))
        })
    }

    /// All entries, in the order of their slots.
    pub fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        let numbered = (0u32..).zip(&self.slots);
        numbered
            .filter(|(_, slot)| slot.live)
            .map(|(index, _)| EntryId(index))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all entries.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that no eviction can free now: pinned entries and their ancestors.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Logical time: the number of insertions and uses so far.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// What the meta of a new entry would be. It does not count as an operation.
    pub(crate) fn preview(
        &self,
        hash: u64,
        bytes: u64,
        cost: f64,
        parent: Option<EntryId>,
    ) -> Meta {
        let depth = parent
            .and_then(|id| self.meta(id))
            .map_or(0, |meta| meta.depth.saturating_add(1));
        Meta {
            bytes,
            cost: finite_cost(cost),
            uses: 1,
            inserted: self.clock,
            last_used: self.clock,
            hash,
            depth,
        }
    }

    /// Adds an entry. `None` when there are no more slots, or when `parent` is not there, or
    /// when the sum of bytes would overflow.
    pub(crate) fn insert(&mut self, meta: Meta, parent: Option<EntryId>) -> Option<EntryId> {
        if parent.is_some_and(|id| self.slot(id).is_none()) {
            return None;
        }
        let bytes = self.bytes.checked_add(meta.bytes)?;
        let slot = Slot {
            meta,
            pins: 0,
            held_children: 0,
            parent: NONE,
            first_child: NONE,
            next_sibling: NONE,
            prev_sibling: NONE,
            live: true,
        };
        let index = if let Some(index) = self.free {
            self.free = some(self.slots[index as usize].next_sibling).map(|id| id.0);
            self.slots[index as usize] = slot;
            index
        } else {
            let index = u32::try_from(self.slots.len())
                .ok()
                .filter(|index| *index != NONE)?;
            self.slots.push(slot);
            index
        };
        self.bytes = bytes;
        self.len += 1;
        self.clock += 1;
        if let Some(parent) = parent {
            self.link(index, parent.0);
        }
        Some(EntryId(index))
    }

    /// Counts a use.
    pub(crate) fn touch(&mut self, id: EntryId) {
        let now = self.clock;
        if let Some(slot) = self.slot_mut(id) {
            slot.meta.uses = slot.meta.uses.saturating_add(1);
            slot.meta.last_used = now;
            self.clock += 1;
        }
    }

    /// Changes size and cost. `false`, with nothing changed, when the sum would overflow.
    pub(crate) fn resize(&mut self, id: EntryId, bytes: u64, cost: f64) -> bool {
        let Some((old, held)) = self.slot(id).map(|slot| (slot.meta.bytes, slot.held())) else {
            return false;
        };
        let Some(sum) = (self.bytes - old).checked_add(bytes) else {
            return false;
        };
        self.bytes = sum;
        if held {
            self.held_bytes = self.held_bytes - old + bytes;
        }
        if let Some(slot) = self.slot_mut(id) {
            slot.meta.bytes = bytes;
            slot.meta.cost = finite_cost(cost);
        }
        true
    }

    /// Adds a pin. `false` when the entry is not there or has 2^32 - 1 of them.
    pub(crate) fn pin(&mut self, id: EntryId) -> bool {
        let Some(slot) = self.slot(id).filter(|slot| slot.pins < u32::MAX) else {
            return false;
        };
        let was_held = slot.held();
        self.slots[id.index()].pins += 1;
        if !was_held {
            self.hold(id.0);
        }
        true
    }

    /// Takes a pin off. `None` when there is none, else whether the entry became evictable.
    pub(crate) fn unpin(&mut self, id: EntryId) -> Option<bool> {
        let slot = self.slot_mut(id).filter(|slot| slot.pins > 0)?;
        slot.pins -= 1;
        let (held, evictable) = (slot.held(), slot.evictable());
        if !held {
            self.let_go(id.0);
        }
        Some(evictable)
    }

    /// Removes an entry without children. Gives its meta, and its parent if that became
    /// evictable by it.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<(Meta, Option<EntryId>)> {
        let slot = self.slot(id).filter(|slot| slot.first_child == NONE)?;
        let (meta, parent) = (slot.meta, slot.parent);
        if slot.held() {
            self.slots[id.index()].pins = 0;
            self.let_go(id.0);
        }
        if parent != NONE {
            self.unlink(id.0, parent);
        }
        let slot = &mut self.slots[id.index()];
        slot.live = false;
        slot.next_sibling = self.free.unwrap_or(NONE);
        self.free = Some(id.0);
        self.len -= 1;
        self.bytes -= meta.bytes;
        let freed = some(parent).filter(|parent| self.evictable(*parent));
        Some((meta, freed))
    }

    fn slot(&self, id: EntryId) -> Option<&Slot> {
        self.slots.get(id.index()).filter(|slot| slot.live)
    }

    fn slot_mut(&mut self, id: EntryId) -> Option<&mut Slot> {
        self.slots.get_mut(id.index()).filter(|slot| slot.live)
    }

    /// The entry at `index` has just become held: so do its ancestors, up to the first that
    /// already is.
    fn hold(&mut self, mut index: u32) {
        loop {
            let slot = &self.slots[index as usize];
            self.held_bytes += slot.meta.bytes;
            index = slot.parent;
            if index == NONE {
                return;
            }
            let parent = &mut self.slots[index as usize];
            let was_held = parent.held();
            parent.held_children += 1;
            if was_held {
                return;
            }
        }
    }

    /// The reverse of `hold`.
    fn let_go(&mut self, mut index: u32) {
        loop {
            let slot = &self.slots[index as usize];
            self.held_bytes -= slot.meta.bytes;
            index = slot.parent;
            if index == NONE {
                return;
            }
            let parent = &mut self.slots[index as usize];
            parent.held_children -= 1;
            if parent.held() {
                return;
            }
        }
    }

    fn link(&mut self, child: u32, parent: u32) {
        let next = self.slots[parent as usize].first_child;
        self.slots[parent as usize].first_child = child;
        if next != NONE {
            self.slots[next as usize].prev_sibling = child;
        }
        let slot = &mut self.slots[child as usize];
        slot.parent = parent;
        slot.next_sibling = next;
    }

    fn unlink(&mut self, child: u32, parent: u32) {
        let slot = &self.slots[child as usize];
        let (prev, next) = (slot.prev_sibling, slot.next_sibling);
        if prev == NONE {
            self.slots[parent as usize].first_child = next;
        } else {
            self.slots[prev as usize].next_sibling = next;
        }
        if next != NONE {
            self.slots[next as usize].prev_sibling = prev;
        }
    }
}

fn some(index: u32) -> Option<EntryId> {
    (index != NONE).then_some(EntryId(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(ledger: &mut Ledger, bytes: u64, parent: Option<EntryId>) -> EntryId {
        let meta = ledger.preview(0, bytes, 1.0, parent);
        ledger.insert(meta, parent).unwrap()
    }

    #[test]
    fn a_pin_holds_all_ancestors_once() {
        let mut ledger = Ledger::default();
        let root = add(&mut ledger, 1, None);
        let middle = add(&mut ledger, 2, Some(root));
        let left = add(&mut ledger, 4, Some(middle));
        let right = add(&mut ledger, 8, Some(middle));
        assert!(ledger.pin(left) && ledger.pin(left) && ledger.pin(right) && ledger.pin(root));
        assert_eq!(ledger.held_bytes(), 15);
        assert_eq!(ledger.unpin(left), Some(false));
        assert_eq!(ledger.unpin(left), Some(true));
        assert_eq!(ledger.unpin(left), None);
        assert_eq!(ledger.held_bytes(), 11);
        assert_eq!(ledger.unpin(right), Some(true));
        assert_eq!(ledger.held_bytes(), 1);
        assert_eq!(ledger.meta(right).unwrap().depth, 2);
    }

    #[test]
    fn a_removed_child_frees_its_parent_and_its_slot() {
        let mut ledger = Ledger::default();
        let root = add(&mut ledger, 1, None);
        let one = add(&mut ledger, 2, Some(root));
        let two = add(&mut ledger, 4, Some(root));
        let three = add(&mut ledger, 8, Some(root));
        assert!(ledger.pin(two));
        assert!(!ledger.evictable(root));
        assert!(ledger.remove(root).is_none());
        assert_eq!(ledger.remove(two).unwrap().1, None);
        assert_eq!(ledger.children(root).collect::<Vec<_>>(), [three, one]);
        assert_eq!(ledger.held_bytes(), 0);
        assert_eq!(ledger.remove(three).unwrap().1, None);
        assert_eq!(ledger.remove(one).unwrap().1, Some(root));
        assert_eq!((ledger.len(), ledger.bytes()), (1, 1));
        assert_eq!(add(&mut ledger, 3, None), one);
        assert_eq!(ledger.ids().count(), 2);
    }

    #[test]
    fn sums_that_would_overflow_change_nothing() {
        let mut ledger = Ledger::default();
        let id = add(&mut ledger, u64::MAX - 1, None);
        let meta = ledger.preview(0, 2, 1.0, None);
        assert!(ledger.insert(meta, None).is_none());
        let small = add(&mut ledger, 1, None);
        assert!(!ledger.resize(small, 2, 1.0));
        assert!(ledger.resize(id, 5, f64::NAN));
        assert_eq!((ledger.bytes(), ledger.meta(id).unwrap().cost), (6, 0.0));
    }
}
