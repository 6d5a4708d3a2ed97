//! Where an Ogg file ends.

use std::io;

use super::source::Source;

/// The largest page: its header, 255 lengths, and as many segments of 255 bytes.
const MAX_PAGE: usize = 27 + 255 + 255 * 255;

/// Whether the last page is whole, and marked as the end of its stream (RFC 3533, section 6).
pub(super) fn is_complete(source: &mut Source<'_>) -> io::Result<bool> {
    let start = source.len().saturating_sub(MAX_PAGE as u64);
    let tail = source.peek(start, MAX_PAGE)?;
    let page = tail.windows(4).rposition(|four| four == b"OggS");
    Ok(page.is_some_and(|at| {
        let page = &tail[at..];
        let (Some(flags), Some(&count)) = (page.get(5), page.get(26)) else {
            return false;
        };
        let lengths = page.get(27..27 + usize::from(count)).unwrap_or_default();
        let body: usize = lengths.iter().map(|&length| usize::from(length)).sum();
        let whole = lengths.len() == usize::from(count) && page.len() >= 27 + lengths.len() + body;
        whole && flags & 4 != 0
    }))
}
