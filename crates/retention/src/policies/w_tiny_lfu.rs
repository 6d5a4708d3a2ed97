//! A window before a frequency filter.

use crate::entry::{EntryId, Meta};
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::queues::Queues;
use crate::sketch::Sketch;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
/// Additions to a counter before it is halved, on average: the paper's sample of ten times the
/// cache.
const PERIOD: usize = 10;

/// W-TinyLFU (Einziger, Friedman and Manes 2017), in bytes instead of entries.
///
/// Newcomers wait in a window of a hundredth of the budget. What leaves it must have been seen
/// more often, by a count that remembers evicted keys too and ages, than what it would displace
/// in the main part, a segmented LRU of which four fifths are protected.
#[derive(Debug)]
pub struct WTinyLfu {
    queues: Queues,
    sketch: Sketch,
    limit: u64,
}

impl Default for WTinyLfu {
    fn default() -> Self {
        Self {
            queues: Queues::new(3),
            sketch: Sketch::new(PERIOD),
            limit: 0,
        }
    }
}

impl WTinyLfu {
    fn demote(&mut self, ledger: &Ledger) {
        let protected = (self.limit - self.limit / 100) / 5 * 4;
        while self.queues.bytes(PROTECTED) > protected {
            let Some(id) = self.queues.oldest(PROTECTED) else {
                return;
            };
            let bytes = ledger.meta(id).map_or(0, |meta| meta.bytes);
            self.queues.push(PROBATION, id, bytes);
        }
    }
}

impl Policy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tiny-lfu"
    }

    fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        self.sketch.grow(id.index() + 1);
        self.sketch.add(meta.hash);
        self.queues.push(WINDOW, id, meta.bytes);
    }

    fn access(&mut self, id: EntryId, meta: &Meta) {
        self.sketch.add(meta.hash);
        let queue = match self.queues.queue_of(id) {
            Some(PROBATION | PROTECTED) => PROTECTED,
            _ => WINDOW,
        };
        self.queues.push(queue, id, meta.bytes);
    }

    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.queues.resize(id, meta.bytes);
    }

    fn remove(&mut self, id: EntryId, _: &Meta, _: Removal) {
        self.queues.remove(id);
    }

    fn release(&mut self, id: EntryId, _: &Meta) {
        self.queues.release(id);
    }

    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        self.demote(ledger);
        let window = self.limit / 100;
        loop {
            let main = self.queues.first(PROBATION, ledger);
            let main = main.or_else(|| self.queues.first(PROTECTED, ledger));
            let over = self.queues.bytes(WINDOW) > window;
            let Some(candidate) = self.queues.oldest(WINDOW).filter(|_| over) else {
                return main.or_else(|| self.queues.first(WINDOW, ledger));
            };
            let meta = *ledger.meta(candidate)?;
            let in_main = self.queues.bytes(PROBATION) + self.queues.bytes(PROTECTED);
            let fits = in_main.saturating_add(meta.bytes) <= self.limit - window;
            // What can't be evicted leaves the window without a contest.
            if !fits && ledger.evictable(candidate) {
                let Some(incumbent) = main.and_then(|id| ledger.meta(id)) else {
                    return Some(candidate);
                };
                if self.sketch.estimate(meta.hash) <= self.sketch.estimate(incumbent.hash) {
                    return Some(candidate);
                }
            }
            self.queues.push(PROBATION, candidate, meta.bytes);
            if !fits && main.is_some() {
                return main;
            }
        }
    }
}
