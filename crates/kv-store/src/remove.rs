//! Removing records in two phases: docs/format.md, section 7.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Address;
use crate::format::{ExtentLayout, Manifest};
use crate::index::{Commit, Index, Location};
use crate::lock::Writing;
use crate::refresh::{FileKind, file_name};
use crate::stats::add;
use crate::store::Inner;
use crate::{Error, Key, Result};

impl Inner {
    /// Removes damaged records from their manifests.
    pub(crate) fn drop_condemned(&self, writing: &mut Writing<'_>) -> Result<()> {
        let condemned = self.index.read().condemned();
        if condemned.is_empty() {
            return Ok(());
        }
        let mut by_commit: BTreeMap<[u8; 16], HashSet<Key>> = BTreeMap::new();
        for (id, key) in &condemned {
            by_commit.entry(*id).or_default().insert(*key);
        }
        self.rewrite(writing, &by_commit)?;
        let mut index = self.index.write();
        for (id, key) in &condemned {
            index.forget_condemned(id, key);
        }
        Ok(())
    }

    /// Removes these records, and the blocks that only they refer to. Those that are not there
    /// are no error.
    pub(crate) fn remove_records(
        &self,
        writing: &mut Writing<'_>,
        addresses: &[Address],
    ) -> Result<usize> {
        let by_commit = self.with_orphans(addresses);
        let count = by_commit.values().map(HashSet::len).sum();
        self.rewrite(writing, &by_commit)?;
        Ok(count)
    }

    fn with_orphans(&self, addresses: &[Address]) -> BTreeMap<[u8; 16], HashSet<Key>> {
        let index = self.index.read();
        let mut by_commit: BTreeMap<[u8; 16], HashSet<Key>> = BTreeMap::new();
        let mut condemn = |address: &Address| {
            let location = index.get(address)?;
            by_commit
                .entry(location.commit.manifest.id)
                .or_default()
                .insert(address.key);
            Some(location.clone())
        };
        let mut fewer: HashMap<Address, u32> = HashMap::new();
        let unique: HashSet<&Address> = addresses.iter().collect();
        for location in unique.into_iter().filter_map(&mut condemn) {
            for block in Index::blocks_of(&location.commit.namespace, location.entry()) {
                *fewer.entry(block).or_default() += 1;
            }
        }
        // A manifest that can't be read may hold a snapshot that refers to any block.
        if index.foreign.is_empty() {
            for (block, n) in fewer {
                if index.references(&block) <= n {
                    condemn(&block);
                }
            }
        }
        by_commit
    }

    /// Removes the record of a snapshot that a later one of the same name has replaced, with the
    /// blocks that no snapshot refers to any more.
    pub(crate) fn drop_replaced(&self, writing: &mut Writing<'_>, old: &Location) -> Result<()> {
        let key = old.entry().key;
        let mut dead = BTreeMap::from([(old.commit.manifest.id, HashSet::from([key]))]);
        let index = self.index.read();
        let blocks = Index::blocks_of(&old.commit.namespace, old.entry());
        let unread = !index.foreign.is_empty();
        for block in blocks
            .iter()
            .filter(|b| !unread && index.references(b) == 0)
        {
            if let Some(location) = index.get(block) {
                dead.entry(location.commit.manifest.id)
                    .or_default()
                    .insert(block.key);
            }
        }
        drop(index);
        self.rewrite(writing, &dead)
    }

    /// Takes records out of their manifests, then frees what they held.
    pub(crate) fn rewrite(
        &self,
        writing: &mut Writing<'_>,
        by_commit: &BTreeMap<[u8; 16], HashSet<Key>>,
    ) -> Result<()> {
        if by_commit.is_empty() {
            return Ok(());
        }
        writing.begin_change()?;
        let result = self.rewrite_inner(by_commit);
        if result.is_err() {
            writing.unsettle();
        }
        result
    }

    fn rewrite_inner(&self, by_commit: &BTreeMap<[u8; 16], HashSet<Key>>) -> Result<()> {
        let mut sync = Duration::ZERO;
        let mut shrunk = Vec::new();
        for (id, keys) in by_commit {
            let Some(commit) = self.index.read().commits.get(id).cloned() else {
                continue;
            };
            let manifest = without(&commit.manifest, keys);
            if manifest.records.is_empty() {
                let name = file_name(id, FileKind::Commit);
                match self.vfs.remove(&name) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &name)(e));
                    }
                    _ => {}
                }
                self.index.write().remove(id);
                shrunk.push((commit, None));
            } else {
                let bytes = self.write_manifest(&manifest, &mut sync)?;
                let smaller = Arc::new(self.describe(&commit.namespace, manifest, bytes)?);
                self.index.write().insert(smaller.clone());
                shrunk.push((commit, Some(smaller)));
            }
        }
        // Phase one is durable before phase two destroys anything.
        self.sync_folder(&mut sync)?;
        for (before, after) in shrunk {
            match after {
                None => self.unlink_pack(&before)?,
                Some(after) => self.shrink_pack(&after)?,
            }
        }
        Ok(())
    }

    fn unlink_pack(&self, commit: &Commit) -> Result<()> {
        if commit.manifest.pack_len == 0 {
            return Ok(());
        }
        let name = file_name(&commit.manifest.id, FileKind::Pack);
        add(&self.counters.bytes_freed, commit.pack_bytes());
        match self.vfs.remove(&name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &name)(e)),
            _ => Ok(()),
        }
    }

    /// Gives back what no record of the manifest holds, unless somebody reads the pack.
    pub(crate) fn shrink_pack(&self, commit: &Arc<Commit>) -> Result<()> {
        let name = file_name(&commit.manifest.id, FileKind::Pack);
        let file = match self.vfs.open(&name, true) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(Error::io("open", &name))?,
        };
        if !file.try_lock(true).map_err(Error::io("lock", &name))? {
            add(&self.counters.deferred, 1);
            self.index.write().deferred.insert(commit.manifest.id);
            tracing::debug!(
                file = name,
                "somebody reads a pack; its dead bytes stay for now"
            );
            return Ok(());
        }
        if commit.manifest.pack_len == 0 {
            self.vfs.remove(&name).map_err(Error::io("remove", &name))?;
        } else {
            let len = file.info().map_err(Error::io("stat", &name))?.len;
            if len > commit.manifest.pack_len {
                file.truncate(commit.manifest.pack_len)
                    .map_err(Error::io("truncate", &name))?;
            }
            for (from, to) in gaps(&commit.manifest) {
                match file.punch(from, to - from) {
                    Err(e) if e.kind() == io::ErrorKind::Unsupported => break,
                    other => other.map_err(Error::io("punch", &name))?,
                }
            }
        }
        let pack_bytes = self.vfs.info(&name).unwrap_or_default().allocated;
        add(
            &self.counters.bytes_freed,
            commit.pack_bytes().saturating_sub(pack_bytes),
        );
        self.index
            .write()
            .set_pack_bytes(&commit.manifest.id, pack_bytes);
        Ok(())
    }
}

/// The manifest of what is left when these records are gone.
fn without(manifest: &Manifest, keys: &HashSet<Key>) -> Manifest {
    let mut left = manifest.clone();
    left.records.retain(|entry| !keys.contains(&entry.key));
    left.generation += 1;
    left.pack_len = left
        .records
        .iter()
        .map(|e| e.offset + e.len)
        .max()
        .unwrap_or(0);
    left.layouts.clear();
    for entry in &mut left.records {
        entry.layout = left_layout(&mut left.layouts, manifest, entry.layout);
    }
    left
}

fn left_layout(layouts: &mut Vec<Arc<ExtentLayout>>, manifest: &Manifest, index: u32) -> u32 {
    let layout = &manifest.layouts[index as usize];
    // Layouts are shared by neighbours: the match is nearly always the last.
    let known = layouts.iter().rposition(|known| Arc::ptr_eq(known, layout));
    known.unwrap_or_else(|| {
        layouts.push(layout.clone());
        layouts.len() - 1
    }) as u32
}

/// The parts of a pack that no record holds.
fn gaps(manifest: &Manifest) -> Vec<(u64, u64)> {
    let mut extents: Vec<(u64, u64)> = manifest
        .records
        .iter()
        .filter(|e| e.len > 0)
        .map(|e| (e.offset, e.len))
        .collect();
    extents.sort_unstable();
    let mut gaps = Vec::new();
    let mut at = 0;
    for (offset, len) in extents {
        if offset > at {
            gaps.push((at, offset));
        }
        at = offset + len;
    }
    gaps
}
