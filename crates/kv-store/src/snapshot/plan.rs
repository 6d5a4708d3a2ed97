use std::collections::HashMap;
use std::sync::Arc;

use super::Snapshot;
use crate::format::{BlockRef, ExtentLayout, Group, Hash, Manifest, SnapshotTable, TableTensor};
use crate::pack::{Extent, process};
use crate::stats::{PutReport, add};
use crate::store::Inner;
use crate::{Error, Key, Result, View};

/// The bytes of a block of a tensor for which no growth is stated, if one index of its first
/// dimension is not larger.
const WHOLE_BLOCK: usize = 1 << 20;

/// How a snapshot is cut, with the hashes of what must be looked at.
pub(super) struct Plan<'a> {
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
pub(super) struct Fresh<'a> {
    pub(super) key: Key,
    pub(super) layout: Arc<ExtentLayout>,
    pub(super) views: Vec<View<'a>>,
    pub(super) pieces: Vec<Hash>,
    pub(super) bytes: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn new(snapshot: &Snapshot<'a>, base: Option<SnapshotTable>) -> Self {
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
        let mut of_base: Vec<Vec<_>> = vec![Vec::new(); base.groups.len()];
        for t in &base.tensors {
            let (mut shape, axis) = (t.shape.clone(), t.axis.map(usize::from));
            blank(&mut shape, axis);
            of_base[t.group as usize].push((t.name.clone(), t.dtype, shape, axis));
        }
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
    pub(super) fn hash(&mut self, inner: &Inner, report: &mut PutReport) -> Result<Vec<Fresh<'a>>> {
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
                extents.push(Extent {
                    layout: Arc::new(layout),
                    views,
                    offset: 0,
                    len,
                    hashed: false,
                });
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
        for ((extent, pieces), (group, first, rows)) in
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
            fresh.push(Fresh {
                key,
                layout: extent.layout,
                views: extent.views,
                pieces,
                bytes: extent.len,
            });
        }
        Ok(fresh)
    }

    pub(super) fn table(&self, snapshot: &Snapshot<'_>) -> SnapshotTable {
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
