//! Carrying a snapshot, or a set of records, to another store: docs/format.md, section 6.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::admin::Progress;
use crate::batch::{Address, Namespace};
use crate::commit::{Draft, Views};
use crate::fetch::{Span, fetch};
use crate::format::{Entry, ExportHeader, ExtentLayout, Manifest, SnapshotTable};
use crate::index::{Index, Location};
use crate::lock::Writing;
use crate::new_files::random_id;
use crate::pins::Pins;
use crate::snapshot::content_key;
use crate::stats::PutReport;
use crate::store::{Inner, Store};
use crate::{Error, Key, Kind, Result};

/// An import commits whenever it holds this much.
const COMMIT_BYTES: u64 = 64 << 20;

/// What to export.
#[derive(Clone, Copy, Debug)]
pub enum Export<'a> {
    /// A snapshot with all its blocks.
    Snapshot(&'a str),
    /// Records by their keys, commonly a chain of blocks.
    Records(&'a [Key]),
}

impl Store {
    /// Writes a snapshot, or records, to a stream that [`Store::import`] reads. Every byte is
    /// verified before it is written. Returns the bytes written.
    ///
    /// # Errors
    /// [`Error::Miss`] if something of it can't be had; [`Error::Io`] if the stream fails;
    /// [`Error::Stopped`] if the callback asked for it.
    pub fn export(
        &self,
        namespace: &Namespace,
        what: Export<'_>,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<u64> {
        let inner = &*self.inner;
        let addresses = inner.chosen(namespace, what)?;
        // Nothing of it is evicted by this process meanwhile.
        let _pins = Pins::new(inner, &addresses);
        let locations: Vec<Location> = addresses
            .iter()
            .map(|a| inner.locate(*a))
            .collect::<Result<_>>()?;
        let manifest = export_manifest(namespace, &locations).encode();
        let header = ExportHeader {
            manifest_len: manifest.len() as u64,
        };
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(Error::io("write", "export"));
        write(&header.encode())?;
        write(&manifest)?;
        let pack = header.pack_offset();
        let padding = pack as usize - ExportHeader::BYTES - manifest.len();
        write(&vec![0; padding])?;
        let total = locations.iter().map(|l| l.entry().len).sum::<u64>() + pack;
        let mut written = pack;
        for address in &addresses {
            let bytes = inner.read_extent(*address)?;
            write(&bytes)?;
            written += bytes.len() as u64;
            if !progress(written, total) {
                return Err(Error::Stopped);
            }
        }
        out.flush().map_err(Error::io("write", "export"))?;
        Ok(written)
    }

    /// Reads what [`Store::export`] wrote into a namespace. Every hash is checked, padding must be
    /// zero, and content blocks and snapshots must have the keys that follow from them. The keys
    /// of other records can't be checked: import only from a source whose computations you would
    /// use. In memory it holds the manifest, and 64 MiB or the largest extent beyond that.
    ///
    /// # Errors
    /// [`Error::Format`], [`Error::Version`] for a stream that is damaged, cut or of a newer
    /// version, [`Error::Io`] if it fails, and the errors of [`Store::put`]. Blocks committed
    /// before an error are unreachable garbage, which [`Store::collect`] frees; records with
    /// keys of the caller's stay.
    pub fn import(
        &self,
        namespace: &Namespace,
        input: &mut dyn Read,
        progress: Progress<'_>,
    ) -> Result<PutReport> {
        let mut stream = Stream { input, offset: 0 };
        let manifest = stream.manifest()?;
        check_snapshots(&manifest, stream.offset)?;
        let mut writing = self.inner.write()?;
        let mut importing = Importing {
            inner: &self.inner,
            namespace,
            writing: &mut writing,
            needed: manifest
                .records
                .iter()
                .map(|e| namespace.address(e.key))
                .collect(),
            held: Vec::new(),
            held_bytes: 0,
            keep_hashes: manifest.cuts_as_written_here(),
            report: PutReport::default(),
        };
        let mut entries: Vec<&Entry> = manifest.records.iter().collect();
        entries.sort_by_key(|e| (e.kind == Kind::Snapshot, e.offset));
        let mut at = 0;
        for entry in entries {
            if entry.len > 0 && entry.offset != at {
                return Err(stream.invalid("extents without gaps"));
            }
            at += entry.len;
            let bytes = stream.extent(&manifest, entry)?;
            importing.add(&manifest, entry, bytes)?;
            if !progress(at, manifest.pack_len) {
                return Err(Error::Stopped);
            }
        }
        if at != manifest.pack_len || !stream.is_at_end()? {
            return Err(stream.invalid("the end"));
        }
        importing.commit()?;
        Ok(importing.report)
    }
}

impl Inner {
    /// The records of an export, blocks before the snapshot that refers to them.
    fn chosen(&self, namespace: &Namespace, what: Export<'_>) -> Result<Vec<Address>> {
        let mut seen = HashSet::new();
        let mut addresses = match what {
            Export::Records(keys) => keys.iter().map(|k| namespace.address(*k)).collect(),
            Export::Snapshot(name) => {
                let own = namespace.address(Key::of_snapshot(name));
                let location = self.locate(own)?;
                let mut all = Index::blocks_of(namespace, location.entry());
                all.push(own);
                all
            }
        };
        addresses.retain(|a: &Address| seen.insert(*a));
        Ok(addresses)
    }

    /// The whole verified extent of a record.
    fn read_extent(&self, address: Address) -> Result<Vec<u8>> {
        let threads = self.options.piece_threads();
        let (bytes, _, _) = self.attempt(&[address], |sources| {
            let mut bytes = vec![0; sources[0].location.entry().len as usize];
            let span = Span {
                buffer: 0,
                offset: 0,
                len: bytes.len(),
                record: 0,
                at: 0,
            };
            let fetched = fetch(sources, vec![span], &mut [&mut bytes], threads)?;
            Ok(fetched.map(|fetched| (bytes, fetched)))
        })?;
        Ok(bytes)
    }
}

fn export_manifest(namespace: &Namespace, locations: &[Location]) -> Manifest {
    let mut manifest = Manifest::new(random_id(), namespace.shared_name(), 0);
    for location in locations {
        let mut entry = location.entry().clone();
        entry.layout = manifest.intern(location.commit.manifest.layout(&entry).clone());
        entry.offset = manifest.pack_len;
        manifest.pack_len += entry.len;
        manifest.records.push(entry);
    }
    manifest
}

/// Every snapshot has the key of its name; its blocks are looked for when it is committed.
fn check_snapshots(manifest: &Manifest, offset: u64) -> Result<()> {
    for entry in manifest.records.iter().filter(|e| e.kind == Kind::Snapshot) {
        let table = SnapshotTable::decode(&entry.metadata)?;
        if entry.key != Key::of_snapshot(&table.name) {
            return Err(Error::Format {
                offset,
                what: "the key of the snapshot's name",
            });
        }
    }
    Ok(())
}

struct Stream<'r> {
    input: &'r mut dyn Read,
    offset: u64,
}

impl Stream<'_> {
    fn invalid(&self, what: &'static str) -> Error {
        Error::Format {
            offset: self.offset,
            what,
        }
    }

    /// Exactly `n` bytes. Memory grows with what is there, not with what is claimed.
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut part = Read::take(&mut *self.input, n);
        part.read_to_end(&mut bytes)
            .map_err(Error::io("read", "import"))?;
        self.offset += bytes.len() as u64;
        if bytes.len() as u64 != n {
            return Err(self.invalid("more bytes than there are"));
        }
        Ok(bytes)
    }

    fn manifest(&mut self) -> Result<Manifest> {
        let mut header = [0; ExportHeader::BYTES];
        header.copy_from_slice(&self.bytes(ExportHeader::BYTES as u64)?);
        let header = ExportHeader::decode(&header)?;
        let manifest = Manifest::decode(&self.bytes(header.manifest_len)?)?;
        let padding = self.bytes(header.pack_offset() - self.offset)?;
        if padding.iter().any(|&b| b != 0) {
            return Err(self.invalid("zero bytes before the pack"));
        }
        Ok(manifest)
    }

    fn extent(&mut self, manifest: &Manifest, entry: &Entry) -> Result<Vec<u8>> {
        let bytes = self.bytes(entry.len)?;
        let pieces = bytes.chunks(manifest.piece_bytes());
        let sums = pieces.map(|piece| *blake3::hash(piece).as_bytes());
        if !sums.eq(entry.pieces.iter().copied()) {
            return Err(self.invalid("an extent with the hashes of its pieces"));
        }
        let layout = manifest.layout(entry);
        if !layout
            .padding(&bytes)
            .all(|gap| gap.iter().all(|&b| b == 0))
        {
            return Err(self.invalid("zero bytes between tensors"));
        }
        if entry.kind == Kind::Content && entry.key != content_key(layout, &entry.pieces) {
            return Err(self.invalid("a block with the key of its content"));
        }
        Ok(bytes)
    }

    fn is_at_end(&mut self) -> Result<bool> {
        loop {
            match self.input.read(&mut [0]) {
                Ok(n) => return Ok(n == 0),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read", "import")(e)),
            }
        }
    }
}

struct Importing<'i, 'w> {
    inner: &'i Inner,
    namespace: &'i Namespace,
    writing: &'i mut Writing<'w>,
    needed: Vec<Address>,
    held: Vec<(Entry, Arc<ExtentLayout>, Vec<u8>)>,
    held_bytes: u64,
    keep_hashes: bool,
    report: PutReport,
}

impl Importing<'_, '_> {
    fn add(&mut self, manifest: &Manifest, entry: &Entry, bytes: Vec<u8>) -> Result<()> {
        let address = self.namespace.address(entry.key);
        let known = self.inner.index.read().get(&address).is_some();
        if known && entry.kind != Kind::Snapshot {
            self.report.skipped += 1;
            self.report.bytes_skipped += entry.len;
            return Ok(());
        }
        self.held_bytes += bytes.len() as u64;
        self.held
            .push((entry.clone(), manifest.layout(entry).clone(), bytes));
        if self.held_bytes >= COMMIT_BYTES {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn commit(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let present: HashSet<Key> = held.iter().map(|(entry, _, _)| entry.key).collect();
        for (entry, _, _) in held.iter().filter(|(e, _, _)| e.kind == Kind::Snapshot) {
            let index = self.inner.index.read();
            for block in Index::blocks_of(self.namespace, entry) {
                if index.get(&block).is_none() && !present.contains(&block.key) {
                    return Err(Error::Miss {
                        key: block.key,
                        reason: crate::Miss::Absent,
                    });
                }
            }
        }
        let keep = self.keep_hashes;
        let drafts = held
            .iter()
            .map(|(entry, layout, bytes)| draft(entry, layout, bytes, keep))
            .collect();
        // Blocks that are here already must outlive what is evicted for the others.
        let pins = Pins::new(self.inner, &self.needed);
        let replaced: Vec<Location> = {
            let index = self.inner.index.read();
            let snapshots = held.iter().filter(|(e, _, _)| e.kind == Kind::Snapshot);
            snapshots
                .filter_map(|(e, _, _)| index.get(&self.namespace.address(e.key)).cloned())
                .collect()
        };
        self.inner.commit(
            self.writing,
            self.namespace,
            drafts,
            &self.needed,
            &mut self.report,
        )?;
        drop(pins);
        for old in replaced {
            self.inner.drop_replaced(self.writing, &old)?;
        }
        Ok(())
    }
}

/// A record as it came; its hashes are kept if the stream cuts pieces as this version does.
fn draft<'a>(
    entry: &'a Entry,
    layout: &Arc<ExtentLayout>,
    bytes: &'a [u8],
    keep_hashes: bool,
) -> Draft<'a> {
    Draft {
        key: entry.key,
        kind: entry.kind,
        parent: entry.parent,
        cost: entry.cost,
        layout: layout.clone(),
        views: Views::Payload(&bytes[..layout.payload]),
        metadata: (&*entry.metadata).into(),
        pieces: keep_hashes.then(|| entry.pieces.to_vec()),
    }
}
