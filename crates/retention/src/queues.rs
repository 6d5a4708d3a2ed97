//! Ordered queues of entries that share one array of links.
//!
//! Entries that can't be evicted now are dealt with lazily: when the search for a victim meets
//! one at the cold end, it is set aside, and when it is released it comes back in its old
//! place, which is before everything that is still linked. So a search costs amortised O(1),
//! however many entries are pinned or have children, and the victim is always the first
//! evictable entry of the queue's order.

use std::collections::BTreeSet;

use crate::entry::EntryId;
use crate::ledger::Ledger;

const NONE: u32 = u32::MAX;

/// `N` queues; an entry is in at most one of them.
#[derive(Debug)]
pub(crate) struct Queues<const N: usize> {
    nodes: Vec<Node>,
    ends: [Queue; N],
    stamp: u64,
}

#[derive(Debug, Clone)]
struct Queue {
    first: u32,
    last: u32,
    bytes: u64,
    len: usize,
    /// Entries that were set aside and released since, by their place in the queue.
    returned: BTreeSet<(u64, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Grows along the queue.
    stamp: u64,
    bytes: u64,
    prev: u32,
    next: u32,
    queue: u8,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Absent,
    Linked,
    SetAside,
    Returned,
}

impl<const N: usize> Default for Queues<N> {
    fn default() -> Self {
        let empty = Queue {
            first: NONE,
            last: NONE,
            bytes: 0,
            len: 0,
            returned: BTreeSet::new(),
        };
        Self {
            nodes: Vec::new(),
            ends: std::array::from_fn(|_| empty.clone()),
            stamp: 0,
        }
    }
}

impl<const N: usize> Queues<N> {
    /// Puts the entry at the hot end of `queue`, wherever it was before.
    pub(crate) fn push(&mut self, queue: usize, id: EntryId, bytes: u64) {
        self.remove(id);
        if self.nodes.len() <= id.index() {
            let absent = Node {
                stamp: 0,
                bytes: 0,
                prev: NONE,
                next: NONE,
                queue: 0,
                place: Place::Absent,
            };
            self.nodes.resize(id.index() + 1, absent);
        }
        self.stamp += 1;
        let q = &mut self.ends[queue];
        self.nodes[id.index()] = Node {
            stamp: self.stamp,
            bytes,
            prev: q.last,
            next: NONE,
            queue: queue as u8,
            place: Place::Linked,
        };
        if q.last == NONE {
            q.first = id.0;
        } else {
            self.nodes[q.last as usize].next = id.0;
        }
        q.last = id.0;
        q.bytes += bytes;
        q.len += 1;
    }

    /// Takes the entry out of its queue.
    pub(crate) fn remove(&mut self, id: EntryId) {
        let Some(node) = self.node(id).copied() else {
            return;
        };
        self.detach(id, node);
        let queue = &mut self.ends[usize::from(node.queue)];
        queue.bytes -= node.bytes;
        queue.len -= 1;
        self.nodes[id.index()].place = Place::Absent;
    }

    /// The entry's size changed.
    pub(crate) fn resize(&mut self, id: EntryId, bytes: u64) {
        if let Some(node) = self.node(id).copied() {
            let queue = &mut self.ends[usize::from(node.queue)];
            queue.bytes = queue.bytes - node.bytes + bytes;
            self.nodes[id.index()].bytes = bytes;
        }
    }

    /// The entry may be evictable again.
    pub(crate) fn release(&mut self, id: EntryId) {
        if let Some(node) = self
            .node(id)
            .copied()
            .filter(|node| node.place == Place::SetAside)
        {
            self.ends[usize::from(node.queue)]
                .returned
                .insert((node.stamp, id.0));
            self.nodes[id.index()].place = Place::Returned;
        }
    }

    /// The first evictable entry of `queue`, counted from its cold end.
    pub(crate) fn first(&mut self, queue: usize, ledger: &Ledger) -> Option<EntryId> {
        loop {
            let q = &self.ends[queue];
            let id = match q.returned.first() {
                Some((_, index)) => EntryId(*index),
                None if q.first == NONE => return None,
                None => EntryId(q.first),
            };
            if ledger.evictable(id) {
                return Some(id);
            }
            let node = self.nodes[id.index()];
            self.detach(id, node);
            self.nodes[id.index()].place = Place::SetAside;
        }
    }

    fn node(&self, id: EntryId) -> Option<&Node> {
        self.nodes
            .get(id.index())
            .filter(|node| node.place != Place::Absent)
    }

    /// Takes the entry out of its list or set; its bytes still count.
    fn detach(&mut self, id: EntryId, node: Node) {
        let queue = &mut self.ends[usize::from(node.queue)];
        match node.place {
            Place::Linked => {
                match node.prev {
                    NONE => queue.first = node.next,
                    prev => self.nodes[prev as usize].next = node.next,
                }
                match node.next {
                    NONE => queue.last = node.prev,
                    next => self.nodes[next as usize].prev = node.prev,
                }
            }
            Place::Returned => {
                queue.returned.remove(&(node.stamp, id.0));
            }
            Place::SetAside | Place::Absent => {}
        }
    }
}
