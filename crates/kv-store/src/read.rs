//! The reading half of the store: records as owned buffers, or into the caller's memory.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Address, Namespace};
use crate::fetch::{Fetched, Source, Span, fetch};
use crate::format::ExtentLayout;
use crate::index::Location;
use crate::refresh::{FileKind, file_name};
use crate::stats::{ReadReport, add, add_micros};
use crate::store::{Inner, RecordInfo, Store};
use crate::vfs::VfsFile;
use crate::{Error, Key, Layout, Miss, Result, Runs, View, ViewMut};

/// Destinations whose runs are shorter than this are filled by tiles, from a packed copy.
const SHORT_RUN: usize = 512;

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

/// Where all the bytes go.
#[derive(Default)]
struct Plan<'p> {
    spans: Vec<Span>,
    /// Packed copies of tensors whose destinations lie in short runs.
    staged: Vec<(&'p Placement, usize, Vec<u8>)>,
}

impl<'p> Plan<'p> {
    fn add(
        &mut self,
        placement: &'p Placement,
        record: usize,
        sources: &[Source],
        buffers: &[&mut [u8]],
    ) -> Result<()> {
        let location = &sources[record].location;
        let tensors = &location.commit.manifest.layout(location.entry()).tensors;
        let Some(tensor) = tensors.get(placement.tensor) else {
            return Err(Error::Index {
                what: "tensor",
                index: placement.tensor,
                count: tensors.len(),
            });
        };
        let (buffer, layout) = (placement.buffer, &placement.layout);
        let Some(destination) = buffers.get(buffer) else {
            return Err(Error::Index {
                what: "buffer",
                index: buffer,
                count: buffers.len(),
            });
        };
        if layout.shape() != tensor.shape {
            return Err(Error::Shape {
                expected: tensor.shape.clone(),
                found: layout.shape().to_vec(),
            });
        }
        let item = tensor.dtype.size();
        layout.check(destination.len() / item)?;
        if !layout.is_injective() {
            return Err(Error::Overlap {
                buffer,
                offset: layout.offset() * item,
            });
        }
        let runs = Runs::new(layout, item);
        if runs.run_bytes() < SHORT_RUN.min(tensor.bytes) {
            let buffer = buffers.len() + self.staged.len();
            let span = Span {
                buffer,
                offset: 0,
                len: tensor.bytes,
                record,
                at: tensor.offset,
            };
            self.spans.push(span);
            self.staged.push((placement, item, vec![0; tensor.bytes]));
            return Ok(());
        }
        let mut at = tensor.offset;
        for run in runs {
            self.spans.push(Span {
                buffer,
                offset: run.start,
                len: run.len(),
                record,
                at,
            });
            at += run.len();
        }
        Ok(())
    }

    fn run(
        mut self,
        sources: &[Source],
        buffers: &mut [&mut [u8]],
        threads: usize,
    ) -> Result<Result<Fetched, crate::fetch::Failure>> {
        let mut all: Vec<&mut [u8]> = buffers.iter_mut().map(|b| &mut **b).collect();
        all.extend(
            self.staged
                .iter_mut()
                .map(|(_, _, bytes)| bytes.as_mut_slice()),
        );
        let fetched = fetch(sources, self.spans, &mut all, threads)?;
        let Ok(mut fetched) = fetched else {
            return Ok(fetched);
        };
        for (placement, item, packed) in self.staged {
            let buffer = &mut *buffers[placement.buffer];
            // Elements of this size, whatever they mean.
            let dtype = match item {
                1 => crate::DType::U8,
                2 => crate::DType::U16,
                4 => crate::DType::U32,
                _ => crate::DType::U64,
            };
            ViewMut::new(buffer, dtype, placement.layout.clone())?.copy_from(&packed)?;
            fetched.copied += packed.len() as u64;
        }
        Ok(Ok(fetched))
    }
}

impl Inner {
    /// Finds the records, opens their packs and reads. If one is damaged, a look at the folder
    /// tells whether it was moved or removed meanwhile, or whether it is torn.
    pub(crate) fn attempt<T>(
        &self,
        addresses: &[Address],
        mut read: impl FnMut(&[Source]) -> Result<Result<(T, Fetched), crate::fetch::Failure>>,
    ) -> Result<(T, Vec<Location>, Fetched)> {
        let mut moved = 0;
        loop {
            let locations: Vec<Location> = addresses
                .iter()
                .map(|a| self.locate(*a))
                .collect::<Result<_>>()?;
            let outcome = match self.open_all(&locations) {
                Ok(sources) => read(&sources)?,
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok((value, fetched)) => {
                    self.count_hits(addresses, fetched.bytes);
                    return Ok((value, locations, fetched));
                }
                Err((record, reason)) => {
                    let address = addresses[record];
                    match self.diagnose(&address, &locations[record], reason) {
                        // Others may move it again; after a few times that is a miss.
                        None if moved < 3 => moved += 1,
                        None => return Err(self.miss(address.key, Miss::Removed)),
                        Some(reason) => return Err(self.miss(address.key, reason)),
                    }
                }
            }
        }
    }

    pub(crate) fn open_all(&self, locations: &[Location]) -> Result<Vec<Source>, (usize, Miss)> {
        let mut open: HashMap<[u8; 16], Arc<dyn VfsFile>> = HashMap::new();
        let mut sources = Vec::with_capacity(locations.len());
        for (i, location) in locations.iter().enumerate() {
            let id = location.commit.manifest.id;
            let file = match open.get(&id) {
                Some(file) => Some(file.clone()),
                None => self.open_pack(location).map_err(|reason| (i, reason))?,
            };
            open.extend(file.clone().map(|file| (id, file)));
            sources.push(Source {
                location: location.clone(),
                file,
            });
        }
        Ok(sources)
    }

    /// The pack of a record; none if all its tensors are empty.
    fn open_pack(&self, location: &Location) -> Result<Option<Arc<dyn VfsFile>>, Miss> {
        let manifest = &location.commit.manifest;
        if location.entry().len == 0 {
            return Ok(None);
        }
        let file = self
            .vfs
            .open(&file_name(&manifest.id, FileKind::Pack), false);
        let file = file.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => Miss::Truncated,
            _ => Miss::Unreadable,
        })?;
        // Keeps the pack from being punched. Whoever punches it now is done in a moment, and
        // what was punched fails its hash.
        for _ in 0..100 {
            if file.try_lock(false).map_err(|_| Miss::Unreadable)? {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let info = file.info().map_err(|_| Miss::Unreadable)?;
        if info.len < location.entry().offset + location.entry().len {
            return Err(Miss::Truncated);
        }
        Ok(Some(Arc::from(file)))
    }

    /// Why a read failed; nothing if the record lies elsewhere by now.
    pub(crate) fn diagnose(
        &self,
        address: &Address,
        location: &Location,
        reason: Miss,
    ) -> Option<Miss> {
        if reason == Miss::Unreadable {
            return Some(reason);
        }
        let id = location.commit.manifest.id;
        // What can't be looked at now is not judged.
        if !self.refresh().unwrap_or(false) {
            return Some(Miss::Unreadable);
        }
        let now = self.index.read().get(address).cloned();
        match now {
            None => Some(Miss::Removed),
            Some(now) if now.commit.manifest.id != id => None,
            Some(_) => {
                tracing::warn!(key = %address.key, %reason, "a record is damaged; it is dropped");
                if self.index.write().condemn(address, &id) {
                    add(&self.counters.torn, 1);
                }
                Some(reason)
            }
        }
    }

    fn count_hits(&self, addresses: &[Address], bytes: u64) {
        add(&self.counters.hits, addresses.len());
        add(&self.counters.bytes_read, bytes);
        let index = self.index.read();
        let mut residents = index.residents.lock();
        // Ancestors last, so that they are never older than their descendants.
        for address in addresses.iter().rev() {
            residents.access(address);
        }
    }
}
