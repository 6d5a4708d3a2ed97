//! The bytes of a file as symphonia reads them, with a header that may be mended.

use std::io::{self, Read, Seek, SeekFrom};

use symphonia::core::io::MediaSource;

/// What can be read and sought: a file, or a cursor over bytes.
pub trait ReadSeek: Read + Seek + Send + Sync {}

impl<T: Read + Seek + Send + Sync> ReadSeek for T {}

/// A source with some bytes replaced or hidden, and perhaps ended early.
pub(super) struct Source<'a> {
    inner: Box<dyn ReadSeek + 'a>,
    position: u64,
    end: u64,
    patches: Vec<(u64, Vec<u8>)>,
    /// Where bytes are left out, and how many.
    hidden: Option<(u64, u64)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(mut inner: Box<dyn ReadSeek + 'a>) -> io::Result<Self> {
        let end = inner.seek(SeekFrom::End(0))?;
        inner.seek(SeekFrom::Start(0))?;
        Ok(Self {
            inner,
            position: 0,
            end,
            patches: Vec::new(),
            hidden: None,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// Up to `length` bytes at `at`, fewer at the end.
    pub(super) fn peek(&mut self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.seek(SeekFrom::Start(at))?;
        (&mut *self).take(length as u64).read_to_end(&mut bytes)?;
        self.seek(SeekFrom::Start(0))?;
        Ok(bytes)
    }

    /// Lets the bytes at `at` read as others.
    pub(super) fn patch(&mut self, at: u64, bytes: &[u8]) {
        self.patches.push((at, bytes.to_vec()));
    }

    /// Leaves out `length` bytes from `at` on, which lie inside.
    pub(super) fn hide(&mut self, at: u64, length: u64) {
        self.end = self.end.saturating_sub(length).max(at.min(self.end));
        self.hidden = Some((at, length));
    }

    /// Lets the source end no later than at `end`.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = self.end.min(end);
    }
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let rest = self.end.saturating_sub(self.position);
        let mut wanted = out.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        if let Some((at, length)) = self.hidden {
            if self.position == at {
                self.inner.seek(SeekFrom::Start(at + length))?;
            } else if self.position < at {
                let before = usize::try_from(at - self.position).unwrap_or(usize::MAX);
                wanted = wanted.min(before);
            }
        }
        let count = self.inner.read(&mut out[..wanted])?;
        for (at, bytes) in &self.patches {
            for (i, &byte) in bytes.iter().enumerate() {
                let place = (at + i as u64).checked_sub(self.position);
                if let Some(place) = place.filter(|&place| place < count as u64) {
                    out[place as usize] = byte;
                }
            }
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Source<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.end.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        // A position beyond the end reads as the end.
        self.position = target.min(self.end);
        let hidden = match self.hidden {
            Some((at, length)) if self.position >= at => length,
            _ => 0,
        };
        self.inner.seek(SeekFrom::Start(self.position + hidden))?;
        Ok(self.position)
    }
}

impl MediaSource for Source<'_> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.end)
    }
}
