//! What is kept on disk: read before a request takes its turn, written behind it.

use std::collections::HashMap;

use crossbeam_channel::Receiver;
use memmap2::MmapMut;
use mlx_rs::transforms::eval;
use mlx_rs::{Array, Dtype};
use mlx_sys_ext::{Backend, HostView, array_from_owner, array_read_from};
use parking_lot::Mutex;
use prefill_kv_store::{
    Ack, DType, Error as StoreError, Job, Layout, Miss, Namespace, Options, OwnedTensor,
    OwnedWrite, Placement, Store, Submitted, WhenFull, Writer, WriterOptions,
};

use super::daily::{Today, day};
use super::options::DiskOptions;
use super::record::{About, New, Record, RecordKey};
use crate::cache::copy;
use crate::{Error, Result};

/// The most bytes that one record may claim: more is no record of ours.
const RECORD_LIMIT: u64 = 8 << 30;
/// The usual size of a large page.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Memory of arrays that is lent to the writer.
#[derive(Debug)]
pub(crate) struct Lent(HostView);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// What the writer is done with.
pub(crate) type Written = Ack<Lent>;

/// A store with its writer.
#[derive(Debug)]
pub(crate) struct Disk {
    pub store: Store,
    pub namespace: Namespace,
    /// None where nothing is written.
    writer: Option<Writer<Lent>>,
    /// Records of the jobs that the writer has, by ticket.
    writing: Mutex<HashMap<u64, Vec<RecordKey>>>,
    today: Mutex<Today>,
}

/// A record that was read, on its way to the MLX thread.
#[derive(Debug)]
pub(crate) struct Read {
    pub about: About,
    tensors: Vec<(MmapMut, Vec<i32>, Dtype)>,
}

/// What became of records that were to be written.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// Not written: there already, not admitted, or the queue is full.
    pub settled: Vec<RecordKey>,
    pub queued_bytes: u64,
    pub dropped_bytes: u64,
}

impl Disk {
    /// Opens the store of a model, and starts its writer.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) fn open(
        options: &DiskOptions,
        namespace: &str,
    ) -> Result<(Self, Option<Receiver<Written>>)> {
        let store_options = Options {
            limit: options.limit,
            free_floor: options.free_floor,
            // A request waits for what is read.
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8)),
            ..Options::default()
        };
        let store = Store::open(options.folder.join("store"), store_options)?;
        let namespace = Namespace::new(namespace)?;
        let (writer, written) = if options.delay.is_some() {
            let writer_options = WriterOptions {
                queue_bytes: options.queue_bytes,
                when_full: WhenFull::Drop,
            };
            let (writer, written) = Writer::spawn(store.clone(), writer_options)?;
            (Some(writer), Some(written))
        } else {
            (None, None)
        };
        let day = day();
        let listed = store.list();
        let written_today = listed.iter().map(|listed| &listed.record);
        let bytes = written_today
            .filter(|record| record.created / 86_400 == day)
            .map(|record| record.bytes)
            .sum();
        let disk = Self {
            store,
            namespace,
            writer,
            writing: Mutex::default(),
            today: Mutex::new(Today::new(bytes, options.daily_bytes)),
        };
        Ok((disk, written))
    }

    pub(crate) fn writes(&self) -> bool {
        self.writer.is_some()
    }

    /// The bytes of a record, if it is there.
    pub(crate) fn bytes_of(&self, name: RecordKey) -> Option<u64> {
        let info = self.store.info(&self.namespace, &name.stored());
        Some(info.ok()?.bytes)
    }

    pub(crate) fn contains(&self, name: RecordKey) -> bool {
        self.store.contains(&self.namespace, &name.stored())
    }

    /// Whether a record can be read; a damaged one is dropped.
    pub(crate) fn is_sound(&self, name: RecordKey) -> bool {
        self.store.read(&self.namespace, &name.stored()).is_ok()
    }

    /// Reads records, all at once, in the order of their names.
    ///
    /// # Errors
    /// The first that can't be had, and why.
    pub(crate) fn read(&self, names: &[RecordKey]) -> Result<Vec<Read>, Box<(RecordKey, Error)>> {
        let result = self.read_all(names);
        if let Err(failure) = &result {
            let (name, error) = &**failure;
            tracing::warn!(?name, %error, "a kept record can't be read");
        }
        result
    }

    fn read_all(&self, names: &[RecordKey]) -> Result<Vec<Read>, Box<(RecordKey, Error)>> {
        let mut reads = Vec::with_capacity(names.len());
        let mut placements = Vec::new();
        let mut buffers = 0;
        for &name in names {
            let failed = |error| Box::new((name, error));
            let info = self
                .store
                .info(&self.namespace, &name.stored())
                .map_err(|error| failed(error.into()))?;
            let about = About::decode(&info.metadata)
                .filter(|_| info.bytes <= RECORD_LIMIT)
                .ok_or_else(|| failed(misfit("a record of another version")))?;
            let mut tensors = Vec::with_capacity(info.tensors.len());
            for (index, tensor) in info.tensors.iter().enumerate() {
                let dtype = dtype_of(tensor.dtype).map_err(failed)?;
                let layout = Layout::contiguous(&tensor.shape).map_err(|e| failed(e.into()))?;
                let bytes = memory(layout.elements() * tensor.dtype.size()).map_err(failed)?;
                let shape = tensor.shape.iter().map(|&extent| extent as i32);
                tensors.push((bytes, shape.collect(), dtype));
                placements.push(Placement {
                    key: name.stored(),
                    tensor: index,
                    buffer: buffers,
                    layout,
                });
                buffers += 1;
            }
            reads.push(Read { about, tensors });
        }
        let mut slices: Vec<&mut [u8]> = reads
            .iter_mut()
            .flat_map(|read| &mut read.tensors)
            .map(|(bytes, ..)| &mut **bytes)
            .collect();
        match self
            .store
            .read_into(&self.namespace, &placements, &mut slices)
        {
            Ok(_) => Ok(reads),
            Err(error) => {
                let stored = match &error {
                    StoreError::Miss { key, .. } => Some(*key),
                    _ => None,
                };
                let named = names.iter().find(|name| Some(name.stored()) == stored);
                // An error that names none is the first's.
                let name = named.or(names.first()).copied();
                match name {
                    Some(name) => Err(Box::new((name, error.into()))),
                    None => Ok(reads),
                }
            }
        }
    }

    /// Hands records to the writer as one batch. `removed` go once that is durable.
    /// On the MLX thread, since it looks at the memory of arrays.
    pub(crate) fn write(&self, news: Vec<(New, u32)>, removed: &[RecordKey]) -> Handed {
        let mut handed = Handed::default();
        let Some(writer) = &self.writer else {
            handed.settled = news.into_iter().map(|(new, _)| new.name).collect();
            return handed;
        };
        let (mut records, mut names) = (Vec::new(), Vec::new());
        for (new, uses) in news {
            let (name, bytes) = (new.name, new.record.bytes());
            if self.contains(name) || !self.today.lock().admits(bytes, uses) {
                handed.settled.push(name);
                continue;
            }
            match owned(new) {
                Ok(record) => {
                    handed.queued_bytes += bytes;
                    records.push(record);
                    names.push(name);
                }
                Err(error) => {
                    tracing::warn!(?name, %error, "a record can't be written");
                    handed.settled.push(name);
                }
            }
        }
        let removals: Vec<_> = removed.iter().map(|name| name.stored()).collect();
        if records.is_empty() && removals.is_empty() {
            return handed;
        }
        let job = Job {
            namespace: self.namespace.clone(),
            records,
            removals,
        };
        let mut writing = self.writing.lock();
        match writer.submit(job) {
            Ok(Submitted::Queued(ticket)) => {
                writing.insert(ticket, names);
            }
            refused => {
                if let Err(error) = refused {
                    tracing::warn!(%error, "nothing is written any more");
                }
                handed.dropped_bytes = std::mem::take(&mut handed.queued_bytes);
                handed.settled.extend(names);
            }
        }
        handed
    }

    /// What was written by a job that is done, and whether it was.
    pub(crate) fn acknowledge(&self, written: &Written) -> (Vec<RecordKey>, bool) {
        let names = self.writing.lock().remove(&written.ticket);
        if let Ok(report) = &written.result {
            self.today.lock().count(report.bytes_written);
        }
        (names.unwrap_or_default(), written.result.is_ok())
    }

    /// Waits until all is written that was handed over.
    pub(crate) fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
    }
}

impl Read {
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.tensors.iter().map(|(bytes, ..)| bytes.len() as u64);
        bytes.sum()
    }

    /// Not evaluated yet on CUDA. On the MLX thread.
    ///
    /// # Errors
    /// [`Error::MlxExtension`].
    pub(crate) fn into_record(self) -> Result<Record> {
        let is_cuda = Backend::current()? == Backend::Cuda;
        let arrays = self.tensors.into_iter().map(|(bytes, shape, dtype)| {
            Ok(if is_cuda {
                array_read_from(bytes, &shape, dtype)?
            } else {
                array_from_owner(bytes, &shape, dtype)?
            })
        });
        Ok(Record {
            about: self.about,
            arrays: arrays.collect::<Result<Vec<Array>>>()?,
        })
    }
}

/// Zeros that begin at a page, where Metal takes memory as it is, and that the system gives in
/// few large pages if it can.
///
/// # Errors
/// [`Error::CachedPart`] if there is no memory.
fn memory(bytes: usize) -> Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)
        .map_err(|error| misfit(format!("no memory for {bytes} bytes: {error}")))?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE_PAGE {
        // Only a hint, which systems without large pages refuse.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
}

fn owned(new: New) -> Result<OwnedWrite<Lent>> {
    let About { window_arrays, .. } = new.record.about;
    let tensors = readable(new.record.arrays)?.into_iter().enumerate();
    Ok(OwnedWrite {
        key: new.name.stored(),
        kind: new.name.piece.kind(window_arrays),
        parent: new.parent.map(RecordKey::stored),
        cost: new.cost,
        metadata: new.record.about.encode(),
        tensors: tensors
            .map(|(index, array)| {
                let view = HostView::new(array)?;
                let size = view.item_size() as isize;
                let shape: Vec<usize> =
                    view.shape().iter().map(|&extent| extent as usize).collect();
                let strides: Vec<isize> = view.byte_strides().iter().map(|s| s / size).collect();
                let offset = view.first_byte() / view.item_size();
                Ok(OwnedTensor {
                    name: index.to_string(),
                    dtype: stored_dtype(view.dtype())?,
                    layout: Layout::new(&shape, &strides, offset)?,
                    owner: Lent(view),
                })
            })
            .collect::<Result<_>>()?,
    })
}

/// Arrays that the host may look at. On CUDA that brings an array's memory to the host for
/// good: copies go there, and what is kept in memory stays with the device.
fn readable(arrays: Vec<Array>) -> Result<Vec<Array>> {
    if Backend::current()? != Backend::Cuda {
        return Ok(arrays);
    }
    let copies = arrays.iter().map(copy).collect::<Result<Vec<_>>>()?;
    eval(&copies)?;
    Ok(copies)
}

fn stored_dtype(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::Float32 => DType::F32,
        Dtype::Float16 => DType::F16,
        Dtype::Bfloat16 => DType::Bf16,
        Dtype::Uint32 => DType::U32,
        Dtype::Uint8 => DType::U8,
        other => return Err(misfit(format!("rows of {other:?}"))),
    })
}

fn dtype_of(dtype: DType) -> Result<Dtype> {
    Ok(match dtype {
        DType::F32 => Dtype::Float32,
        DType::F16 => Dtype::Float16,
        DType::Bf16 => Dtype::Bfloat16,
        DType::U32 => Dtype::Uint32,
        DType::U8 => Dtype::Uint8,
        other => return Err(misfit(format!("rows of {other}"))),
    })
}

fn misfit(fact: impl Into<String>) -> Error {
    Error::CachedPart { fact: fact.into() }
}

/// Whether a record is gone because its bytes are not what was written.
pub(crate) fn is_damage(error: &Error) -> bool {
    match error {
        Error::Store(StoreError::Miss { reason, .. }) => *reason != Miss::Absent,
        _ => true,
    }
}
