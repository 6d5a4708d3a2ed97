//! When keys were last used, evicted or not.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Keys that are followed at most.
const LIMIT: usize = 1 << 16;
/// Keys that are followed are to be so many times the entries, so that they are followed far
/// beyond their eviction; with more entries, a sample of the keys is.
const PER_ENTRY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Last {
    time: u64,
    class: u16,
    uses: u32,
}

/// A class, and the age that a key of it reached.
pub(super) type Aged = (u16, u64);

/// The last uses of a sample of keys, the oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct History {
    known: HashMap<u64, Last, FixedState>,
    /// Hashes by time; a pair is stale when the map has another time.
    order: VecDeque<(u64, u64)>,
    /// Of a hash, these bits must be zero.
    mask: u64,
}

impl History {
    pub(super) fn set_population(&mut self, entries: usize) {
        let keys = entries.saturating_mul(PER_ENTRY);
        // High bits: the low ones choose places in tables.
        let needed = keys.div_ceil(LIMIT).next_power_of_two() as u64 - 1;
        let mask = needed << 32;
        if mask > self.mask {
            self.mask = mask;
            self.known.retain(|hash, _| hash & mask == 0);
            self.order.retain(|(hash, _)| hash & mask == 0);
        }
    }

    /// Uses of a key so far, where it is followed.
    pub(super) fn uses(&self, hash: u64) -> u32 {
        self.known.get(&hash).map_or(0, |last| last.uses)
    }

    /// Whether only a sample of the keys is followed.
    pub(super) fn samples(&self) -> bool {
        self.mask != 0
    }

    /// Notes a use. Gives class and age of the use before, and those of the key that was
    /// forgotten for it.
    pub(super) fn note(
        &mut self,
        hash: u64,
        class: u16,
        uses: u32,
        now: u64,
    ) -> (Option<Aged>, Option<Aged>) {
        if hash & self.mask != 0 {
            return (None, None);
        }
        let before = self.known.insert(
            hash,
            Last {
                time: now,
                class,
                uses,
            },
        );
        self.order.push_back((hash, now));
        let mut lost = None;
        // At most one key is new, and stale pairs are dropped as they come to the front.
        while self.known.len() > LIMIT || self.order.len() > 2 * LIMIT {
            let Some((hash, time)) = self.order.pop_front() else {
                break;
            };
            if self.known.get(&hash).is_some_and(|last| last.time == time) {
                lost = self
                    .known
                    .remove(&hash)
                    .map(|last| (last.class, now - last.time));
            }
        }
        (before.map(|last| (last.class, now - last.time)), lost)
    }

    /// Class and age of all keys that are followed.
    pub(super) fn open(&self, now: u64) -> impl Iterator<Item = Aged> + '_ {
        self.known
            .values()
            .map(move |last| (last.class, now - last.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest_and_stays_bounded() {
        let mut history = History::default();
        for key in 0..LIMIT as u64 {
            assert_eq!(history.note(key, 1, 1, key), (None, None));
        }
        let now = LIMIT as u64;
        assert_eq!(history.note(0, 2, 1, now), (Some((1, now)), None));
        assert_eq!(
            history.note(u64::from(u32::MAX), 1, 1, now + 1),
            (None, Some((1, now)))
        );
        for tick in 2..3 * LIMIT as u64 {
            history.note(5, 1, 1, now + tick);
        }
        assert!(history.order.len() <= 2 * LIMIT && history.known.len() <= LIMIT);
        assert!(history.known.contains_key(&5));
    }

    #[test]
    fn a_large_population_is_sampled() {
        let mut history = History::default();
        for key in 0..1000 {
            history.note(key << 32, 0, 1, key);
        }
        history.set_population(LIMIT);
        assert_eq!(history.known.len(), 250);
        assert_eq!(history.note(1 << 32, 0, 1, 5000), (None, None));
    }
}
