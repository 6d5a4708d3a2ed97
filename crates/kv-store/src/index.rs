//! What the manifests in the folder say, held in memory.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::Key;
use crate::batch::{Address, Namespace};
use crate::format::{Entry, Manifest, SnapshotTable};
use crate::key::Kind;
use crate::refresh::{FileKind, file_name};
use crate::retention::Residents;
use crate::vfs::Info;

/// A manifest, and what is known of its two files.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) manifest: Manifest,
    pub(crate) namespace: Namespace,
    /// Identifies the manifest's file, so that its replacement is noticed.
    pub(crate) identity: u128,
    pub(crate) manifest_bytes: u64,
    /// Changes when the pack is shrunk; [`Index::used`] is its sum.
    pack_bytes: AtomicU64,
    /// Whether the pack was there, and long enough, when last looked at.
    pack_present: bool,
}

impl Commit {
    pub(crate) fn new(
        manifest: Manifest,
        namespace: Namespace,
        identity: u128,
        manifest_bytes: u64,
        pack: Info,
    ) -> Self {
        Self {
            namespace,
            identity,
            manifest_bytes,
            pack_bytes: pack.allocated.into(),
            pack_present: pack.regular && pack.len >= manifest.pack_len,
            manifest,
        }
    }

    /// Whether its pack is gone, or cut: then nothing of the batch counts, not even a snapshot
    /// without bytes of its own, which would hide an older one whose blocks are there.
    pub(crate) fn is_void(&self) -> bool {
        self.manifest.pack_len > 0 && !self.pack_present
    }

    pub(crate) fn pack_bytes(&self) -> u64 {
        self.pack_bytes.load(Relaxed)
    }
}

/// A record: its commit, and its place in the manifest.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) commit: Arc<Commit>,
    pub(crate) entry: u32,
}

impl Location {
    pub(crate) fn entry(&self) -> &Entry {
        &self.commit.manifest.records[self.entry as usize]
    }
}

/// A file that is not understood, or that no manifest explains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    pub(crate) bytes: u64,
    pub(crate) identity: u128,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) commits: HashMap<[u8; 16], Arc<Commit>>,
    records: HashMap<Address, Location>,
    /// How many snapshots refer to each content block.
    references: HashMap<Address, u32>,
    /// Records found damaged, by manifest: not found, and removed by the next writer.
    condemned: HashSet<([u8; 16], Key)>,
    /// Commits whose packs somebody was reading when they were to be shrunk.
    pub(crate) deferred: HashSet<[u8; 16]>,
    /// Foreign files by name; the bytes of their packs are included.
    pub(crate) foreign: BTreeMap<String, Foreign>,
    /// Bytes beside the store's own folder.
    pub(crate) outside: u64,
    /// Raised with every change to the commits, so that a refresh notices one under its hands.
    pub(crate) epoch: u64,
    pub(crate) greatest_sequence: u64,
    used: u64,
    /// The greatest manifest there was: what replacing one may need for a moment.
    pub(crate) largest_manifest: u64,
    pub(crate) residents: Mutex<Residents>,
}

impl Index {
    pub(crate) fn get(&self, address: &Address) -> Option<&Location> {
        self.records.get(address)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (&Address, &Location)> {
        self.records.iter()
    }

    pub(crate) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Bytes of everything in the folder.
    pub(crate) fn used(&self) -> u64 {
        self.used + self.foreign_bytes()
    }

    pub(crate) fn foreign_bytes(&self) -> u64 {
        self.outside + self.foreign.values().map(|f| f.bytes).sum::<u64>()
    }

    pub(crate) fn references(&self, address: &Address) -> u32 {
        self.references.get(address).copied().unwrap_or(0)
    }

    /// Adds a commit, in place of an earlier generation of it, whose records keep their age.
    pub(crate) fn insert(&mut self, commit: Arc<Commit>) {
        let id = commit.manifest.id;
        self.epoch += 1;
        // Its pack may have been seen while it had no manifest yet.
        self.foreign.remove(&file_name(&id, FileKind::Pack));
        if let Some(old) = self.commits.remove(&id) {
            self.used -= old.manifest_bytes + old.pack_bytes();
            let kept: HashSet<&Key> = commit.manifest.records.iter().map(|e| &e.key).collect();
            self.forget_records(&old, |key| !kept.contains(key));
        }
        self.greatest_sequence = self.greatest_sequence.max(commit.manifest.sequence);
        self.largest_manifest = self.largest_manifest.max(commit.manifest_bytes);
        self.used += commit.manifest_bytes + commit.pack_bytes();
        let rank = |c: &Commit| (c.manifest.sequence, c.manifest.id);
        for (i, entry) in commit.manifest.records.iter().enumerate() {
            if commit.is_void() || self.condemned.contains(&(id, entry.key)) {
                continue;
            }
            let address = commit.namespace.address(entry.key);
            let location = Location {
                commit: commit.clone(),
                entry: i as u32,
            };
            match self.records.entry(address) {
                Slot::Occupied(known) if rank(&known.get().commit) > rank(&commit) => {}
                Slot::Occupied(mut known) => {
                    let old = known.insert(location);
                    if old.commit.manifest.id != id {
                        self.unlink(&address, &old);
                        self.link(&commit.namespace, &address, entry);
                    }
                }
                Slot::Vacant(free) => {
                    free.insert(location);
                    self.link(&commit.namespace, &address, entry);
                }
            }
        }
        self.commits.insert(id, commit);
    }

    /// Forgets a commit and its records.
    pub(crate) fn remove(&mut self, id: &[u8; 16]) {
        self.epoch += 1;
        if let Some(commit) = self.commits.remove(id) {
            self.used -= commit.manifest_bytes + commit.pack_bytes();
            self.forget_records(&commit, |_| true);
        }
    }

    fn forget_records(&mut self, commit: &Commit, which: impl Fn(&Key) -> bool) {
        for entry in commit.manifest.records.iter().filter(|e| which(&e.key)) {
            let address = commit.namespace.address(entry.key);
            if self.is_at(&address, &commit.manifest.id)
                && let Some(location) = self.records.remove(&address)
            {
                self.unlink(&address, &location);
            }
        }
    }

    /// Notes that a pack was shrunk.
    pub(crate) fn set_pack_bytes(&mut self, id: &[u8; 16], bytes: u64) {
        if let Some(commit) = self.commits.get(id) {
            self.used = self.used - commit.pack_bytes.swap(bytes, Relaxed) + bytes;
        }
    }

    fn is_at(&self, address: &Address, id: &[u8; 16]) -> bool {
        self.records
            .get(address)
            .is_some_and(|l| l.commit.manifest.id == *id)
    }

    /// Drops a record that was found damaged; whether it was still there.
    pub(crate) fn condemn(&mut self, address: &Address, id: &[u8; 16]) -> bool {
        self.condemned.insert((*id, address.key));
        let here = self.is_at(address, id);
        if here && let Some(location) = self.records.remove(address) {
            self.unlink(address, &location);
        }
        here
    }

    pub(crate) fn is_condemned(&self, id: &[u8; 16], key: &Key) -> bool {
        self.condemned.contains(&(*id, *key))
    }

    pub(crate) fn condemned_count(&self) -> usize {
        self.condemned.len()
    }

    /// Takes the list of damaged records that are still in manifests.
    pub(crate) fn condemned(&self) -> Vec<([u8; 16], Key)> {
        self.condemned.iter().copied().collect()
    }

    pub(crate) fn forget_condemned(&mut self, id: &[u8; 16], key: &Key) {
        self.condemned.remove(&(*id, *key));
    }

    /// The blocks that a snapshot's record refers to.
    pub(crate) fn blocks_of(namespace: &Namespace, entry: &Entry) -> Vec<Address> {
        if entry.kind != Kind::Snapshot {
            return Vec::new();
        }
        let table = SnapshotTable::decode(&entry.metadata);
        let groups = table.map(|t| t.groups).unwrap_or_default();
        groups
            .iter()
            .flat_map(|g| &g.blocks)
            .map(|b| namespace.address(b.key))
            .collect()
    }

    /// The bytes that a record stands for in the eyes of the policy: a snapshot for its blocks.
    pub(crate) fn weight(entry: &Entry) -> u64 {
        /// A table may claim anything: the sum that the policy keeps must not overflow, or what
        /// comes later would be out of its sight.
        const GREATEST: u64 = 1 << 44;
        let bytes = match entry.kind {
            Kind::Snapshot => SnapshotTable::decode(&entry.metadata).map_or(0, |t| t.bytes()),
            _ => entry.len,
        };
        bytes.min(GREATEST)
    }

    /// Keeps a content block as a snapshot does.
    pub(crate) fn hold(&mut self, block: Address) {
        *self.references.entry(block).or_default() += 1;
    }

    pub(crate) fn release(&mut self, block: &Address) {
        if let Slot::Occupied(mut count) = self.references.entry(*block) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Records that no snapshot refers to though they are content blocks, and copies of records
    /// that a later commit replaced: garbage inside packs.
    pub(crate) fn dead_records(&self) -> BTreeMap<[u8; 16], HashSet<Key>> {
        let mut dead: BTreeMap<[u8; 16], HashSet<Key>> = BTreeMap::new();
        for (id, commit) in &self.commits {
            for entry in &commit.manifest.records {
                let address = commit.namespace.address(entry.key);
                let current = self
                    .get(&address)
                    .is_some_and(|l| l.commit.manifest.id == *id);
                let orphan = entry.kind == Kind::Content
                    && self.references(&address) == 0
                    && self.foreign.is_empty();
                if !current || orphan {
                    dead.entry(*id).or_default().insert(entry.key);
                }
            }
        }
        dead
    }

    fn link(&mut self, namespace: &Namespace, address: &Address, entry: &Entry) {
        for block in Self::blocks_of(namespace, entry) {
            self.hold(block);
        }
        if entry.kind != Kind::Content {
            let parent = entry.parent.map(|key| namespace.address(key));
            let bytes = Self::weight(entry);
            self.residents
                .get_mut()
                .insert(*address, bytes, entry.cost, parent);
        }
    }

    fn unlink(&mut self, address: &Address, location: &Location) {
        let entry = location.entry();
        for block in Self::blocks_of(&location.commit.namespace, entry) {
            self.release(&block);
        }
        if entry.kind != Kind::Content {
            self.residents.get_mut().remove(address);
        }
    }
}
