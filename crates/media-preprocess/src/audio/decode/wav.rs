//! WAV headers that state no length, a 64-bit one, or more than there is.

use std::io;

use super::source::Source;

/// Chunks before the samples that are looked through.
const MAX_CHUNKS: usize = 256;

/// Mends the header so that the reader sees a plain RIFF whose sizes are true. Whether the file
/// ends before the length that it states.
///
/// - RF64 and BW64 (EBU Tech 3306) keep their sizes in a `ds64` chunk.
/// - A size of `0xffffffff`, or of 0 in a RIFF that has size 0 too, is a stream's that nobody
///   went back to: the samples go on to the end.
/// - A size beyond the end of the file is cut.
pub(super) fn mend(source: &mut Source<'_>) -> io::Result<bool> {
    let head = source.peek(0, 12)?;
    let long = matches!(head.get(..4), Some(b"RF64" | b"BW64"));
    let riff_size = word(&head, 4);
    if long {
        source.patch(0, b"RIFF");
    }
    let mut long_size = None;
    let mut block = 1;
    let mut at = 12;
    for _ in 0..MAX_CHUNKS {
        let chunk = source.peek(at, 8 + 16)?;
        let (Some(name), Some(size)) = (chunk.get(..4), word(&chunk, 4)) else {
            return Ok(false);
        };
        let body = at + 8;
        match name {
            b"ds64" => long_size = long_word(&chunk, 16),
            b"fmt " => {
                let align = chunk
                    .get(20..22)
                    .map_or(1, |b| u16::from_le_bytes([b[0], b[1]]));
                block = u64::from(align.max(1));
            }
            b"data" => {
                let rest = source.len().saturating_sub(body);
                let streamed = size == u32::MAX || (size == 0 && riff_size == Some(0) && rest > 0);
                let stated = match long_size {
                    Some(length) if long && size == u32::MAX => length,
                    _ if streamed => rest,
                    _ => size.into(),
                };
                let whole = stated.min(rest) / block * block;
                if whole != u64::from(size) {
                    // The reader takes 0xffffffff as "to the end", which is then here.
                    let size = u32::try_from(whole).unwrap_or(u32::MAX);
                    source.patch(body - 4, &size.to_le_bytes());
                    source.patch(4, &u32::MAX.to_le_bytes());
                    source.end_at(body + whole);
                }
                return Ok(stated > rest);
            }
            _ => {}
        }
        at = body + u64::from(size) + u64::from(size % 2);
    }
    Ok(false)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long_word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
