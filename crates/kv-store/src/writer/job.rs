use crate::batch::Namespace;
use crate::stats::PutReport;
use crate::{Batch, DType, Key, Kind, Layout, Record, Result, Store, View};

/// A tensor whose memory is lent to the writer until it is acknowledged.
#[derive(Clone, Debug)]
pub struct OwnedTensor<O> {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Where its elements lie in the owner's bytes.
    pub layout: Layout,
    /// What keeps the bytes alive.
    pub owner: O,
}

/// A record as [`Record`] is one, over memory that is lent.
#[derive(Clone, Debug)]
pub struct OwnedWrite<O> {
    /// What it is found by.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// The record that this one is useless without.
    pub parent: Option<Key>,
    /// What losing it would cost.
    pub cost: f64,
    /// Its tensors.
    pub tensors: Vec<OwnedTensor<O>>,
    /// Anything, given back as it is.
    pub metadata: Vec<u8>,
}

/// A batch for the writer: committed together, as [`Batch`] is.
#[derive(Clone, Debug)]
pub struct Job<O> {
    /// Where the records are found.
    pub namespace: Namespace,
    /// What to write.
    pub records: Vec<OwnedWrite<O>>,
    /// What to remove once that is durable.
    pub removals: Vec<Key>,
}

pub(super) fn job_bytes<O: AsRef<[u8]>>(job: &Job<O>) -> Result<u64> {
    let tensors = job.records.iter().flat_map(|r| &r.tensors);
    tensors.map(|t| Ok(view(t)?.byte_len() as u64)).sum()
}

fn view<O: AsRef<[u8]>>(tensor: &OwnedTensor<O>) -> Result<View<'_>> {
    View::new(tensor.owner.as_ref(), tensor.dtype, tensor.layout.clone())
}

pub(super) fn write<O: AsRef<[u8]>>(store: &Store, job: &Job<O>) -> Result<PutReport> {
    let mut batch = Batch::new();
    for write in &job.records {
        let mut record = Record::new(write.key, write.kind)
            .cost(write.cost)
            .metadata(&write.metadata);
        record.parent = write.parent;
        for tensor in &write.tensors {
            record = record.tensor(&tensor.name, view(tensor)?);
        }
        batch.push(record);
    }
    for key in &job.removals {
        batch.remove(*key);
    }
    store.put(&job.namespace, &batch)
}
