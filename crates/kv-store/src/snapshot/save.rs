use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::Snapshot;
use super::plan::{Fresh, Plan};
use crate::batch::{Address, Namespace};
use crate::commit::{Draft, Views};
use crate::format::{MAX_METADATA, SnapshotTable};
use crate::pins::Pins;
use crate::stats::{PutReport, add, add_micros};
use crate::store::{Inner, Store};
use crate::{Error, Key, Kind, Result};

impl Store {
    /// Saves a snapshot, in place of an earlier one of the same name. Blocks that are there
    /// already, from any snapshot of the namespace, are not written again.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn save(&self, namespace: &Namespace, snapshot: &Snapshot<'_>) -> Result<PutReport> {
        let start = Instant::now();
        snapshot.check()?;
        let inner = &*self.inner;
        inner.refresh_if_changed()?;
        let mut report = PutReport::default();
        let mut plan = Plan::new(snapshot, inner.base(namespace, snapshot));
        let fresh = plan.hash(inner, &mut report)?;
        let mut writing = inner.write()?;
        let table = plan.table(snapshot);
        let blocks: Vec<Address> = table.blocks().map(|key| namespace.address(key)).collect();
        let pins = Pins::new(inner, &blocks);
        let mut drafts = inner.new_blocks(namespace, fresh, &mut report);
        let present: HashSet<Key> = drafts.iter().map(|d| d.key).collect();
        if let Some(gone) = table.blocks().find(|key| {
            !present.contains(key) && inner.index.read().get(&namespace.address(*key)).is_none()
        }) {
            // A block of the base was evicted since it was looked up: write it all.
            tracing::debug!(block = %gone, "the snapshot that this one continues lost a block");
            drop((pins, writing, drafts));
            return self.save(
                namespace,
                &Snapshot {
                    continues: None,
                    ..snapshot.clone()
                },
            );
        }
        let key = Key::of_snapshot(snapshot.name);
        drafts.push(Draft {
            key,
            kind: Kind::Snapshot,
            parent: None,
            cost: snapshot.cost,
            layout: Arc::default(),
            views: Views::Tensors(Vec::new()),
            metadata: table.encode().into(),
            pieces: None,
        });
        let metadata_len = drafts.last().map_or(0, |d| d.metadata.len());
        if metadata_len > MAX_METADATA as usize {
            return Err(Error::limit(
                "snapshot table",
                metadata_len,
                MAX_METADATA.into(),
            ));
        }
        let replaced = inner.index.read().get(&namespace.address(key)).cloned();
        inner.commit(
            &mut writing,
            namespace,
            drafts,
            &[namespace.address(key)],
            &mut report,
        )?;
        drop(pins);
        if let Some(old) = replaced {
            inner.drop_replaced(&mut writing, &old)?;
        }
        drop(writing);
        report.elapsed = add_micros(&inner.counters.put_micros, start);
        Ok(report)
    }
}

impl Inner {
    fn base(&self, namespace: &Namespace, snapshot: &Snapshot<'_>) -> Option<SnapshotTable> {
        let (base, _) = snapshot.continues?;
        let index = self.index.read();
        let location = index.get(&namespace.address(Key::of_snapshot(base)))?;
        SnapshotTable::decode(&location.entry().metadata).ok()
    }

    /// The blocks that are not there yet, each once.
    fn new_blocks<'a>(
        &self,
        namespace: &Namespace,
        fresh: Vec<Fresh<'a>>,
        report: &mut PutReport,
    ) -> Vec<Draft<'a>> {
        let index = self.index.read();
        let mut seen = HashSet::new();
        let mut drafts = Vec::new();
        for block in fresh {
            if index.get(&namespace.address(block.key)).is_some() || !seen.insert(block.key) {
                report.reused += 1;
                report.bytes_reused += block.bytes;
                continue;
            }
            drafts.push(Draft {
                key: block.key,
                kind: Kind::Content,
                parent: None,
                cost: 0.0,
                layout: block.layout,
                views: Views::Tensors(block.views),
                metadata: (&[][..]).into(),
                pieces: Some(block.pieces),
            });
        }
        add(&self.counters.bytes_reused, report.bytes_reused);
        drafts
    }
}
