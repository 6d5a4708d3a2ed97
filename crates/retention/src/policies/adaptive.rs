//! A policy that learns what is used again, and when.

use crate::entry::{EntryId, Meta};
use crate::ledger::Ledger;
use crate::policy::{Policy, Removal};
use crate::queues::Queues;
use crate::reuse::{AGES, CLASSES, ReuseModel, age_bin};

/// Evicts the entry whose further keeping saves least per byte and time, by what was learned
/// from the past: the policy to take when nothing else is known.
///
/// No fixed policy is best at all sizes: recency fails where entries return later than the
/// cache can hold all of them, frequency where they return a few times and then no more. Both
/// are guesses at one thing, when an entry will be used again, which this policy measures. It
/// follows a sample of keys, beyond their eviction too, and from their returns works out the
/// chance of a use for each number of uses so far, cost per byte, and age. So under a flood of
/// one-shot prompts newcomers make room for each other; and where conversations return after a
/// minute, some are kept for that minute rather than all of them for half of it.
///
/// Until it has seen a few dozen operations it is LRU; in its first some thousand it can serve
/// less than LRU does. Insertion and access take O(1), a victim O(occupied classes and ages),
/// some hundreds at most, amortised. Memory beside the budget's own: 48 bytes an entry, above
/// 16,384 entries also 32 to 64 bytes of counters for each, and at most 8 MB for the sample.
///
/// ```
/// use prefill_retention::replay::{blocks, synthetic};
/// use prefill_retention::{Adaptive, Lru};
///
/// // Twelve documents read in turn, and room for nine of them.
/// let trace = synthetic::scan(600, 12, 6);
/// let capacity = 9 * 6 * synthetic::BLOCK_TOKENS;
/// let lru = blocks(&trace, synthetic::BLOCK_TOKENS, capacity, Lru::default());
/// let adaptive = blocks(&trace, synthetic::BLOCK_TOKENS, capacity, Adaptive::default());
/// assert!(lru.token_hit_ratio() < 0.01 && adaptive.token_hit_ratio() > 0.4);
/// ```
#[derive(Debug)]
pub struct Adaptive {
    model: ReuseModel,
    /// A queue for each class and age bin, by the last use.
    queues: Queues,
    /// Class and last use by slot.
    places: Vec<(u16, u64)>,
    /// What a newcomer must be worth, relative to the victim.
    admission: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            model: ReuseModel::default(),
            queues: Queues::new((CLASSES * AGES) as u16),
            places: Vec::new(),
            admission: 0.0,
        }
    }
}

impl Adaptive {
    /// Refuses newcomers that are worth less than `ratio` of what they would displace, as
    /// [`Refusal::OneShot`](crate::Refusal::OneShot). 0, the default, refuses nothing. 0.5
    /// spares a disk a part of its writes, at a price in hits that depends on the load; from 1
    /// on, little that is new gets a chance. A ratio that is not a number counts as 0.
    #[must_use]
    pub fn refusing_below(mut self, ratio: f64) -> Self {
        self.admission = ratio.max(0.0);
        self
    }

    /// What keeping the entry is worth at the time `now` of [`Ledger::clock`], in a unit of
    /// its own. The least is evicted; among equals, the least recently used.
    #[must_use]
    pub fn worth(&self, id: EntryId, now: u64) -> f64 {
        let place = self.places.get(id.index());
        place.map_or(0.0, |(class, used)| {
            self.model.worth(*class, age_bin(now.saturating_sub(*used)))
        })
    }

    fn enqueue(&mut self, id: EntryId, bytes: u64, age: usize) {
        let (class, last_used) = self.places[id.index()];
        self.queues
            .push_at(usize::from(class) * AGES + age, id, bytes, last_used);
    }

    /// Moves what has grown too old for `queue` on, and gives the first of the rest.
    fn oldest(&mut self, queue: usize, ledger: &Ledger) -> Option<EntryId> {
        loop {
            let id = self.queues.first(queue, ledger)?;
            let age = age_bin(ledger.clock().saturating_sub(self.places[id.index()].1));
            if age == queue % AGES {
                return Some(id);
            }
            self.enqueue(id, ledger.meta(id).map_or(0, |meta| meta.bytes), age);
        }
    }
}

impl Policy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn admit(&mut self, newcomer: &Meta, ledger: &Ledger) -> bool {
        if self.admission <= 0.0 {
            return true;
        }
        let Some(victim) = self.victim(ledger) else {
            return true;
        };
        let (hash, uses, density) = (newcomer.hash, newcomer.uses, density(newcomer));
        let worth = self.model.worth(self.model.predict(hash, uses, density), 0);
        let admitted = worth >= self.admission * self.worth(victim, ledger.clock());
        if !admitted {
            self.model.observe(hash, uses, density, ledger.clock());
        }
        admitted
    }

    fn insert(&mut self, id: EntryId, meta: &Meta) {
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, (0, 0));
            self.model.set_population(id.index() + 1);
        }
        self.access(id, meta);
    }

    fn access(&mut self, id: EntryId, meta: &Meta) {
        let class = self
            .model
            .observe(meta.hash, meta.uses, density(meta), meta.last_used);
        self.places[id.index()] = (class, meta.last_used);
        self.enqueue(id, meta.bytes, 0);
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
        let mut least: Option<(f64, u64, EntryId)> = None;
        let mut from = 0;
        // A queue only passes entries on to later ones, which are visited after it.
        while let Some(queue) = self.queues.next_occupied(from) {
            from = queue + 1;
            let Some(id) = self.oldest(queue, ledger) else {
                continue;
            };
            let worth = self.model.worth((queue / AGES) as u16, queue % AGES);
            let used = self.places[id.index()].1;
            if least.is_none_or(|least| (worth, used) < (least.0, least.1)) {
                least = Some((worth, used, id));
            }
        }
        least.map(|(_, _, id)| id)
    }
}

fn density(meta: &Meta) -> f64 {
    meta.cost / meta.bytes.max(1) as f64
}
