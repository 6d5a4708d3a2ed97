//! Input in small pieces, so that a decoder can be stopped and its hunger observed.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

use super::Input;

/// As much as a decoder gets at once: the time is checked that often.
const PIECE: usize = 64 * 1024;

/// What a decoder met while reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Met {
    /// Nothing of note.
    #[default]
    Data,
    /// It asked for bytes beyond the last.
    End,
    /// It ran out of time.
    Deadline,
}

/// The input's bytes as a reader.
pub(super) struct PieceReader<'a> {
    input: Input<'a>,
    at: usize,
    met: &'a Cell<Met>,
}

impl<'a> PieceReader<'a> {
    pub(super) fn new(input: Input<'a>, met: &'a Cell<Met>) -> Self {
        Self { input, at: 0, met }
    }
}

impl BufRead for PieceReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.input.check_time().is_err() {
            self.met.set(Met::Deadline);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let rest = &self.input.bytes[self.at..];
        if rest.is_empty() {
            self.met.set(Met::End);
        }
        Ok(&rest[..rest.len().min(PIECE)])
    }

    fn consume(&mut self, amount: usize) {
        self.at = (self.at + amount).min(self.input.bytes.len());
    }
}

impl Read for PieceReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let len = piece.len().min(out.len());
        out[..len].copy_from_slice(&piece[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl io::Seek for PieceReader<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let len = self.input.bytes.len() as u64;
        let target = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::End(offset) => len.checked_add_signed(offset),
            io::SeekFrom::Current(offset) => (self.at as u64).checked_add_signed(offset),
        };
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        // A position beyond the end reads as the end.
        self.at = target.min(len) as usize;
        Ok(target)
    }
}
