//! placeholder
#![forbid(unsafe_code)]
mod admin;
mod batch;
mod commit;
mod copy;
mod dtype;
mod error;
mod evict;
mod fetch;
mod format;
mod index;
mod key;
mod layout;
mod lock;
mod options;
mod pack;
mod read;
mod refresh;
mod retention;
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
