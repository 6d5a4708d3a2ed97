//! Which cache entry to evict.
//!
//! A cache of prompt prefixes, encoder features or files on disk must choose what to drop when
//! it is full. This crate chooses, and keeps the books for it: sizes, costs, uses, pins (not
//! evictable now: in use, or its write pending) and parents (a parent outlives its children,
//! since a prompt's block is useless without the blocks before it).
//!
//! - [`Budget`]: a byte limit over keys of any type. It asks its policy and yields the victims.
//! - [`Policy`]: the trait of eviction policies, over [`Meta`] and the [`Ledger`].
//! - [`Adaptive`]: learns what is used again and when. The one to take when in doubt.
//! - [`Lru`]: least recently used, O(1).
//! - [`GreedyDual`]: cost per byte, frequency and age, O(log n).
//! - [`Arc`], [`S3Fifo`], [`WTinyLfu`]: the policies that `Adaptive` is measured against.
//! - [`replay`]: replays traces against policies, and makes small ones.
//! - [`Refusal`] and [`Counters`]: why something was not taken, and what happened so far.
//!
//! ```
//! use prefill_retention::{Adaptive, Budget, NewEntry};
//!
//! let mut budget = Budget::new(1 << 20, Adaptive::default());
//! for block in 0..10_u64 {
//!     // 256 tokens of prefill lost if evicted; 200 kB each, so five fit.
//!     for victim in budget.insert(block, NewEntry::new(200_000, 256.0))? {
//!         println!("drop the data of block {}", victim.key);
//!     }
//! }
//! assert!(budget.access(&9) && !budget.access(&0));
//! assert_eq!(budget.counters().evicted_for_room.count, 5);
//! # Ok::<(), prefill_retention::Refusal>(())
//! ```
//!
//! The crate holds no data and knows no tensors, storage, clocks or threads. A [`Budget`] is
//! not shared between threads by itself: put it behind the lock of the cache that it serves.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

mod budget;
mod counters;
mod entry;
mod ghosts;
mod heap;
mod ledger;
mod policies;
mod policy;
mod queues;
mod refusal;
pub mod replay;
mod reuse;
mod sketch;

pub use budget::{Budget, Evictions};
pub use counters::{Counters, Tally};
pub use entry::{EntryId, Evicted, Meta, NewEntry, finite_cost};
pub use ledger::Ledger;
pub use policies::{Adaptive, Arc, GreedyDual, Lru, S3Fifo, WTinyLfu};
pub use policy::{Policy, Removal};
pub use refusal::{Refusal, Result};
