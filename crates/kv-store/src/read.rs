//! The reading half of the store: records as owned buffers, or into the caller's memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::batch::Namespace;
use crate::fetch::{Span, fetch};
use crate::format::ExtentLayout;
use crate::place::Plan;
use crate::stats::{ReadReport, add_micros};
use crate::store::{RecordInfo, Store};
use crate::{Error, Key, Layout, Result, View};

/// Where one tensor of a record goes.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The record.
    pub key: Key,
    /// Which of its tensors.
    pub tensor: usize,
    /// Which of the destination buffers.
    pub buffer: usize,
    /// Where in that buffer, in elements of the stored dtype. Its shape is the stored one.
    pub layout: Layout,
}

/// A verified record in memory of its own.
#[derive(Clone, Debug)]
pub struct OwnedRecord {
    info: RecordInfo,
    layout: Arc<ExtentLayout>,
    bytes: Vec<u8>,
}

impl OwnedRecord {
    /// What is known of it.
    #[must_use]
    pub const fn info(&self) -> &RecordInfo {
        &self.info
    }

    /// One of its tensors, in row-major order.
    ///
    /// # Errors
    /// [`Error::Index`] if there is no such tensor.
    pub fn tensor(&self, index: usize) -> Result<View<'_>> {
        let tensors = &self.layout.tensors;
        let Some(t) = tensors.get(index) else {
            return Err(Error::Index {
                what: "tensor",
                index,
                count: tensors.len(),
            });
        };
        View::contiguous(&self.bytes[t.offset..t.offset + t.bytes], t.dtype, &t.shape)
    }

    /// The first tensor of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<View<'_>> {
        let index = self.layout.tensors.iter().position(|t| t.name == name)?;
        self.tensor(index).ok()
    }
}

impl Store {
    /// Reads and verifies a record into memory of its own.
    ///
    /// # Errors
    /// [`Error::Miss`] if it can't be had, whatever the reason.
    pub fn read(&self, namespace: &Namespace, key: &Key) -> Result<OwnedRecord> {
        let address = namespace.address(*key);
        let start = Instant::now();
        let (bytes, locations, _) = self.inner.attempt(&[address], |sources| {
            let entry = sources[0].location.entry();
            let mut bytes = vec![0; entry.len as usize];
            let span = Span {
                buffer: 0,
                offset: 0,
                len: bytes.len(),
                record: 0,
                at: 0,
            };
            let fetched = fetch(sources, vec![span], &mut [&mut bytes], self.threads())?;
            Ok(fetched.map(|fetched| (bytes, fetched)))
        })?;
        add_micros(&self.inner.counters.read_micros, start);
        let location = &locations[0];
        let layout = location.commit.manifest.layout(location.entry()).clone();
        Ok(OwnedRecord {
            info: RecordInfo::of(location),
            layout,
            bytes,
        })
    }

    /// Reads and verifies tensors of many records into the caller's memory, in parallel, with
    /// whatever strides the caller's layout has.
    ///
    /// # Errors
    /// [`Error::Miss`] with the first record that can't be had: what the buffers then hold where
    /// placements point to is not specified. [`Error::Shape`], [`Error::Index`],
    /// [`Error::OutOfBounds`], [`Error::Overlap`] if the placements don't fit, in which case
    /// nothing is written.
    pub fn read_into(
        &self,
        namespace: &Namespace,
        placements: &[Placement],
        buffers: &mut [&mut [u8]],
    ) -> Result<ReadReport> {
        let start = Instant::now();
        let mut order = HashMap::new();
        let mut addresses = Vec::new();
        for placement in placements {
            order.entry(placement.key).or_insert_with(|| {
                addresses.push(namespace.address(placement.key));
                addresses.len() - 1
            });
        }
        let ((), locations, fetched) = self.inner.attempt(&addresses, |sources| {
            let mut plan = Plan::default();
            for placement in placements {
                plan.add(placement, order[&placement.key], sources, buffers)?;
            }
            let fetched = plan.run(sources, buffers, self.threads())?;
            Ok(fetched.map(|fetched| ((), fetched)))
        })?;
        let elapsed = add_micros(&self.inner.counters.read_micros, start);
        Ok(ReadReport {
            records: locations.len(),
            bytes_read: fetched.bytes,
            bytes_copied: fetched.copied,
            threads: fetched.threads,
            elapsed,
        })
    }

    fn threads(&self) -> usize {
        self.inner.options.piece_threads()
    }
}
