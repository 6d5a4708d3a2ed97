//! What is known about an entry before, while and after it is kept.

/// Names an entry towards a [`Policy`](crate::Policy): the slot that the bookkeeping keeps it
/// in. A slot is used again after its entry is gone, so an id says nothing about other caches
/// or other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub(crate) u32);

impl EntryId {
    /// The slot's number, dense from zero: fit to index a vector.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known about an entry, apart from its key.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Meta {
    /// Bytes that the entry takes of the budget. Zero is allowed.
    pub bytes: u64,
    /// What losing the entry costs, in any unit that all entries of a budget share, such as
    /// prefill tokens or milliseconds. Always finite and not negative, see [`finite_cost`].
    pub cost: f64,
    /// How often the entry was used, its insertion included.
    pub uses: u32,
    /// Logical time of the insertion: the number of operations before it.
    pub inserted: u64,
    /// Logical time of the last use. No two entries of a budget have the same.
    pub last_used: u64,
    /// Hash of the key, the same for the same key in every process of this version. Policies
    /// that remember what they evicted remember this.
    pub hash: u64,
    /// Number of ancestors: 0 for an entry without parent.
    pub depth: u32,
}

/// The order of costs is total because they are made finite at the door: NaN and negative
/// costs count as 0 (nothing says that the entry is worth anything), positive infinity as
/// [`f64::MAX`].
///
/// ```
/// use prefill_retention::finite_cost;
///
/// assert_eq!(finite_cost(f64::NAN), 0.0);
/// assert_eq!(finite_cost(-3.0), 0.0);
/// assert_eq!(finite_cost(f64::INFINITY), f64::MAX);
/// assert_eq!(finite_cost(12.5), 12.5);
/// ```
#[must_use]
pub fn finite_cost(cost: f64) -> f64 {
    // Not `cost > 0.0` is true of NaN and -0.0 too.
    if cost > 0.0 { cost.min(f64::MAX) } else { 0.0 }
}

/// What a new entry is.
///
/// ```
/// use prefill_retention::NewEntry;
///
/// let root: NewEntry<u32> = NewEntry::new(4096, 256.0);
/// let child = NewEntry::new(4096, 256.0).child_of(&7).pinned();
/// assert_eq!((root.parent, child.parent), (None, Some(&7)));
/// ```
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct NewEntry<'a, K> {
    /// Bytes that it takes of the budget.
    pub bytes: u64,
    /// What losing it costs, see [`Meta::cost`]. Any number: it is made finite.
    pub cost: f64,
    /// The entry that it is useless without.
    pub parent: Option<&'a K>,
    /// Number of uses that it starts with, 1 by default; more for an entry of a store that is
    /// opened again.
    pub uses: u32,
    /// Whether it starts with a pin, because it is in use or its write is pending.
    pub pinned: bool,
}

impl<'a, K> NewEntry<'a, K> {
    /// An entry of `bytes` bytes whose loss costs `cost`, without parent.
    #[must_use]
    pub fn new(bytes: u64, cost: f64) -> Self {
        Self {
            bytes,
            cost,
            parent: None,
            uses: 1,
            pinned: false,
        }
    }

    /// Sets the parent.
    #[must_use]
    pub fn child_of(mut self, parent: &'a K) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sets the number of uses so far; 0 counts as 1.
    #[must_use]
    pub fn used(mut self, uses: u32) -> Self {
        self.uses = uses.max(1);
        self
    }

    /// Gives it a pin from the start.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.pinned = true;
        self
    }
}

// Derived, these would ask the same of `K`, of which there is only a reference.
impl<K> Clone for NewEntry<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for NewEntry<'_, K> {}

/// An entry that left, and that its owner must drop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evicted<K> {
    /// Its key.
    pub key: K,
    /// What was known about it.
    pub meta: Meta,
}
