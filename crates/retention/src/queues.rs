//! Ordered queues of entries that share one array of links.
//!
//! Entries that can't be evicted now are dealt with lazily: when the search for a victim meets
//! one at the cold end, it is set aside, and when it is released it comes back in its old
//! place. So a search costs amortised O(1), however many entries are pinned or have children,
//! and the victim is always the first evictable entry of the queue's order.

use std::collections::BTreeSet;

use crate::entry::EntryId;
use crate::ledger::Ledger;

const NONE: u32 = u32::MAX;

/// Some queues, each ordered by the stamps of its entries; an entry is in at most one of them.
#[derive(Debug)]
pub(crate) struct Queues {
    nodes: Vec<Node>,
    ends: Vec<Queue>,
    /// One bit a queue: whether it has an entry that is not set aside.
    occupied: Vec<u64>,
    stamp: u64,
}

#[derive(Debug, Clone)]
struct Queue {
    first: u32,
    last: u32,
    bytes: u64,
    /// Entries that came with a stamp lower than that of the last one, by their stamps.
    late: BTreeSet<(u64, u32)>,
    /// Entries that were set aside, by their stamps.
    aside: BTreeSet<(u64, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    stamp: u64,
    bytes: u64,
    prev: u32,
    next: u32,
    queue: u16,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Absent,
    Linked,
    Late,
    SetAside,
}

impl Queues {
    /// `count` empty queues, numbered from zero.
    pub(crate) fn new(count: u16) -> Self {
        let empty = Queue {
            first: NONE,
            last: NONE,
            bytes: 0,
            late: BTreeSet::new(),
            aside: BTreeSet::new(),
        };
        let count = usize::from(count);
        Self {
            nodes: Vec::new(),
            ends: vec![empty; count],
            occupied: vec![0; count.div_ceil(64)],
            stamp: 0,
        }
    }

    /// Puts the entry at the hot end of `queue`, wherever it was before. Not to be mixed with
    /// [`push_at`](Self::push_at).
    pub(crate) fn push(&mut self, queue: usize, id: EntryId, bytes: u64) {
        self.stamp += 1;
        self.push_at(queue, id, bytes, self.stamp);
    }

    /// Puts the entry where `stamp` belongs in `queue`. O(1) at the hot end.
    pub(crate) fn push_at(&mut self, queue: usize, id: EntryId, bytes: u64, stamp: u64) {
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
        let last = self.ends[queue].last;
        let in_order = last == NONE || self.nodes[last as usize].stamp < stamp;
        self.ends[queue].bytes += bytes;
        self.occupied[queue / 64] |= 1 << (queue % 64);
        self.nodes[id.index()] = Node {
            stamp,
            bytes,
            prev: if in_order { last } else { NONE },
            next: NONE,
            queue: queue as u16,
            place: if in_order { Place::Linked } else { Place::Late },
        };
        if !in_order {
            self.ends[queue].late.insert((stamp, id.0));
            return;
        }
        match last {
            NONE => self.ends[queue].first = id.0,
            last => self.nodes[last as usize].next = id.0,
        }
        self.ends[queue].last = id.0;
    }

    /// Takes the entry out of its queue.
    pub(crate) fn remove(&mut self, id: EntryId) {
        if let Some(node) = self.node(id).copied() {
            self.detach(id, node);
            self.ends[usize::from(node.queue)].bytes -= node.bytes;
            self.nodes[id.index()].place = Place::Absent;
        }
    }

    /// The entry's size changed.
    pub(crate) fn resize(&mut self, id: EntryId, bytes: u64) {
        if let Some(node) = self.node(id).copied() {
            let queue = &mut self.ends[usize::from(node.queue)];
            queue.bytes = queue.bytes - node.bytes + bytes;
            self.nodes[id.index()].bytes = bytes;
        }
    }

    /// An entry that was set aside comes back in its old place.
    pub(crate) fn release(&mut self, id: EntryId) {
        if let Some(node) = self
            .node(id)
            .copied()
            .filter(|node| node.place == Place::SetAside)
        {
            self.push_at(usize::from(node.queue), id, node.bytes, node.stamp);
        }
    }

    /// Takes the entry out of the queue's order until it is released. It keeps its place, and
    /// its bytes count.
    pub(crate) fn set_aside(&mut self, id: EntryId) {
        if let Some(node) = self
            .node(id)
            .copied()
            .filter(|node| node.place != Place::SetAside)
        {
            self.detach(id, node);
            self.nodes[id.index()].place = Place::SetAside;
            self.ends[usize::from(node.queue)]
                .aside
                .insert((node.stamp, id.0));
        }
    }

    /// The first entry of `queue` that is not set aside.
    pub(crate) fn peek(&self, queue: usize) -> Option<EntryId> {
        let Queue { first, late, .. } = &self.ends[queue];
        match late.first() {
            Some((stamp, id)) if *first == NONE || *stamp < self.nodes[*first as usize].stamp => {
                Some(EntryId(*id))
            }
            _ => (*first != NONE).then_some(EntryId(*first)),
        }
    }

    /// The first entry of `queue`, set aside or not.
    pub(crate) fn oldest(&self, queue: usize) -> Option<EntryId> {
        let aside = self.ends[queue]
            .aside
            .first()
            .map(|(stamp, id)| (*stamp, EntryId(*id)));
        let other = self
            .peek(queue)
            .map(|id| (self.nodes[id.index()].stamp, id));
        aside.into_iter().chain(other).min().map(|(_, id)| id)
    }

    /// The first evictable entry of `queue`; what comes before it is set aside.
    pub(crate) fn first(&mut self, queue: usize, ledger: &Ledger) -> Option<EntryId> {
        loop {
            let id = self.peek(queue)?;
            if ledger.evictable(id) {
                return Some(id);
            }
            self.set_aside(id);
        }
    }

    /// The queue that the entry is in.
    pub(crate) fn queue_of(&self, id: EntryId) -> Option<usize> {
        self.node(id).map(|node| usize::from(node.queue))
    }

    /// Number of slots that ever had an entry.
    pub(crate) fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of all entries of `queue`, those set aside too.
    pub(crate) fn bytes(&self, queue: usize) -> u64 {
        self.ends[queue].bytes
    }

    /// The least queue from `from` on that has an entry which is not set aside.
    pub(crate) fn next_occupied(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn node(&self, id: EntryId) -> Option<&Node> {
        self.nodes
            .get(id.index())
            .filter(|node| node.place != Place::Absent)
    }

    /// Takes the entry out of the order; its bytes still count.
    fn detach(&mut self, id: EntryId, node: Node) {
        let number = usize::from(node.queue);
        let queue = &mut self.ends[number];
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
            Place::Late => {
                queue.late.remove(&(node.stamp, id.0));
            }
            Place::SetAside => {
                queue.aside.remove(&(node.stamp, id.0));
                return;
            }
            Place::Absent => return,
        }
        if queue.first == NONE && queue.late.is_empty() {
            self.occupied[number / 64] &= !(1 << (number % 64));
        }
    }
}
