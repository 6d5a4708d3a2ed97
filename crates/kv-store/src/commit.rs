//! Writing a batch: pack, manifest, commit.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::batch::{Address, Batch, Namespace};
use crate::format::{Entry, ExtentLayout, Hash, MAX_MANIFEST, Manifest};
use crate::index::Commit;
use crate::lock::Writing;
use crate::new_files::{NewFiles, random_id};
use crate::pack::{Extent, process};
use crate::refresh::{FileKind, file_name, stat};
use crate::stats::{PutReport, add, add_micros};
use crate::store::{Inner, Store};
use crate::vfs::write_all;
use crate::{DType, Error, Key, Kind, Result, View};

/// The bytes of a record on its way into a pack.
pub(crate) enum Views<'a> {
    /// Each tensor of its layout.
    Tensors(Vec<View<'a>>),
    /// Its payload as it lies in an extent.
    Payload(&'a [u8]),
}

/// A record on its way into a manifest.
pub(crate) struct Draft<'a> {
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    pub(crate) parent: Option<Key>,
    pub(crate) cost: f64,
    pub(crate) layout: Arc<ExtentLayout>,
    pub(crate) views: Views<'a>,
    pub(crate) metadata: Cow<'a, [u8]>,
    /// The hashes of its pieces, if they are known already.
    pub(crate) pieces: Option<Vec<Hash>>,
}

impl Store {
    /// Commits a batch. Records whose keys are there already are skipped without a look at
    /// their data. When this returns, everything in the batch survives a power cut.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Limit`], [`Error::Invalid`] for a batch that can't be
    /// written; [`Error::Full`], [`Error::FullOfForeign`] if it does not fit; [`Error::Busy`],
    /// [`Error::ReadOnly`], [`Error::Io`]. In all cases nothing of the batch is kept.
    pub fn put(&self, namespace: &Namespace, batch: &Batch<'_>) -> Result<PutReport> {
        let start = Instant::now();
        batch.check()?;
        let inner = &*self.inner;
        inner.refresh_if_changed()?;
        let mut report = PutReport::default();
        if inner.nothing_new(namespace, batch) {
            inner.skip_known(namespace, batch, &mut report);
            report.elapsed = start.elapsed();
            return Ok(report);
        }
        let mut writing = inner.write()?;
        inner.skip_known(namespace, batch, &mut report);
        let known = |key: &Key| inner.index.read().get(&namespace.address(*key)).is_some();
        let mut drafts = Vec::new();
        for record in batch.records.iter().filter(|r| !known(&r.key)) {
            drafts.push(Draft {
                key: record.key,
                kind: record.kind,
                parent: record.parent,
                cost: record.cost,
                layout: Arc::new(record.layout()?),
                views: Views::Tensors(record.tensors.iter().map(|(_, v)| v.clone()).collect()),
                metadata: record.metadata.into(),
                pieces: None,
            });
        }
        let needed: Vec<Address> = batch
            .records
            .iter()
            .flat_map(|r| [Some(r.key), r.parent])
            .flatten()
            .map(|key| namespace.address(key))
            .collect();
        inner.commit(&mut writing, namespace, drafts, &needed, &mut report)?;
        let kept: HashSet<Key> = batch.records.iter().map(|r| r.key).collect();
        let removals: Vec<Address> = batch
            .removals
            .iter()
            .filter(|key| !kept.contains(key))
            .map(|key| namespace.address(*key))
            .collect();
        inner.remove_records(&mut writing, &removals)?;
        drop(writing);
        report.elapsed = add_micros(&inner.counters.put_micros, start);
        Ok(report)
    }
}

impl Inner {
    fn nothing_new(&self, namespace: &Namespace, batch: &Batch<'_>) -> bool {
        let index = self.index.read();
        let known = |key: &Key| index.get(&namespace.address(*key)).is_some();
        index.condemned_count() == 0
            && batch.records.iter().all(|r| known(&r.key))
            && !batch.removals.iter().any(known)
    }

    fn skip_known(&self, namespace: &Namespace, batch: &Batch<'_>, report: &mut PutReport) {
        let index = self.index.read();
        let mut residents = index.residents.lock();
        for record in batch.records.iter().rev() {
            let address = namespace.address(record.key);
            if let Some(location) = index.get(&address) {
                report.skipped += 1;
                report.bytes_skipped += location.entry().len;
                residents.access(&address);
            }
        }
        add(&self.counters.records_skipped, report.skipped);
        add(&self.counters.bytes_skipped, report.bytes_skipped);
    }

    /// Writes the drafts as one commit. Nothing that `needed` names is evicted for it.
    pub(crate) fn commit(
        &self,
        writing: &mut Writing<'_>,
        namespace: &Namespace,
        drafts: Vec<Draft<'_>>,
        needed: &[Address],
        report: &mut PutReport,
    ) -> Result<()> {
        self.drop_condemned(writing)?;
        if drafts.is_empty() {
            return Ok(());
        }
        let (mut manifest, extents) = self.plan(namespace, drafts)?;
        let manifest_len = manifest.encode().len() as u64;
        if manifest_len > MAX_MANIFEST {
            return Err(Error::limit("manifest length", manifest_len, MAX_MANIFEST));
        }
        report.evicted += self.make_room(writing, manifest.pack_len, manifest_len, needed)?;
        writing.begin_change()?;
        let files = NewFiles::of(self, manifest.id);
        let mut sync = Duration::ZERO;
        self.write_pack(&mut manifest, &extents, &mut sync, report)?;
        let manifest_bytes = self.write_manifest(&manifest, &mut sync)?;
        self.sync_folder(&mut sync)?;
        let commit = self.describe(namespace, manifest, manifest_bytes)?;
        files.keep();
        report.written += commit.manifest.records.len();
        report.bytes_written += commit.manifest.pack_len + manifest_len;
        report.sync += sync;
        add(&self.counters.puts, 1);
        add(
            &self.counters.records_written,
            commit.manifest.records.len(),
        );
        add(
            &self.counters.bytes_written,
            commit.manifest.pack_len + manifest_len,
        );
        self.index.write().insert(Arc::new(commit));
        Ok(())
    }

    /// Gives every draft its place in a new pack.
    fn plan<'a>(
        &self,
        namespace: &Namespace,
        drafts: Vec<Draft<'a>>,
    ) -> Result<(Manifest, Vec<Extent<'a>>)> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut manifest = Manifest::new(random_id(), namespace.shared_name(), now);
        manifest.sequence = self.index.read().greatest_sequence + 1;
        let mut extents = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let len = manifest.extent_len(draft.layout.payload);
            let offset = manifest.pack_len;
            let end = offset
                .checked_add(len)
                .filter(|&end| i64::try_from(end).is_ok());
            manifest.pack_len =
                end.ok_or_else(|| Error::limit("pack length", u64::MAX, i64::MAX as u64))?;
            let layout = manifest.intern(draft.layout);
            let hashed = draft.pieces.is_some();
            let count = len.div_ceil(manifest.piece_bytes() as u64) as usize;
            manifest.records.push(Entry {
                key: draft.key,
                parent: draft.parent,
                kind: draft.kind,
                layout,
                cost: draft.cost.abs(),
                offset,
                len,
                pieces: draft.pieces.unwrap_or_else(|| vec![[0; 32]; count]).into(),
                metadata: draft.metadata.into(),
            });
            let (layout, views) = match draft.views {
                Views::Tensors(views) => (manifest.layouts[layout as usize].clone(), views),
                Views::Payload(bytes) => {
                    let view = View::contiguous(bytes, DType::U8, &[bytes.len()])?;
                    let tensor = ("", view.dtype(), view.shape());
                    let layout = ExtentLayout::place([tensor].into_iter())?;
                    (Arc::new(layout), vec![view])
                }
            };
            extents.push(Extent {
                layout,
                views,
                offset,
                len,
                hashed,
            });
        }
        Ok((manifest, extents))
    }

    fn write_pack(
        &self,
        manifest: &mut Manifest,
        extents: &[Extent<'_>],
        sync: &mut Duration,
        report: &mut PutReport,
    ) -> Result<()> {
        if manifest.pack_len == 0 {
            return Ok(());
        }
        let name = file_name(&manifest.id, FileKind::Pack);
        let file = self.vfs.create(&name).map_err(Error::io("create", &name))?;
        file.preallocate(manifest.pack_len)
            .map_err(Error::io("preallocate", &name))?;
        let (piece, threads) = (manifest.piece_bytes(), self.options.piece_threads());
        let packed =
            process(extents, piece, Some(&*file), threads).map_err(Error::io("write", &name))?;
        for (entry, pieces) in manifest.records.iter_mut().zip(packed.pieces) {
            if let Some(pieces) = pieces {
                entry.pieces = pieces.into();
            }
        }
        report.bytes_copied += packed.copied;
        report.peak_scratch_bytes = report.peak_scratch_bytes.max(packed.scratch);
        add(&self.counters.bytes_copied, packed.copied);
        self.counters
            .peak_scratch_bytes
            .fetch_max(packed.scratch, Relaxed);
        let start = Instant::now();
        // On Apple this only hands the data to the drive: the manifest's sync flushes both.
        file.sync_data(false).map_err(Error::io("sync", &name))?;
        *sync += add_micros(&self.counters.sync_micros, start);
        Ok(())
    }

    /// Writes a manifest under its final name, durably but for the folder; returns its bytes
    /// on disk.
    pub(crate) fn write_manifest(&self, manifest: &Manifest, sync: &mut Duration) -> Result<u64> {
        let temporary = file_name(&manifest.id, FileKind::Temporary);
        let name = file_name(&manifest.id, FileKind::Commit);
        let bytes = manifest.encode();
        let file = match self.vfs.create(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.vfs
                    .remove(&temporary)
                    .map_err(Error::io("remove", &temporary))?;
                self.vfs.create(&temporary)
            }
            other => other,
        }
        .map_err(Error::io("create", &temporary))?;
        write_all(&*file, &mut [IoSlice::new(&bytes)], 0)
            .map_err(Error::io("write", &temporary))?;
        let start = Instant::now();
        file.sync_data(true)
            .map_err(Error::io("sync", &temporary))?;
        *sync += add_micros(&self.counters.sync_micros, start);
        let allocated = file
            .info()
            .map_err(Error::io("stat", &temporary))?
            .allocated;
        self.vfs
            .rename(&temporary, &name)
            .map_err(Error::io("rename", &name))?;
        add(&self.counters.manifest_bytes_written, bytes.len());
        Ok(allocated)
    }

    pub(crate) fn sync_folder(&self, sync: &mut Duration) -> Result<()> {
        let start = Instant::now();
        self.vfs.sync_folder().map_err(Error::io("sync", "v1"))?;
        *sync += add_micros(&self.counters.sync_micros, start);
        Ok(())
    }

    /// What the index needs to know of files that were just written.
    pub(crate) fn describe(
        &self,
        namespace: &Namespace,
        manifest: Manifest,
        manifest_bytes: u64,
    ) -> Result<Commit> {
        let info = |kind| {
            let name = file_name(&manifest.id, kind);
            let info = stat(&*self.vfs, &name).map_err(Error::io("stat", name))?;
            Ok::<_, Error>(info.unwrap_or_default())
        };
        let (identity, pack) = (info(FileKind::Commit)?.identity, info(FileKind::Pack)?);
        Ok(Commit::new(
            manifest,
            namespace.clone(),
            identity,
            manifest_bytes,
            pack,
        ))
    }
}
