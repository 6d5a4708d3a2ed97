//! What happened so far.

use crate::refusal::Refusal;

/// A number of entries and the sum of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of entries.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Counters of a [`Budget`](crate::Budget) since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Accesses that found their entry.
    pub hits: Tally,
    /// Sum of [`Meta::cost`](crate::Meta::cost) over the hits: what the cache saved.
    pub saved_cost: f64,
    /// Accesses that did not.
    pub misses: u64,
    /// Entries taken.
    pub inserted: Tally,
    /// Entries evicted to make room for a new one.
    pub evicted_for_room: Tally,
    /// Entries evicted on request: a smaller limit, an entry that grew, memory pressure.
    pub evicted_on_request: Tally,
    /// Entries removed by their owner.
    pub removed: Tally,
    /// Entries that went with a removed ancestor.
    pub removed_with_parent: Tally,
    /// Refused as [`Refusal::TooLarge`].
    pub refused_too_large: u64,
    /// Refused as [`Refusal::NoRoom`].
    pub refused_no_room: u64,
    /// Refused as [`Refusal::OneShot`].
    pub refused_one_shot: u64,
    /// Refused as [`Refusal::MissingParent`].
    pub refused_missing_parent: u64,
    /// Refused as [`Refusal::Present`].
    pub refused_present: u64,
}

impl Counters {
    /// All evictions.
    #[must_use]
    pub fn evicted(&self) -> Tally {
        let (room, request) = (self.evicted_for_room, self.evicted_on_request);
        Tally {
            count: room.count + request.count,
            bytes: room.bytes.saturating_add(request.bytes),
        }
    }

    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::TooLarge { .. } => &mut self.refused_too_large,
            Refusal::NoRoom { .. } => &mut self.refused_no_room,
            Refusal::OneShot { .. } => &mut self.refused_one_shot,
            Refusal::MissingParent => &mut self.refused_missing_parent,
            Refusal::Present => &mut self.refused_present,
            Refusal::Absent | Refusal::TooManyEntries { .. } => return,
        };
        *counter += 1;
    }
}
