//! Memory of what was evicted.

use std::collections::VecDeque;

use hashbrown::HashMap;

/// Hashes of evicted entries, the oldest forgotten first, up to a number of bytes that the
/// entries had.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Bytes and number by hash.
    known: HashMap<u64, (u64, u64), foldhash::fast::FixedState>,
    /// Hashes by number; a pair is stale when the map has another number.
    order: VecDeque<(u64, u64)>,
    bytes: u64,
    next: u64,
}

impl Ghosts {
    pub(crate) fn push(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        self.known.insert(hash, (bytes, self.next));
        self.order.push_back((hash, self.next));
        self.next += 1;
        self.bytes += bytes;
    }

    /// Forgets `hash`; whether it was known.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        let Some((bytes, _)) = self.known.remove(&hash) else {
            return false;
        };
        self.bytes -= bytes;
        // Stale pairs are skipped in `pop`; they never outnumber the others for long.
        if self.order.len() > 2 * self.known.len() + 16 {
            let known = &self.known;
            let fresh = |(hash, number): &(u64, u64)| {
                known
                    .get(hash)
                    .is_some_and(|(_, current)| current == number)
            };
            self.order.retain(fresh);
        }
        true
    }

    /// Forgets the oldest until at most `bytes` bytes and `count` entries are known.
    pub(crate) fn trim(&mut self, bytes: u64, count: usize) {
        while self.bytes > bytes || self.known.len() > count {
            let Some((hash, number)) = self.order.pop_front() else {
                return;
            };
            if self
                .known
                .get(&hash)
                .is_some_and(|(_, current)| *current == number)
            {
                self.remove(hash);
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
