//! Making room under the limits.

use crate::batch::Address;
use crate::index::Index;
use crate::lock::Writing;
use crate::pins::Pins;
use crate::stats::add;
use crate::store::Inner;
use crate::{Error, Result};

/// The unit in which file systems allocate, for a new file's size before it is written.
const BLOCK: u64 = 4096;
/// What a file system may add for the map of a fragmented file, and what replacing manifests
/// needs for a moment beside the greatest of them.
const SLACK: u64 = 64 << 10;

impl Inner {
    /// Evicts until a pack and a manifest of these sizes fit. Nothing in `needed` is evicted.
    /// Returns how many records went.
    pub(crate) fn make_room(
        &self,
        writing: &mut Writing<'_>,
        pack: u64,
        manifest: u64,
        needed: &[Address],
    ) -> Result<usize> {
        let manifest = manifest.next_multiple_of(BLOCK);
        let mut evicted = 0;
        let pins = Pins::new(self, needed);
        loop {
            let (used, foreign, reserve) = {
                let index = self.index.read();
                let reserve = index.largest_manifest.max(manifest) + SLACK;
                (index.used(), index.foreign_bytes(), reserve)
            };
            let available = self.vfs.available().map_err(Error::io("stat", "v1"))?;
            // What the file system can still take counts as the limit where that is lower.
            let on_disk = used
                .saturating_add(available)
                .saturating_sub(self.options.free_floor);
            let limit = self.options.limit.min(on_disk).saturating_sub(reserve);
            let wanted = pack.saturating_add(manifest);
            let after = used.saturating_add(wanted);
            if after <= limit {
                return Ok(evicted);
            }
            let full = Error::Full {
                needed: wanted,
                available: limit.saturating_sub(foreign),
            };
            if wanted > limit {
                return Err(full);
            }
            if wanted.saturating_add(foreign) > limit {
                return Err(Error::FullOfForeign {
                    foreign,
                    limit: self.options.limit,
                });
            }
            if self.shrink_deferred(writing)? {
                continue;
            }
            // A little more than needed, so that a full store is not evicted from at every put.
            let excess = (after - limit).saturating_add(limit / 64);
            let victims = self.victims(excess);
            if victims.is_empty() {
                // What nobody can find is the last thing that could make room.
                let dead = self.index.read().dead_records();
                if dead.is_empty() {
                    drop(pins);
                    return Err(full);
                }
                self.rewrite(writing, &dead)?;
                continue;
            }
            evicted += victims.len();
            add(&self.counters.evicted, victims.len());
            if let Err(error) = self.remove_records(writing, &victims) {
                self.give_back(&victims);
                return Err(error);
            }
        }
    }

    /// Tries again to shrink packs that were being read; whether one was shrunk.
    fn shrink_deferred(&self, writing: &mut Writing<'_>) -> Result<bool> {
        let deferred = std::mem::take(&mut self.index.write().deferred);
        let used = self.index.read().used();
        for id in &deferred {
            let commit = self.index.read().commits.get(id).cloned();
            if let Some(commit) = commit {
                writing.begin_change()?;
                self.shrink_pack(&commit)?;
            }
        }
        Ok(self.index.read().used() < used)
    }

    /// Records to lose until so many bytes are gone, in the policy's order. They are taken out
    /// of the policy's sight.
    fn victims(&self, bytes: u64) -> Vec<Address> {
        let index = self.index.read();
        let mut residents = index.residents.lock();
        let (mut victims, mut freed) = (Vec::new(), 0u64);
        while freed < bytes
            && let Some(address) = residents.victim()
        {
            let Some(location) = index.get(&address) else {
                continue;
            };
            let blocks = Index::blocks_of(&location.commit.namespace, location.entry());
            let entry_bytes = |a: &Address| index.get(a).map_or(0, |l| l.entry().len);
            // Blocks that other snapshots share stay: counting them would stop too early.
            let own = blocks
                .iter()
                .filter(|b| index.references(b) == 1)
                .map(entry_bytes);
            freed += location.entry().len + own.sum::<u64>();
            victims.push(address);
        }
        victims
    }

    /// Lets the policy see victims again that could not be removed.
    fn give_back(&self, victims: &[Address]) {
        let index = self.index.read();
        let mut residents = index.residents.lock();
        for address in victims {
            if let Some(location) = index.get(address) {
                let entry = location.entry();
                let parent = entry
                    .parent
                    .map(|key| location.commit.namespace.address(key));
                residents.insert(*address, Index::weight(entry), entry.cost, parent);
            }
        }
    }
}
