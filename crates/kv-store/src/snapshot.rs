//! Named sets of whole tensors, cut into blocks that are shared by content.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::batch::{Address, Namespace};
use crate::commit::Draft;
use crate::evict::Pins;
use crate::format::{
    BlockRef, ExtentLayout, Group, Hash, MAX_METADATA, MAX_NAME, Manifest, SnapshotTable,
    TableTensor,
};
use crate::pack::{Extent, process};
use crate::stats::{PutReport, ReadReport, add, add_micros};
use crate::store::{Inner, Store, TensorInfo};
use crate::{Error, Key, Kind, Layout, Placement, Result, View};

/// The bytes of a block of a tensor for which no growth is stated, if one index of its first
/// dimension is not larger.
const WHOLE_BLOCK: usize = 1 << 20;

/// A named set of tensors to save.
///
/// ```
/// use prefill_kv_store::{DType, Namespace, Options, Snapshot, Store, View};
///
/// let store = Store::in_memory(Options::default())?;
/// let space = Namespace::new("demo")?;
/// let k = vec![1; 2 * 300 * 4 * 2];
/// let view = View::contiguous(&k, DType::Bf16, &[1, 2, 300, 4])?;
/// let snapshot = Snapshot::new("turn 1").growing("0.k", view, 2, 256).metadata(b"tokens");
/// store.save(&space, &snapshot)?;
///
/// let loaded = store.load(&space, "turn 1")?;
/// assert_eq!(loaded.metadata, b"tokens");
/// assert_eq!(loaded.bytes[0], k);
/// # Ok::<(), prefill_kv_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    name: &'a str,
    metadata: &'a [u8],
    cost: f64,
    tensors: Vec<Part<'a>>,
    continues: Option<(&'a str, usize)>,
}

#[derive(Clone, Debug)]
struct Part<'a> {
    name: &'a str,
    view: View<'a>,
    /// Axis and rows for each block.
    growth: Option<(usize, usize)>,
}

impl<'a> Snapshot<'a> {
    /// A snapshot without tensors.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Self {
            name,
            metadata: &[],
            cost: 0.0,
            tensors: Vec::new(),
            continues: None,
        }
    }

    /// Adds a tensor that does not grow.
    #[must_use]
    pub fn tensor(mut self, name: &'a str, view: View<'a>) -> Self {
        self.tensors.push(Part {
            name,
            view,
            growth: None,
        });
        self
    }

    /// Adds a tensor that grows along `axis`. It is cut every `rows` rows, over all other
    /// dimensions, together with the other tensors that are cut alike: when it has grown, the
    /// blocks of the earlier rows are found again.
    #[must_use]
    pub fn growing(mut self, name: &'a str, view: View<'a>, axis: usize, rows: usize) -> Self {
        self.tensors.push(Part {
            name,
            view,
            growth: Some((axis, rows)),
        });
        self
    }

    /// Sets the metadata: at most 15 MiB, given back as it is.
    #[must_use]
    pub const fn metadata(mut self, metadata: &'a [u8]) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets what losing it would cost.
    #[must_use]
    pub const fn cost(mut self, cost: f64) -> Self {
        self.cost = cost;
        self
    }

    /// States that the first `rows` rows of the growing tensors are those of the snapshot `base`.
    /// Their blocks, the last partial one included, are then taken over without reading or
    /// hashing a byte of them. If `base` is gone, or its tensors differ in name, dtype or shape,
    /// everything is written as usual.
    #[must_use]
    pub const fn continues(mut self, base: &'a str, rows: usize) -> Self {
        self.continues = Some((base, rows));
        self
    }

    fn check(&self) -> Result<()> {
        const METADATA: u64 = MAX_METADATA as u64 - (1 << 20);
        if self.name.len() > MAX_NAME {
            return Err(Error::limit(
                "name length",
                self.name.len(),
                MAX_NAME as u64,
            ));
        }
        if self.metadata.len() as u64 > METADATA {
            return Err(Error::limit(
                "metadata length",
                self.metadata.len(),
                METADATA,
            ));
        }
        if !(self.cost.is_finite() && self.cost >= 0.0) {
            return Err(Error::Invalid {
                what: "a cost must be finite and not negative",
            });
        }
        for part in &self.tensors {
            if part.name.len() > MAX_NAME {
                return Err(Error::limit(
                    "name length",
                    part.name.len(),
                    MAX_NAME as u64,
                ));
            }
            match part.growth {
                Some((axis, _)) if axis >= part.view.shape().len() => {
                    let count = part.view.shape().len();
                    return Err(Error::Index {
                        what: "axis",
                        index: axis,
                        count,
                    });
                }
                Some((_, 0)) => {
                    return Err(Error::Invalid {
                        what: "blocks of no rows",
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A snapshot in memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadedSnapshot {
    /// Names, dtypes and shapes of its tensors, in the order in which they were added.
    pub tensors: Vec<TensorInfo>,
    /// Their bytes, in row-major order.
    pub bytes: Vec<Vec<u8>>,
    /// The metadata given with it.
    pub metadata: Vec<u8>,
}

/// What is known of a snapshot without reading its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Its tensors, in the order in which they were added.
    pub tensors: Vec<TensorInfo>,
    /// The metadata given with it.
    pub metadata: Vec<u8>,
    /// Its blocks, shared ones included.
    pub blocks: usize,
    /// The bytes of its tensors.
    pub bytes: u64,
}

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
            layout: ExtentLayout::default(),
            views: Vec::new(),
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

    /// What is known of a snapshot without reading its tensors.
    ///
    /// # Errors
    /// [`Error::Miss`] if there is none of this name.
    pub fn snapshot_info(&self, namespace: &Namespace, name: &str) -> Result<SnapshotInfo> {
        self.inner.table(namespace, name).map(|table| table.info())
    }

    /// Loads a snapshot into memory of its own, verified.
    ///
    /// # Errors
    /// [`Error::Miss`] if it, or a block of it, can't be had.
    pub fn load(&self, namespace: &Namespace, name: &str) -> Result<LoadedSnapshot> {
        let table = self.inner.table(namespace, name)?;
        let info = table.info();
        self.inner.check_size(namespace, name, &table)?;
        let mut bytes: Vec<Vec<u8>> = table
            .tensors
            .iter()
            .map(|t| vec![0; t.bytes() as usize])
            .collect();
        let layouts: Vec<Layout> = table
            .tensors
            .iter()
            .map(|t| Layout::contiguous(&t.shape))
            .collect::<Result<_>>()?;
        let mut buffers: Vec<&mut [u8]> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
        let targets: Vec<(usize, Layout)> = layouts.into_iter().enumerate().collect();
        self.load_table(namespace, name, &table, &targets, &mut buffers)?;
        Ok(LoadedSnapshot {
            tensors: info.tensors,
            bytes,
            metadata: info.metadata,
        })
    }

    /// Loads a snapshot into the caller's memory: for each tensor, in order, the buffer it goes
    /// to and its layout there.
    ///
    /// # Errors
    /// As [`Store::read_into`].
    pub fn load_into(
        &self,
        namespace: &Namespace,
        name: &str,
        targets: &[(usize, Layout)],
        buffers: &mut [&mut [u8]],
    ) -> Result<ReadReport> {
        let table = self.inner.table(namespace, name)?;
        self.load_table(namespace, name, &table, targets, buffers)
    }

    fn load_table(
        &self,
        namespace: &Namespace,
        name: &str,
        table: &SnapshotTable,
        targets: &[(usize, Layout)],
        buffers: &mut [&mut [u8]],
    ) -> Result<ReadReport> {
        if targets.len() != table.tensors.len() {
            let (index, count) = (targets.len(), table.tensors.len());
            return Err(Error::Index {
                what: "tensors of the snapshot",
                index,
                count,
            });
        }
        let mut within = vec![0; table.groups.len()];
        let mut placements = Vec::new();
        for (tensor, (buffer, layout)) in table.tensors.iter().zip(targets) {
            if layout.shape() != tensor.shape {
                let (expected, found) = (tensor.shape.clone(), layout.shape().to_vec());
                return Err(Error::Shape { expected, found });
            }
            let group = tensor.group as usize;
            for block in &table.groups[group].blocks {
                let layout = match tensor.axis {
                    Some(axis) => layout.narrow(
                        usize::from(axis),
                        block.first as usize,
                        block.rows as usize,
                    )?,
                    None => layout.clone(),
                };
                let (key, tensor, buffer) = (block.key, within[group], *buffer);
                placements.push(Placement {
                    key,
                    tensor,
                    buffer,
                    layout,
                });
            }
            within[group] += 1;
        }
        let report = self.read_into(namespace, &placements, buffers)?;
        let index = self.inner.index.read();
        index
            .residents
            .lock()
            .access(&namespace.address(Key::of_snapshot(name)));
        Ok(report)
    }

    /// Removes a snapshot, and the blocks that only it refers to.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Busy`], [`Error::Io`]. That there is none is no error.
    pub fn remove_snapshot(&self, namespace: &Namespace, name: &str) -> Result<()> {
        self.remove(namespace, &[Key::of_snapshot(name)]).map(drop)
    }
}

/// How a snapshot is cut, with the hashes of what must be looked at.
struct Plan<'a> {
    groups: Vec<PlanGroup<'a>>,
    /// For each tensor of the snapshot, its group and its axis.
    places: Vec<(usize, Option<usize>)>,
}

struct PlanGroup<'a> {
    rows: usize,
    rows_per_block: usize,
    growing: bool,
    tensors: Vec<(View<'a>, Option<usize>)>,
    blocks: Vec<BlockRef>,
    /// Rows that `blocks` cover already.
    done: usize,
}

/// A block that was hashed.
pub(crate) struct Fresh<'a> {
    key: Key,
    layout: ExtentLayout,
    views: Vec<View<'a>>,
    pieces: Vec<Hash>,
    bytes: u64,
}

impl<'a> Plan<'a> {
    fn new(snapshot: &Snapshot<'a>, base: Option<SnapshotTable>) -> Self {
        let mut plan = Self {
            groups: Vec::new(),
            places: Vec::new(),
        };
        let mut growing: HashMap<(usize, usize), usize> = HashMap::new();
        for part in &snapshot.tensors {
            let (axis, rows, per_block) = match part.growth {
                Some((axis, rows)) => (Some(axis), part.view.shape()[axis], rows),
                None => whole(&part.view),
            };
            let next = plan.groups.len();
            let group = match part.growth {
                Some(_) => *growing.entry((rows, per_block)).or_insert(next),
                None => next,
            };
            if group == next {
                plan.groups.push(PlanGroup {
                    rows,
                    rows_per_block: per_block,
                    growing: part.growth.is_some(),
                    tensors: Vec::new(),
                    blocks: Vec::new(),
                    done: 0,
                });
            }
            plan.groups[group].tensors.push((part.view.clone(), axis));
            plan.places.push((group, axis));
        }
        if let (Some(base), Some((_, rows))) = (base, snapshot.continues) {
            plan.take_over(snapshot, &base, rows);
        }
        plan
    }

    /// Takes the blocks of the base that lie in the first `rows` rows of like groups.
    fn take_over(&mut self, snapshot: &Snapshot<'a>, base: &SnapshotTable, rows: usize) {
        let described = |index: usize| -> Vec<_> {
            let of_group = self.places.iter().zip(&snapshot.tensors);
            of_group
                .filter(|((group, _), _)| *group == index)
                .map(|((_, axis), part)| {
                    let mut shape = part.view.shape().to_vec();
                    blank(&mut shape, *axis);
                    (part.name.to_owned(), part.view.dtype(), shape, *axis)
                })
                .collect()
        };
        let of_base: Vec<Vec<_>> = (0..base.groups.len())
            .map(|index| {
                let of_group = base.tensors.iter().filter(|t| t.group as usize == index);
                of_group
                    .map(|t| {
                        let (mut shape, axis) = (t.shape.clone(), t.axis.map(usize::from));
                        blank(&mut shape, axis);
                        (t.name.clone(), t.dtype, shape, axis)
                    })
                    .collect()
            })
            .collect();
        let described: Vec<Vec<_>> = (0..self.groups.len()).map(described).collect();
        for (group, described) in self.groups.iter_mut().zip(described) {
            let like = of_base
                .iter()
                .position(|of_base| group.growing && *of_base == described);
            let Some(like) = like else { continue };
            let limit = rows.min(group.rows);
            for block in &base.groups[like].blocks {
                let end = (block.first + block.rows) as usize;
                if end > limit {
                    break;
                }
                group.blocks.push(*block);
                group.done = end;
            }
        }
    }

    /// Cuts what is not taken over into blocks and hashes them.
    fn hash(&mut self, inner: &Inner, report: &mut PutReport) -> Result<Vec<Fresh<'a>>> {
        let shape = Manifest::new([0; 16], "".into(), 0);
        let mut places = Vec::new();
        let mut extents = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            if group.tensors.iter().all(|(view, _)| view.byte_len() == 0) {
                continue;
            }
            let mut first = group.done;
            while first < group.rows {
                let end =
                    ((first / group.rows_per_block + 1) * group.rows_per_block).min(group.rows);
                let views = group
                    .tensors
                    .iter()
                    .map(|(view, axis)| match axis {
                        Some(axis) => view.narrow(*axis, first, end - first),
                        None => Ok(view.clone()),
                    })
                    .collect::<Result<Vec<_>>>()?;
                let layout = ExtentLayout::place(views.iter().map(|v| ("", v.dtype(), v.shape())))?;
                let len = shape.extent_len(layout.payload);
                extents.push((
                    Extent {
                        layout: Arc::new(layout),
                        views,
                        offset: 0,
                        len,
                    },
                    false,
                ));
                places.push((index, first, end - first));
                first = end;
            }
        }
        let threads = inner.options.piece_threads();
        let hashed = process(&extents, shape.piece_bytes(), None, threads)
            .map_err(Error::io("hash", "snapshot"))?;
        report.bytes_copied += hashed.copied;
        report.peak_scratch_bytes = report.peak_scratch_bytes.max(hashed.scratch);
        add(&inner.counters.bytes_copied, hashed.copied);
        let mut fresh = Vec::with_capacity(extents.len());
        for (((extent, _), pieces), (group, first, rows)) in
            extents.into_iter().zip(hashed.pieces).zip(places)
        {
            let pieces = pieces.unwrap_or_default();
            let key = content_key(&extent.layout, &pieces);
            let block = BlockRef {
                key,
                first: first as u64,
                rows: rows as u64,
            };
            self.groups[group].blocks.push(block);
            let layout = Arc::unwrap_or_clone(extent.layout);
            fresh.push(Fresh {
                key,
                layout,
                views: extent.views,
                pieces,
                bytes: extent.len,
            });
        }
        Ok(fresh)
    }

    fn table(&self, snapshot: &Snapshot<'_>) -> SnapshotTable {
        SnapshotTable {
            name: snapshot.name.to_owned(),
            metadata: snapshot.metadata.to_vec(),
            groups: self
                .groups
                .iter()
                .map(|g| Group {
                    rows: g.rows as u64,
                    rows_per_block: g.rows_per_block as u64,
                    blocks: g.blocks.clone(),
                })
                .collect(),
            tensors: snapshot
                .tensors
                .iter()
                .zip(&self.places)
                .map(|(part, (group, axis))| TableTensor {
                    name: part.name.to_owned(),
                    dtype: part.view.dtype(),
                    shape: part.view.shape().to_vec(),
                    group: *group as u32,
                    axis: axis.map(|axis| axis as u8),
                })
                .collect(),
        }
    }
}

/// Growth along the axis does not make a tensor another one.
fn blank(shape: &mut [usize], axis: Option<usize>) {
    if let Some(axis) = axis {
        shape[axis] = 0;
    }
}

/// Axis, rows and rows for each block of a tensor for which no growth is stated.
fn whole(view: &View<'_>) -> (Option<usize>, usize, usize) {
    let shape = view.shape();
    if shape.is_empty() {
        return (None, 1, 1);
    }
    let axis = shape.iter().position(|&n| n > 1).unwrap_or(0);
    let row = view.byte_len() / shape[axis].max(1);
    (Some(axis), shape[axis], (WHOLE_BLOCK / row.max(1)).max(1))
}

pub(crate) fn content_key(layout: &ExtentLayout, pieces: &[Hash]) -> Key {
    let mut bytes = Vec::new();
    layout.encode(&mut bytes);
    bytes.extend(pieces.iter().flatten());
    Key::new(blake3::derive_key(
        "prefill-kv-store 2026-11-29 content block v1",
        &bytes,
    ))
}

impl SnapshotTable {
    fn blocks(&self) -> impl Iterator<Item = Key> {
        self.groups.iter().flat_map(|g| &g.blocks).map(|b| b.key)
    }

    pub(crate) fn info(&self) -> SnapshotInfo {
        SnapshotInfo {
            name: self.name.clone(),
            tensors: self
                .tensors
                .iter()
                .map(|t| TensorInfo {
                    name: t.name.clone(),
                    dtype: t.dtype,
                    shape: t.shape.clone(),
                })
                .collect(),
            metadata: self.metadata.clone(),
            blocks: self.blocks().count(),
            bytes: self.bytes(),
        }
    }
}

impl Inner {
    pub(crate) fn table(&self, namespace: &Namespace, name: &str) -> Result<SnapshotTable> {
        let location = self.locate(namespace.address(Key::of_snapshot(name)))?;
        SnapshotTable::decode(&location.entry().metadata)
    }

    /// Makes sure that a table claims no more bytes than its blocks hold.
    fn check_size(&self, namespace: &Namespace, name: &str, table: &SnapshotTable) -> Result<()> {
        let held = {
            let index = self.index.read();
            let len = |key| index.get(&namespace.address(key)).map(|l| l.entry().len);
            table.blocks().filter_map(len).fold(0, u64::saturating_add)
        };
        if table.bytes() > held {
            return Err(self.miss(Key::of_snapshot(name), crate::Miss::Absent));
        }
        Ok(())
    }

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
                views: block.views,
                metadata: (&[][..]).into(),
                pieces: Some(block.pieces),
            });
        }
        add(&self.counters.bytes_reused, report.bytes_reused);
        drafts
    }
}
