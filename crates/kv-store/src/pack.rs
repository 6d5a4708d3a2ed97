//! Hashing and writing extents, piece by piece, on several threads.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::View;
use crate::format::{ExtentLayout, Hash};
use crate::vfs::{VfsFile, write_all};

/// Runs at least this long are written from where they are. Shorter ones are packed first: the
/// hash needs 16 KiB in a row for its widest vectors, and a system call is limited in slices.
const DIRECT_RUN: usize = 16 << 10;
/// Below this, a second thread costs more than it brings.
const WORTH_A_THREAD: u64 = 2 << 20;
/// The drive gets to work whenever so much is written: by the time the last byte is, most of them
/// need not be waited for any more.
const START_SYNC: u64 = 32 << 20;
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// One extent to hash and write.
#[derive(Debug)]
pub(crate) struct Extent<'a> {
    pub(crate) layout: Arc<ExtentLayout>,
    pub(crate) views: Vec<View<'a>>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether the hashes of its pieces are known already.
    pub(crate) hashed: bool,
}

/// What became of the extents.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// The hashes of each extent's pieces, unless they were known.
    pub(crate) pieces: Vec<Option<Vec<Hash>>>,
    pub(crate) copied: u64,
    pub(crate) scratch: u64,
}

/// Hashes the pieces of the extents, but for those whose hashes are known, and writes them all
/// if there is a file.
pub(crate) fn process(
    extents: &[Extent<'_>],
    piece: usize,
    file: Option<&dyn VfsFile>,
    threads: usize,
) -> io::Result<Packed> {
    let count = |extent: &Extent<'_>| extent.len.div_ceil(piece as u64) as usize;
    let work: Vec<(usize, usize)> = extents
        .iter()
        .enumerate()
        .flat_map(|(e, extent)| (0..count(extent)).map(move |p| (e, p)))
        .collect();
    let total: u64 = extents.iter().map(|e| e.len).sum();
    let threads = threads
        .min((total / WORTH_A_THREAD) as usize + 1)
        .min(work.len().max(1));
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (syncs, due) = crossbeam_channel::bounded(1);
    let output = file.map(|file| Output {
        file,
        written: Mutex::new(0),
        syncs: &syncs,
    });
    let run = || {
        let output = output.as_ref();
        let mut worker = Worker {
            piece,
            output,
            scratch: Vec::new(),
            sums: Vec::new(),
            copied: 0,
        };
        while let Some(&(e, p)) = work.get(next.fetch_add(1, Relaxed))
            && !failed.load(Relaxed)
        {
            match worker.piece(&extents[e], p) {
                Ok(Some(sum)) => worker.sums.push((e, p, sum)),
                Ok(None) => {}
                Err(error) => {
                    failed.store(true, Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(worker)
    };
    let panicked = || io::Error::other("a writing thread panicked");
    let (results, synced) = thread::scope(|scope| {
        let early = file.filter(|_| total >= 2 * START_SYNC).map(|file| {
            scope.spawn(move || {
                due.iter()
                    .take_while(|more| *more)
                    .try_for_each(|_| file.sync_data(false))
            })
        });
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut results = vec![run()];
        results.extend(
            others
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(panicked()))),
        );
        let synced = early.map(|t| {
            // If that thread has failed there is nobody to tell.
            let _ = syncs.send(false);
            t.join().unwrap_or_else(|_| Err(panicked()))
        });
        (results, synced)
    });
    synced.transpose()?;
    let mut packed = Packed::default();
    packed.pieces.extend(
        extents
            .iter()
            .map(|e| (!e.hashed).then(|| vec![[0; 32]; count(e)])),
    );
    for worker in results {
        let worker = worker?;
        packed.copied += worker.copied;
        packed.scratch += worker.scratch.capacity() as u64;
        for (e, p, sum) in worker.sums {
            if let Some(pieces) = &mut packed.pieces[e] {
                pieces[p] = sum;
            }
        }
    }
    Ok(packed)
}

/// The pack that is being written.
struct Output<'f> {
    file: &'f dyn VfsFile,
    /// Bytes since the drive was last told to start. File systems serialise the writes to one
    /// file by spinning: whoever holds this writes, and the others wait without.
    written: Mutex<u64>,
    /// Whether there is more to sync.
    syncs: &'f Sender<bool>,
}

impl Output<'_> {
    fn write(&self, slices: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: usize = slices.iter().map(|s| s.len()).sum();
        let mut written = self.written.lock();
        write_all(self.file, slices, offset)?;
        *written += bytes as u64;
        // A sync that is still running will be followed by another.
        if *written >= START_SYNC && self.syncs.try_send(true).is_ok() {
            *written = 0;
        }
        Ok(())
    }
}

struct Worker<'w, 'f> {
    piece: usize,
    output: Option<&'w Output<'f>>,
    scratch: Vec<u8>,
    sums: Vec<(usize, usize, Hash)>,
    copied: u64,
}

impl Worker<'_, '_> {
    fn piece(&mut self, extent: &Extent<'_>, p: usize) -> io::Result<Option<Hash>> {
        let start = p * self.piece;
        let range = start..(start + self.piece).min(extent.len as usize);
        let needed = self.pack_short_runs(extent, &range);
        let mut slices = Vec::new();
        gather_slices(extent, &range, &self.scratch[..needed], &mut slices);
        let sum = (!extent.hashed).then(|| {
            let mut hasher = blake3::Hasher::new();
            for slice in &slices {
                hasher.update(slice);
            }
            *hasher.finalize().as_bytes()
        });
        if let Some(output) = self.output {
            output.write(&mut slices, extent.offset + start as u64)?;
        }
        Ok(sum)
    }

    /// Copies what lies in short runs into scratch memory, in order.
    fn pack_short_runs(&mut self, extent: &Extent<'_>, range: &Range<usize>) -> usize {
        let mut used = 0;
        for (view, part) in parts(extent, range).filter_map(Part::tensor) {
            if is_direct(view) {
                continue;
            }
            let n = part.len();
            if self.scratch.len() < used + n {
                self.scratch.resize(used + n, 0);
            }
            view.copy_range(part, &mut self.scratch[used..used + n]);
            used += n;
        }
        self.copied += used as u64;
        used
    }
}

fn is_direct(view: &View<'_>) -> bool {
    let run = view.run_bytes();
    run >= DIRECT_RUN || run == view.byte_len()
}

enum Part<'e, 'a> {
    Tensor(&'e View<'a>, Range<usize>),
    Zeros(usize),
}

impl<'e, 'a> Part<'e, 'a> {
    fn tensor(self) -> Option<(&'e View<'a>, Range<usize>)> {
        match self {
            Self::Tensor(view, range) => Some((view, range)),
            Self::Zeros(_) => None,
        }
    }
}

/// What lies in a range of an extent: parts of tensors, and the zeros between and after them.
fn parts<'e, 'a>(
    extent: &'e Extent<'a>,
    range: &Range<usize>,
) -> impl Iterator<Item = Part<'e, 'a>> + use<'e, 'a> {
    let tensors = &extent.layout.tensors;
    let mut next = tensors.partition_point(|t| t.offset + t.bytes <= range.start);
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        while tensors.get(next).is_some_and(|t| t.bytes == 0) {
            next += 1;
        }
        Some(match tensors.get(next) {
            Some(tensor) if tensor.offset <= at => {
                let from = at - tensor.offset;
                let to = tensor.bytes.min(end - tensor.offset);
                at = tensor.offset + to;
                next += 1;
                Part::Tensor(&extent.views[next - 1], from..to)
            }
            following => {
                let to = following.map_or(end, |t| t.offset.min(end));
                let n = to - at;
                at = to;
                Part::Zeros(n)
            }
        })
    })
}

fn gather_slices<'s, 'a: 's>(
    extent: &Extent<'a>,
    range: &Range<usize>,
    mut scratch: &'s [u8],
    out: &mut Vec<IoSlice<'s>>,
) {
    for part in parts(extent, range) {
        match part {
            Part::Tensor(view, part) if is_direct(view) => {
                out.extend(view.slices_of(part).map(IoSlice::new));
            }
            Part::Tensor(_, part) => {
                let (packed, rest) = scratch.split_at(part.len());
                out.push(IoSlice::new(packed));
                scratch = rest;
            }
            Part::Zeros(mut n) => {
                while n > 0 {
                    let some = n.min(ZEROS.len());
                    out.push(IoSlice::new(&ZEROS[..some]));
                    n -= some;
                }
            }
        }
    }
}
