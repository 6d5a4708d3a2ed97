//! What a policy may know about an entry.

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
