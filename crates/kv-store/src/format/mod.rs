//! Encoding and decoding, as docs/format.md defines it. Decoders are total: any bytes give a
//! value or an error, and nothing is allocated beyond a multiple of the bytes at hand.

mod codec;
mod export;
mod manifest;
mod snapshot;
mod tensors;

pub(crate) use export::ExportHeader;
pub(crate) use manifest::{Entry, MAX_MANIFEST, MAX_METADATA, MAX_RECORDS, Manifest};
pub(crate) use snapshot::{BlockRef, Group, SnapshotTable, TableTensor};
pub(crate) use tensors::ExtentLayout;

/// The greatest length of a namespace's, a tensor's or a snapshot's name, in bytes.
pub(crate) const MAX_NAME: usize = 1024;

pub(crate) type Hash = [u8; 32];
