//! What no policy can exceed.

use std::collections::{BTreeSet, HashMap};

use super::{Outcome, Request, covered};

/// Replays `trace` against a cache of blocks that knows the future: of the cached blocks and
/// the newcomer, the one whose next use is farthest away goes (Belady 1966, with bypass).
///
/// Blocks are all of one size, and a block is never used without its ancestors, so that an
/// ancestor's next use is never later than its descendants': this is the most blocks that any
/// policy can serve. (Tokens too, but for partial last blocks.)
#[must_use]
pub fn bound(trace: &[Request], block_tokens: u64, capacity: u64) -> Outcome {
    let capacity = capacity.checked_div(block_tokens).unwrap_or(0);
    // The next request that uses each block again, by request and block.
    let mut next_use: HashMap<u64, usize> = HashMap::new();
    let mut next: Vec<Vec<usize>> = Vec::with_capacity(trace.len());
    for (number, request) in trace.iter().enumerate().rev() {
        let mut later = |block: &u64| next_use.insert(*block, number).unwrap_or(usize::MAX);
        next.push(request.blocks.iter().map(&mut later).collect());
    }
    next.reverse();
    let mut outcome = Outcome::default();
    // (next use, depth, block): the last goes first, leaves before their ancestors.
    let mut order: BTreeSet<(usize, usize, u64)> = BTreeSet::new();
    let mut cached: HashMap<u64, (usize, usize, u64)> = HashMap::new();
    for (request, next) in trace.iter().zip(&next) {
        let found = request
            .blocks
            .iter()
            .take_while(|block| cached.contains_key(block))
            .count();
        outcome.requests += 1;
        outcome.operations += request.blocks.len() as u64;
        outcome.tokens += request.tokens;
        outcome.served_tokens += covered(request, found, block_tokens);
        outcome.bytes += request.blocks.len() as u64 * block_tokens;
        outcome.served_bytes += found as u64 * block_tokens;
        for (depth, (block, next)) in request.blocks.iter().zip(next).enumerate() {
            if let Some(old) = cached.remove(block) {
                order.remove(&old);
            }
            if *next == usize::MAX {
                continue;
            }
            let place = (*next, depth, *block);
            order.insert(place);
            cached.insert(*block, place);
            if cached.len() as u64 > capacity
                && let Some((_, _, block)) = order.pop_last()
            {
                cached.remove(&block);
                outcome.evictions += 1;
            }
        }
    }
    outcome
}
