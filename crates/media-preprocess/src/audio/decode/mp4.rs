//! Edit lists of ISO base media files, which symphonia reads past.

use std::io;

use super::source::Source;

/// Boxes that are looked at, at most: real files have a few dozen.
const MAX_BOXES: usize = 4096;

/// `moov/trak/edts/elst`.
const MAX_DEPTH: usize = 4;

/// The part of a track that is to be played (ISO/IEC 14496-12, 8.6.6): what lies before is
/// the encoder's priming, what lies after its padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Edit {
    pub(super) track: u32,
    /// Where it begins, in the track's units.
    media_time: u64,
    /// How long it is, in the movie's units; 0 is to the end.
    duration: u64,
    /// Units a second of the track, and of the movie.
    track_scale: u32,
    movie_scale: u32,
}

impl Edit {
    /// Sample frames to leave out at the start, and to give after them.
    pub(super) fn frames(&self, rate: u32) -> (u64, Option<u64>) {
        let scaled = |value: u64, scale: u32| {
            (u128::from(value) * u128::from(rate) + u128::from(scale / 2))
                / u128::from(scale.max(1))
        };
        let skip = scaled(self.media_time, self.track_scale);
        let length = scaled(self.duration, self.movie_scale);
        let fit = |frames: u128| u64::try_from(frames).unwrap_or(u64::MAX);
        (fit(skip), (self.duration > 0).then(|| fit(length)))
    }
}

/// The edit of every track that has exactly one with media in it. Empty edits, which only delay
/// a track against others, are passed over.
pub(super) fn edits(source: &mut Source<'_>) -> io::Result<Vec<Edit>> {
    let mut walk = Walk {
        source,
        left: MAX_BOXES,
        movie_scale: 0,
        track: Edit::default(),
        pieces: 0,
        found: Vec::new(),
    };
    let end = walk.source.len();
    walk.children(0, end, 0)?;
    Ok(walk.found)
}

struct Walk<'s, 'a> {
    source: &'s mut Source<'a>,
    left: usize,
    movie_scale: u32,
    track: Edit,
    /// Edits with media in the track's list.
    pieces: usize,
    found: Vec<Edit>,
}

impl Walk<'_, '_> {
    /// Reads the boxes from `at` to `end`, which are `depth` boxes deep.
    fn children(&mut self, mut at: u64, end: u64, depth: usize) -> io::Result<()> {
        while at < end && self.left > 0 && depth < MAX_DEPTH {
            self.left -= 1;
            let head = self.source.peek(at, 16)?;
            let (Some(size), Some(name)) = (word(&head, 0), head.get(4..8)) else {
                return Ok(());
            };
            let (header, size) = match size {
                0 => (8, end - at),
                1 => (16, long(&head, 8).unwrap_or(0)),
                size => (8, size.into()),
            };
            if size < header {
                return Ok(());
            }
            let next = at.saturating_add(size).min(end);
            let body = at + header;
            match name {
                b"moov" | b"edts" | b"mdia" => self.children(body, next, depth + 1)?,
                b"trak" => {
                    self.track = Edit::default();
                    self.pieces = 0;
                    self.children(body, next, depth + 1)?;
                    if self.pieces == 1 && self.track.track_scale > 0 && self.movie_scale > 0 {
                        self.track.movie_scale = self.movie_scale;
                        self.found.push(self.track);
                    }
                }
                b"mvhd" => self.movie_scale = self.versioned(body, 12, 20)?.unwrap_or(0),
                b"mdhd" => self.track.track_scale = self.versioned(body, 12, 20)?.unwrap_or(0),
                b"tkhd" => self.track.track = self.versioned(body, 12, 20)?.unwrap_or(0),
                b"elst" => self.edit_list(body)?,
                _ => {}
            }
            at = next;
        }
        Ok(())
    }

    /// The word at one place in a box of version 0, at another in one of version 1.
    fn versioned(&mut self, body: u64, short: usize, wide: usize) -> io::Result<Option<u32>> {
        let bytes = self.source.peek(body, 32)?;
        Ok(match bytes.first() {
            Some(0) => word(&bytes, short),
            Some(1) => word(&bytes, wide),
            _ => None,
        })
    }

    fn edit_list(&mut self, body: u64) -> io::Result<()> {
        // More edits than this are a cut film's, not an encoder's delay.
        let bytes = self.source.peek(body, 8 + 20 * 8)?;
        let (Some(&version), Some(count)) = (bytes.first(), word(&bytes, 4)) else {
            return Ok(());
        };
        let size = if version == 1 { 20 } else { 12 };
        for i in 0..(count as usize).min(8) {
            let Some(entry) = bytes.get(8 + i * size..8 + (i + 1) * size) else {
                return Ok(());
            };
            let (duration, media_time) = if version == 1 {
                (long(entry, 0), long(entry, 8).map(|time| time as i64))
            } else {
                let time = word(entry, 4).map(|time| i64::from(time as i32));
                (word(entry, 0).map(u64::from), time)
            };
            let (Some(duration), Some(media_time)) = (duration, media_time) else {
                return Ok(());
            };
            if let Ok(media_time) = u64::try_from(media_time) {
                self.track.media_time = media_time;
                self.track.duration = duration;
                self.pieces += 1;
            }
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(
        bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u32::from(byte)),
    )
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(bytes, at)?) << 32 | u64::from(word(bytes, at + 4)?))
}
