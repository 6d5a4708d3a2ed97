use std::collections::HashSet;

use crate::batch::Namespace;
use crate::format::{BlockRef, ExtentLayout, SnapshotTable, TableTensor};
use crate::store::Inner;
use crate::{Error, Result};

/// Tensors that are not empty lie at multiples of this in a block.
const ALIGN: u64 = 64;
/// Memory that reading one tensor of one block takes, beside its bytes.
const PART_BYTES: u64 = 512;

impl Inner {
    /// Makes sure, before anything is allocated for a snapshot, that its blocks hold its tensors,
    /// and that its repeats are within the limit: a table of 16 MiB can name a block 300,000 times.
    pub(super) fn check_table(&self, namespace: &Namespace, table: &SnapshotTable) -> Result<()> {
        let mut held = 0u64;
        let mut seen = HashSet::new();
        for block in table.groups.iter().flat_map(|g| &g.blocks) {
            if seen.insert(block.key) {
                let location = self.locate(namespace.address(block.key))?;
                held = held.saturating_add(location.entry().len);
            }
        }
        let limit = held.saturating_add(self.options.repeat_limit);
        if table.bytes() > limit {
            return Err(Error::limit("bytes of a snapshot", table.bytes(), limit));
        }
        let mut tensors: Vec<Vec<&TableTensor>> = vec![Vec::new(); table.groups.len()];
        for tensor in &table.tensors {
            tensors[tensor.group as usize].push(tensor);
        }
        let parts = table.groups.iter().zip(&tensors);
        let parts = parts
            .map(|(group, tensors)| group.blocks.len() as u64 * tensors.len() as u64)
            .fold(0, u64::saturating_add);
        let limit = held / ALIGN + self.options.repeat_limit / PART_BYTES;
        if parts > limit {
            return Err(Error::limit("tensors of all blocks", parts, limit));
        }
        for (group, tensors) in table.groups.iter().zip(&tensors) {
            if group.blocks.is_empty() && tensors.iter().any(|t| t.bytes() > 0) {
                return Err(Error::Format {
                    offset: 0,
                    what: "blocks for all rows of the snapshot",
                });
            }
            for block in &group.blocks {
                let location = self.locate(namespace.address(block.key))?;
                if !holds(
                    location.commit.manifest.layout(location.entry()),
                    tensors,
                    block,
                ) {
                    return Err(Error::Format {
                        offset: 0,
                        what: "blocks of the snapshot's dtypes and shapes",
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether a block's layout is that of its rows of these tensors.
fn holds(layout: &ExtentLayout, tensors: &[&TableTensor], block: &BlockRef) -> bool {
    layout.tensors.len() == tensors.len()
        && layout.tensors.iter().zip(tensors).all(|(held, tensor)| {
            let axis = tensor.axis.map(usize::from);
            let whole = held.shape.iter().zip(&tensor.shape).enumerate();
            held.dtype == tensor.dtype
                && held.shape.len() == tensor.shape.len()
                && whole.into_iter().all(|(i, (&n, &all))| {
                    n as u64
                        == if axis == Some(i) {
                            block.rows
                        } else {
                            all as u64
                        }
                })
        })
}
