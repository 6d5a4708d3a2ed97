//! A durable, verified store for large tensors under keys, such as the blocks of a KV cache.
//!
//! What is put is hashed with BLAKE3 and written straight from the strided memory it lies in,
//! once: a key that is there already is skipped without a look at its data. When [`Store::put`]
//! returns, the batch survives a power cut. What is read is verified, always, and lands in the
//! caller's memory in the caller's layout. A damaged, missing or half-written record is a
//! [`Miss`], never an error of the request and never wrong bytes.
//!
//! The principal types:
//! - [`Layout`], [`View`] and [`ViewMut`]: tensors with signed strides over bytes, every offset
//!   proven in bounds; [`Runs`] walks their contiguous runs.
//! - [`Store`]: a folder (or memory) that holds [`Record`]s under [`Key`]s in [`Namespace`]s.
//!   [`Store::put`] commits a [`Batch`]; [`Store::longest_prefix`] finds a chain,
//!   [`Store::pin`] keeps it from eviction meanwhile;
//!   [`Store::read_into`] restores many records at once, on several threads.
//! - [`Snapshot`]: a named set of whole tensors, for [`Store::save`] and [`Store::load`], cut into
//!   blocks that are shared by content.
//! - [`Writer`]: a thread that writes behind the caller's back, bounded in bytes, and gives
//!   every buffer's owner back.
//! - [`Options`], [`Stats`]: limits and counters.
//!
//! ```
//! use prefill_kv_store::{
//!     Batch, DType, Key, Kind, Layout, Namespace, Options, Placement, Record, Store, View,
//! };
//!
//! let store = Store::in_memory(Options::default())?;
//! let space = Namespace::new("qwen3-vl-2b, fingerprint 0xabcd")?;
//!
//! // Two blocks of 64 rows of K, cut from a cache of 8 heads with room for 256 rows of 128.
//! let cache = vec![1u8; 8 * 256 * 128 * 2];
//! let layout = Layout::contiguous(&[8, 256, 128])?;
//! let keys = [Key::new([1; 32]), Key::new([2; 32])];
//! let mut batch = Batch::new();
//! for (i, key) in keys.into_iter().enumerate() {
//!     let rows = View::new(&cache, DType::Bf16, layout.narrow(1, i * 64, 64)?)?;
//!     let record = Record::new(key, Kind::Rows).tensor("0.k", rows).cost(64.0);
//!     batch.push(if i > 0 { record.parent(keys[i - 1]) } else { record });
//! }
//! store.put(&space, &batch)?;
//!
//! // Restore the longest chain that is there, into a cache with room for 512 rows.
//! let n = store.longest_prefix(&space, &keys);
//! let target = Layout::contiguous(&[8, 512, 128])?;
//! let placements: Vec<Placement> = (0..n)
//!     .map(|i| {
//!         let layout = target.narrow(1, i * 64, 64)?;
//!         Ok(Placement { key: keys[i], tensor: 0, buffer: 0, layout })
//!     })
//!     .collect::<prefill_kv_store::Result<_>>()?;
//! let mut restored = vec![0u8; 8 * 512 * 128 * 2];
//! store.read_into(&space, &placements, &mut [&mut restored])?;
//! # Ok::<(), prefill_kv_store::Error>(())
//! ```
//!
//! # Several processes
//!
//! Any number of processes may use one folder. One writes at a time, the others wait for
//! [`Options::lock_timeout`]; readers wait for nobody. A record that another process removes is
//! a miss here from then on. The limit covers the folder, whoever writes to it.
//!
//! # What it does not do
//!
//! It does not encrypt: the folder is private by its mode (0700, files 0600), and no more. It
//! does not compress, and it does not interpret elements or keys: whoever makes the keys sees to
//! it that equal keys mean equal tensors. It does not remember across restarts what was used
//! last: records are then as old as their commits. Where a file system can't punch holes (macOS,
//! through this crate's safe interfaces), a record inside a pack is only freed with what follows
//! it, or with the whole pack. Unix only.
//!
//! The bytes on disk are defined in `docs/format.md` of the repository.

#![forbid(unsafe_code)]

mod admin;
mod attempt;
mod batch;
mod commit;
mod copy;
mod dtype;
mod error;
mod fetch;
mod format;
mod index;
mod key;
mod layout;
mod lock;
mod new_files;
mod options;
mod pack;
mod pins;
mod place;
mod read;
mod refresh;
mod remove;
mod retention;
mod room;
mod runs;
mod snapshot;
mod stats;
mod store;
mod transfer;
pub mod vfs;
mod view;
mod writer;

pub use admin::{CollectReport, Listed, Progress, VerifyReport};
pub use batch::{Batch, Namespace, Record};
pub use dtype::DType;
pub use error::{Error, Miss, Result};
pub use key::{Key, Kind};
pub use layout::{Layout, MAX_RANK};
pub use options::Options;
pub use pins::Pinned;
pub use read::{OwnedRecord, Placement};
pub use runs::Runs;
pub use snapshot::{LoadedSnapshot, Snapshot, SnapshotInfo};
pub use stats::{PutReport, ReadReport, Stats};
pub use store::{RecordInfo, Store, TensorInfo};
pub use transfer::Export;
pub use view::{View, ViewMut};
pub use writer::{
    Ack, Job, OwnedTensor, OwnedWrite, Submitted, WhenFull, Writer, WriterOptions, WriterStats,
};

/// The README's example, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
