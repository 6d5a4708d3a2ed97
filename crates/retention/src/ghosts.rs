//! Memory of what was evicted.

use std::collections::VecDeque;

use hashbrown::HashMap;

const GHOSTS_PER_SLOT: usize = 8;
const MIN_GHOSTS: usize = 1024;

/// Hashes of evicted entries, the oldest forgotten first, up to a number of bytes that the
/// entries had.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Bytes and number by hash.
    known: HashMap<u64, (u64, u64), foldhash::fast::FixedState>,
    /// Hashes by number; a pair is stale when the map has another number.
    order: VecDeque<(u64, u64)>,
    /// Wider than a size: for a moment there may be more than the limit.
    bytes: u128,
    next: u64,
}

impl Ghosts {
    pub(crate) fn push(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        self.known.insert(hash, (bytes, self.next));
        self.order.push_back((hash, self.next));
        self.next += 1;
        self.bytes += u128::from(bytes);
    }

    /// Forgets `hash`; whether it was known.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        let Some((bytes, _)) = self.known.remove(&hash) else {
            return false;
        };
        self.bytes -= u128::from(bytes);
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

    /// Forgets the oldest until at most `bytes` bytes are known. `slots` is the number of
    /// entries that were there at once; it bounds the number of ghosts, which the bytes of
    /// tiny entries would not.
    pub(crate) fn trim(&mut self, bytes: u128, slots: usize) {
        let count = slots
            .saturating_mul(GHOSTS_PER_SLOT)
            .saturating_add(MIN_GHOSTS);
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

    pub(crate) fn bytes(&self) -> u128 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_by_bytes_and_by_number() {
        let mut ghosts = Ghosts::default();
        ghosts.push(1, u64::MAX);
        ghosts.push(2, u64::MAX);
        ghosts.push(1, 5);
        assert_eq!(ghosts.bytes(), u128::from(u64::MAX) + 5);
        ghosts.trim(5, 0);
        assert!(!ghosts.remove(2) && ghosts.remove(1));
        for hash in 0..10_000 {
            ghosts.push(hash, 0);
            ghosts.trim(0, 10);
        }
        assert_eq!(ghosts.known.len(), MIN_GHOSTS + 10 * GHOSTS_PER_SLOT);
        assert!(!ghosts.remove(8000) && ghosts.remove(9999));
        assert!(ghosts.order.len() <= 2 * ghosts.known.len() + 16);
    }
}
