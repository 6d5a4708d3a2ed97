//! Reading: pieces of extents are read, verified and put where they belong, on several threads.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use parking_lot::Mutex;

use crate::format::Hash;
use crate::index::Location;
use crate::vfs::{MAX_SLICES, VfsFile, read_all};
use crate::{Error, Miss, Result};

/// Destinations at least this long on average are read into directly; shorter ones are copied
/// to, after the piece was verified in scratch memory.
const DIRECT: usize = 16 << 10;
const WORTH_A_THREAD: u64 = 2 << 20;

/// Where some bytes of an extent go: a range of one of the destination buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) buffer: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Which of the records.
    pub(crate) record: usize,
    /// Where in its extent.
    pub(crate) at: usize,
}

/// A record to read from, with its open pack.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) location: Location,
    /// Nothing if the record has no bytes.
    pub(crate) file: Option<Arc<dyn VfsFile>>,
}

/// What a fetch did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) bytes: u64,
    pub(crate) copied: u64,
    pub(crate) threads: usize,
}

/// One piece to read, with the destinations of its parts.
#[derive(Debug)]
struct Job<'a> {
    source: usize,
    offset: u64,
    len: usize,
    hash: Hash,
    parts: Vec<(usize, &'a mut [u8])>,
}

/// The first record that failed, and why.
pub(crate) type Failure = (usize, Miss);

/// Reads the pieces that the spans lie in, verifies them, and fills the spans.
///
/// On failure the destinations hold some verified bytes, some zeros and some old bytes.
pub(crate) fn fetch(
    sources: &[Source],
    spans: Vec<Span>,
    buffers: &mut [&mut [u8]],
    threads: usize,
) -> Result<Result<Fetched, Failure>> {
    let jobs = jobs(sources, spans, buffers)?;
    let bytes: u64 = jobs.iter().map(|j| j.len as u64).sum();
    let threads = threads
        .min((bytes / WORTH_A_THREAD) as usize + 1)
        .min(jobs.len().max(1));
    let jobs = Mutex::new(jobs.into_iter());
    let failed = AtomicBool::new(false);
    let run = || {
        let mut scratch = Vec::new();
        let mut copied = 0;
        while !failed.load(Relaxed) {
            let Some(job) = jobs.lock().next() else { break };
            let source = job.source;
            let file = sources[source].file.as_deref();
            let done = file
                .ok_or(Miss::Truncated)
                .and_then(|file| job.run(file, &mut scratch));
            copied += done.map_err(|reason| {
                failed.store(true, Relaxed);
                (source, reason)
            })?;
        }
        Ok(copied)
    };
    let results: Vec<Result<u64, Failure>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut results = vec![run()];
        results.extend(
            others
                .into_iter()
                .map(|t| t.join().unwrap_or(Err((0, Miss::Unreadable)))),
        );
        results
    });
    let mut fetched = Fetched {
        bytes,
        copied: 0,
        threads,
    };
    for result in results {
        match result {
            Ok(copied) => fetched.copied += copied,
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(fetched))
}

/// Divides the buffers among the pieces. No byte may belong to two.
fn jobs<'a>(
    sources: &[Source],
    spans: Vec<Span>,
    buffers: &'a mut [&mut [u8]],
) -> Result<Vec<Job<'a>>> {
    let mut first = Vec::with_capacity(sources.len());
    let mut pieces = 0;
    for source in sources {
        first.push(pieces);
        pieces += source.location.entry().pieces.len();
    }
    let mut cut: Vec<Span> = spans
        .into_iter()
        .flat_map(|s| at_pieces(s, sources))
        .collect();
    cut.sort_unstable_by_key(|s| (s.buffer, s.offset));
    let mut parts: Vec<Vec<(usize, &'a mut [u8])>> = Vec::new();
    parts.resize_with(pieces, Vec::new);
    let mut cut = cut.into_iter().peekable();
    for (index, buffer) in buffers.iter_mut().enumerate() {
        let mut rest: &'a mut [u8] = buffer;
        let mut at = 0;
        while let Some(span) = cut.next_if(|s| s.buffer == index) {
            if span.offset < at {
                return Err(Error::Overlap {
                    buffer: index,
                    offset: span.offset,
                });
            }
            let (_, from) = rest.split_at_mut(span.offset - at);
            let (own, after) = from.split_at_mut(span.len);
            let size = piece_bytes(&sources[span.record]);
            parts[first[span.record] + span.at / size].push((span.at % size, own));
            rest = after;
            at = span.offset + span.len;
        }
    }
    let mut jobs = Vec::new();
    let mut parts = parts.into_iter();
    for (index, source) in sources.iter().enumerate() {
        let (entry, size) = (source.location.entry(), piece_bytes(source));
        for (p, hash) in entry.pieces.iter().enumerate() {
            let mut parts = parts.next().unwrap_or_default();
            if parts.is_empty() {
                continue;
            }
            parts.sort_unstable_by_key(|(at, _)| *at);
            let start = p * size;
            jobs.push(Job {
                source: index,
                offset: entry.offset + start as u64,
                len: size.min(entry.len as usize - start),
                hash: *hash,
                parts,
            });
        }
    }
    Ok(jobs)
}

fn piece_bytes(source: &Source) -> usize {
    source.location.commit.manifest.piece_bytes()
}

fn at_pieces(span: Span, sources: &[Source]) -> impl Iterator<Item = Span> + use<> {
    let size = piece_bytes(&sources[span.record]);
    let mut rest = span;
    std::iter::from_fn(move || {
        let len = rest.len.min(size - rest.at % size);
        let part = Span { len, ..rest };
        rest.at += len;
        rest.offset += len;
        rest.len -= len;
        (len > 0).then_some(part)
    })
}

impl Job<'_> {
    /// Reads and verifies the piece; returns the bytes that were copied.
    fn run(mut self, file: &dyn VfsFile, scratch: &mut Vec<u8>) -> Result<u64, Miss> {
        // Nothing of another piece may be mistaken for this one's.
        if scratch.len() < self.len {
            scratch.resize(self.len, 0);
        }
        let wanted: usize = self.parts.iter().map(|(_, p)| p.len()).sum();
        let long = wanted / self.parts.len() >= DIRECT && self.parts.len() * 2 < MAX_SLICES;
        // The same bytes may be wanted in several places.
        let once = self
            .parts
            .windows(2)
            .all(|pair| pair[0].0 + pair[0].1.len() <= pair[1].0);
        let direct = long && once;
        let read = if direct {
            self.read_direct(file, scratch)
        } else {
            self.read_through(file, scratch).map(|()| wanted as u64)
        };
        if read.is_err() {
            for (_, part) in &mut self.parts {
                part.fill(0);
            }
        }
        read
    }

    fn read_direct(&mut self, file: &dyn VfsFile, scratch: &mut [u8]) -> Result<u64, Miss> {
        let mut slices = Vec::with_capacity(self.parts.len() * 2 + 1);
        let (mut at, mut spare) = (0, scratch);
        for (start, part) in &mut self.parts {
            if *start > at {
                let (gap, rest) = spare.split_at_mut(*start - at);
                slices.push(gap);
                spare = rest;
            }
            at = *start + part.len();
            slices.push(&mut **part);
        }
        if at < self.len {
            slices.push(&mut spare[..self.len - at]);
        }
        let mut into: Vec<IoSliceMut<'_>> = slices.iter_mut().map(|s| IoSliceMut::new(s)).collect();
        read_all(file, &mut into, self.offset).map_err(|e| reason(&e))?;
        let mut hasher = blake3::Hasher::new();
        for slice in &slices {
            hasher.update(slice);
        }
        self.verify(&hasher)?;
        Ok(0)
    }

    fn read_through(&mut self, file: &dyn VfsFile, scratch: &mut [u8]) -> Result<(), Miss> {
        let piece = &mut scratch[..self.len];
        read_all(file, &mut [IoSliceMut::new(piece)], self.offset).map_err(|e| reason(&e))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(piece);
        self.verify(&hasher)?;
        for (at, part) in &mut self.parts {
            part.copy_from_slice(&piece[*at..*at + part.len()]);
        }
        Ok(())
    }

    fn verify(&self, hasher: &blake3::Hasher) -> Result<(), Miss> {
        if hasher.finalize() == blake3::Hash::from_bytes(self.hash) {
            Ok(())
        } else {
            Err(Miss::Torn)
        }
    }
}

fn reason(error: &io::Error) -> Miss {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Miss::Truncated,
        _ => Miss::Unreadable,
    }
}
