//! Named sets of whole tensors, cut into blocks that are shared by content.

mod check;
mod plan;
mod save;

use crate::batch::Namespace;
use crate::format::{MAX_METADATA, MAX_NAME, SnapshotTable};
use crate::stats::ReadReport;
use crate::store::{Inner, Store, TensorInfo};
use crate::{Error, Key, Layout, Placement, Result, View};

pub(crate) use plan::content_key;

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
    /// [`Error::Miss`] if it, or a block of it, can't be had; [`Error::Limit`] if it exceeds its
    /// distinct blocks by more than [`Options::repeat_limit`](crate::Options::repeat_limit);
    /// [`Error::Format`] if its blocks do not hold its tensors. Nothing is allocated before that
    /// is known.
    pub fn load(&self, namespace: &Namespace, name: &str) -> Result<LoadedSnapshot> {
        let table = self.inner.table(namespace, name)?;
        let info = table.info();
        self.inner.check_table(namespace, &table)?;
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
    /// As [`Store::load`] and [`Store::read_into`].
    pub fn load_into(
        &self,
        namespace: &Namespace,
        name: &str,
        targets: &[(usize, Layout)],
        buffers: &mut [&mut [u8]],
    ) -> Result<ReadReport> {
        let table = self.inner.table(namespace, name)?;
        self.inner.check_table(namespace, &table)?;
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
}
