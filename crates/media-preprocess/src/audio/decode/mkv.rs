//! Padding at the end of Matroska tracks, which symphonia reads past.

use std::collections::BTreeMap;
use std::io;

use super::source::Source;

/// Elements that are looked at, at most: ten hours have some 10,000 clusters.
const MAX_ELEMENTS: usize = 1 << 17;

// RFC 9559, section 5.1.
const EBML: u32 = 0x1a45_dfa3;
const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1f43_b675;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const SIMPLE_BLOCK: u32 = 0xa3;
const DISCARD_PADDING: u32 = 0x75a2;

/// By track, what its last block says is to be left out at its end, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Padding(BTreeMap<u64, u64>);

impl Padding {
    /// Sample frames to leave out at a track's end; no more than a second.
    pub(super) fn frames(&self, track: u32, rate: u32) -> usize {
        let nanoseconds = self.0.get(&track.into()).copied().unwrap_or(0);
        let frames = (u128::from(nanoseconds) * u128::from(rate) + 500_000_000) / 1_000_000_000;
        frames.min(rate.into()) as usize
    }
}

/// Looks through the last cluster. A stream that never learned its sizes tells nothing.
pub(super) fn padding(source: &mut Source<'_>) -> io::Result<Padding> {
    let mut left = MAX_ELEMENTS;
    let end = source.len();
    let mut last = None;
    visit(source, 0, end, &mut left, &mut |source, left, segment| {
        if segment.id != SEGMENT {
            return Ok(());
        }
        visit(
            source,
            segment.body,
            segment.end,
            left,
            &mut |_, _, child| {
                if child.id == CLUSTER {
                    last = Some(child);
                }
                Ok(())
            },
        )
    })?;
    let mut padding = BTreeMap::new();
    let Some(cluster) = last else {
        return Ok(Padding::default());
    };
    visit(
        source,
        cluster.body,
        cluster.end,
        &mut left,
        &mut |source, left, block| {
            if block.id == SIMPLE_BLOCK {
                padding.extend(track_of(source, block.body)?.map(|track| (track, 0)));
            } else if block.id == BLOCK_GROUP {
                let (mut track, mut found) = (None, 0);
                visit(
                    source,
                    block.body,
                    block.end,
                    left,
                    &mut |source, _, child| {
                        if child.id == BLOCK {
                            track = track_of(source, child.body)?;
                        } else if child.id == DISCARD_PADDING {
                            let length = (child.end - child.body).min(8) as usize;
                            let bytes = source.peek(child.body, length)?;
                            // Negative ones, which cut at the start, are nobody's.
                            let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
                            let value = bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
                            found = if negative { 0 } else { value };
                        }
                        Ok(())
                    },
                )?;
                padding.extend(track.map(|track| (track, found)));
            }
            Ok(())
        },
    )?;
    Ok(Padding(padding))
}

struct Element {
    id: u32,
    body: u64,
    end: u64,
}

/// What is done with an element; the count is of elements that may still be visited.
type Visitor<'v, 'a> = &'v mut dyn FnMut(&mut Source<'a>, &mut usize, Element) -> io::Result<()>;

/// Calls `run` for the elements between `at` and `end`, until one isn't whole or has no size.
fn visit<'a>(
    source: &mut Source<'a>,
    mut at: u64,
    end: u64,
    left: &mut usize,
    run: Visitor<'_, 'a>,
) -> io::Result<()> {
    while at < end && *left > 0 {
        *left -= 1;
        let head = source.peek(at, 12)?;
        let Some((id, id_length)) = number(&head, 4, true) else {
            break;
        };
        let Some((size, size_length)) = number(&head[id_length..], 8, false) else {
            break;
        };
        let body = at + (id_length + size_length) as u64;
        let unknown = size == (1 << (7 * size_length)) - 1;
        let next = body.saturating_add(size);
        if unknown && id as u32 != SEGMENT {
            break;
        }
        let next = if unknown { end } else { next.min(end) };
        if id as u32 != EBML {
            run(
                source,
                left,
                Element {
                    id: id as u32,
                    body,
                    end: next,
                },
            )?;
        }
        at = next;
    }
    Ok(())
}

/// The track of a block: its number comes first.
fn track_of(source: &mut Source<'_>, body: u64) -> io::Result<Option<u64>> {
    let head = source.peek(body, 8)?;
    Ok(number(&head, 8, false).map(|(number, _)| number))
}

/// A number of variable length (RFC 8794, section 4), and that length; with or without the bit
/// that marks it.
fn number(bytes: &[u8], longest: usize, marked: bool) -> Option<(u64, usize)> {
    let &first = bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    if length > longest || bytes.len() < length {
        return None;
    }
    let all = bytes[..length]
        .iter()
        .fold(0, |n, &byte| n << 8 | u64::from(byte));
    let mark = 1 << (7 * length);
    Some((if marked { all } else { all & (mark - 1) }, length))
}
