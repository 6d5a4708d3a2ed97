//! Packet tables of Core Audio files that are longer than their packets.

use std::io;

use super::source::Source;

/// Chunks before the samples that are looked through.
const MAX_CHUNKS: usize = 256;

/// The largest table that is looked through.
const MAX_TABLE: u64 = 1 << 24;

/// Hides what fills a packet table up (libsndfile rounds its size): the reader takes the byte
/// after the last packet's for the next chunk. Apple's Core Audio Format Specification 1.0,
/// "Packet Table Chunk".
pub(super) fn mend(source: &mut Source<'_>) -> io::Result<()> {
    // Numbers a packet: its size, its frames, or both, where they are not the same for all.
    let mut numbers = 0;
    let mut at = 8;
    for _ in 0..MAX_CHUNKS {
        let head = source.peek(at, 12 + 24)?;
        let (Some(name), Some(size)) = (head.get(..4), number(&head, 4, 8)) else {
            break;
        };
        let body = at + 12;
        if name == b"desc" {
            let varies = |offset: usize| u64::from(number(&head, 12 + offset, 4) == Some(0));
            numbers = varies(16) + varies(20);
        }
        if name == b"pakt" {
            let packets = number(&head, 12, 8).unwrap_or(0);
            let table = size.saturating_sub(24).min(MAX_TABLE);
            let bytes = source.peek(body + 24, table as usize)?;
            let wanted = packets.saturating_mul(numbers);
            // A number's last byte has no high bit.
            let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte < 0x80);
            let used = match wanted.checked_sub(1).and_then(|n| usize::try_from(n).ok()) {
                Some(last) => ends.nth(last).map(|(place, _)| place as u64 + 1),
                None => Some(0),
            };
            if let Some(used) = used.filter(|&used| used < table) {
                source.hide(body + 24 + used, table - used);
            }
            break;
        }
        let Some(next) = body.checked_add(size) else {
            break;
        };
        at = next;
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}
