//! Three static FIFO queues.

use crate::entry::{EntryId, Meta};
use crate::ghosts::Ghosts;
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::queues::Queues;

const SMALL: usize = 0;
const MAIN: usize = 1;
/// Uses that are remembered.
const MAX_FREQUENCY: u8 = 3;
/// Uses in the small queue, after the insertion, that lead to the main queue.
const PROMOTED_FROM: u8 = 1;

/// S3-FIFO (Yang et al. 2023), in bytes instead of objects.
///
/// Newcomers wait in a small queue of a tenth of the budget. Those that are used there, or that
/// come back soon after, enter the main queue, a FIFO with reinsertion; one-shot floods pass
/// through the small queue only.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Queues,
    ghosts: Ghosts,
    frequency: Vec<u8>,
    limit: u64,
}

impl Default for S3Fifo {
    fn default() -> Self {
        Self {
            queues: Queues::new(2),
            ghosts: Ghosts::default(),
            frequency: Vec::new(),
            limit: 0,
        }
    }
}

impl S3Fifo {
    /// A victim from the small queue while it has more than `share` bytes. What was used there
    /// moves on, whether or not it may be evicted.
    fn small_victim(&mut self, share: u64, ledger: &Ledger) -> Option<EntryId> {
        while share == 0 || self.queues.bytes(SMALL) > share {
            let id = self.queues.peek(SMALL)?;
            if self.frequency[id.index()] >= PROMOTED_FROM {
                self.reinsert(id, 0, ledger);
            } else if ledger.evictable(id) {
                return Some(id);
            } else {
                self.queues.set_aside(id);
            }
        }
        None
    }

    fn main_victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        while let Some(id) = self.queues.first(MAIN, ledger) {
            match self.frequency[id.index()].checked_sub(1) {
                None => return Some(id),
                Some(frequency) => self.reinsert(id, frequency, ledger),
            }
        }
        None
    }

    fn reinsert(&mut self, id: EntryId, frequency: u8, ledger: &Ledger) {
        self.frequency[id.index()] = frequency;
        let bytes = ledger.meta(id).map_or(0, |meta| meta.bytes);
        self.queues.push(MAIN, id, bytes);
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        if self.frequency.len() <= id.index() {
            self.frequency.resize(id.index() + 1, 0);
        }
        self.frequency[id.index()] = 0;
        let queue = if self.ghosts.remove(meta.hash) {
            MAIN
        } else {
            SMALL
        };
        self.queues.push(queue, id, meta.bytes);
    }

    fn access(&mut self, id: EntryId, _: &Meta) {
        let frequency = &mut self.frequency[id.index()];
        *frequency = (*frequency + 1).min(MAX_FREQUENCY);
        // It may be due for the main queue now.
        self.queues.release(id);
    }

    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.queues.resize(id, meta.bytes);
    }

    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal) {
        let small = self.queues.queue_of(id) == Some(SMALL);
        self.queues.remove(id);
        if small && why == Removal::Evicted {
            self.ghosts.push(meta.hash, meta.bytes);
            let main = u128::from(self.limit - self.limit / 10);
            self.ghosts.trim(main, self.queues.slots());
        }
    }

    fn release(&mut self, id: EntryId, _: &Meta) {
        self.queues.release(id);
    }

    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        self.small_victim(self.limit / 10, ledger)
            .or_else(|| self.main_victim(ledger))
            // Nothing in the main queue may go: the small one is too large whatever it has.
            .or_else(|| self.small_victim(0, ledger))
            .or_else(|| self.main_victim(ledger))
    }
}
