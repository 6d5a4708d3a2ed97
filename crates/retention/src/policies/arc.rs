//! Adaptive replacement cache.

use crate::entry::{EntryId, Meta};
use crate::ghosts::Ghosts;
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::queues::Queues;

const ONCE: usize = 0;
const OFTEN: usize = 1;

/// ARC (Megiddo and Modha 2003), in bytes instead of pages.
///
/// Entries used once and entries used again are kept in two queues, and the share of the first
/// follows what would have been hits had it been larger or smaller: two ghost lists remember
/// what each queue evicted.
#[derive(Debug)]
pub struct Arc {
    queues: Queues,
    ghosts: [Ghosts; 2],
    limit: u64,
    /// Bytes that the queue of entries used once should have.
    target: u64,
    /// The newcomer that a ghost was found for.
    returning: Option<u64>,
    /// Whether that ghost was one of `OFTEN`.
    was_often: bool,
}

impl Default for Arc {
    fn default() -> Self {
        Self {
            queues: Queues::new(2),
            ghosts: Default::default(),
            limit: 0,
            target: 0,
            returning: None,
            was_often: false,
        }
    }
}

impl Arc {
    /// Moves the target if the newcomer was evicted not long ago.
    fn recognise(&mut self, newcomer: &Meta) {
        if self.returning == Some(newcomer.hash) {
            return;
        }
        self.returning = None;
        self.was_often = false;
        for side in [ONCE, OFTEN] {
            let (own, other) = (self.ghosts[side].bytes(), self.ghosts[1 - side].bytes());
            if self.ghosts[side].remove(newcomer.hash) {
                let ratio = u64::try_from(other / own.max(1)).unwrap_or(u64::MAX).max(1);
                let step = newcomer.bytes.saturating_mul(ratio);
                self.target = match side {
                    ONCE => self.target.saturating_add(step).min(self.limit),
                    _ => self.target.saturating_sub(step),
                };
                self.was_often = side == OFTEN;
                self.returning = Some(newcomer.hash);
            }
        }
    }
}

impl Policy for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.target = self.target.min(limit);
    }

    fn admit(&mut self, newcomer: &Meta, _: &Ledger) -> bool {
        self.recognise(newcomer);
        true
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        self.recognise(meta);
        let queue = if self.returning.take().is_some() {
            OFTEN
        } else {
            ONCE
        };
        self.was_often = false;
        self.queues.push_at(queue, id, meta.bytes, meta.last_used);
    }

    fn access(&mut self, id: EntryId, meta: &Meta) {
        self.queues.push_at(OFTEN, id, meta.bytes, meta.last_used);
    }

    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.queues.resize(id, meta.bytes);
    }

    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal) {
        let queue = self.queues.queue_of(id);
        self.queues.remove(id);
        if let (Some(queue), Removal::Evicted) = (queue, why) {
            self.ghosts[queue].push(meta.hash, meta.bytes);
            let (limit, slots) = (u128::from(self.limit), self.queues.slots());
            let once = u128::from(self.queues.bytes(ONCE));
            let often = u128::from(self.queues.bytes(OFTEN));
            self.ghosts[ONCE].trim(limit.saturating_sub(once), slots);
            let taken = once + often + self.ghosts[ONCE].bytes();
            self.ghosts[OFTEN].trim((2 * limit).saturating_sub(taken), slots);
        }
    }

    fn release(&mut self, id: EntryId, _: &Meta) {
        self.queues.release(id);
    }

    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        let once = self.queues.bytes(ONCE);
        let over = once > self.target || (self.was_often && once == self.target && once > 0);
        let first = if over { ONCE } else { OFTEN };
        self.queues
            .first(first, ledger)
            .or_else(|| self.queues.first(1 - first, ledger))
    }
}
