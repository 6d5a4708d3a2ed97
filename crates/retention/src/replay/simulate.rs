//! The online replays.

use std::collections::HashMap;

use super::{Outcome, Request, covered, tokens_of};
use crate::budget::Budget;
use crate::entry::NewEntry;
use crate::policy::Policy;

/// How many bytes a whole prompt takes, in units of one token's bytes over all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All layers keep all tokens.
    Dense,
    /// One layer of six keeps all tokens, the others the last 1,024, as Gemma's layers do.
    Sliding,
}

impl Sizes {
    fn bytes(self, tokens: u64) -> u64 {
        match self {
            Self::Dense => tokens,
            Self::Sliding => tokens / 6 + 5 * tokens.min(1024) / 6,
        }
    }
}

/// Replays `trace` against a cache of blocks. Each block takes `block_tokens` bytes of
/// `capacity`, the last one of a prompt too, and costs its tokens.
///
/// Of each prompt, the longest cached prefix is used (the leaf first), then the other blocks
/// are inserted from the root on, until one is refused.
#[must_use]
pub fn blocks(trace: &[Request], block_tokens: u64, capacity: u64, policy: impl Policy) -> Outcome {
    let mut budget = Budget::new(capacity, policy);
    let mut outcome = Outcome::default();
    for request in trace {
        let chain = &request.blocks;
        let found = budget.access_prefix(chain);
        for index in found..chain.len() {
            let tokens = tokens_of(request, index, block_tokens);
            let mut entry = NewEntry::new(block_tokens, tokens as f64);
            if let Some(parent) = index.checked_sub(1) {
                entry = entry.child_of(&chain[parent]);
            }
            outcome.operations += 1;
            if budget.insert(chain[index], entry).is_err() {
                outcome.refusals += 1;
                break;
            }
        }
        outcome.requests += 1;
        outcome.operations += found as u64;
        outcome.tokens += request.tokens;
        outcome.served_tokens += covered(request, found, block_tokens);
        outcome.bytes += chain.len() as u64 * block_tokens;
        outcome.served_bytes += found as u64 * block_tokens;
    }
    outcome.evictions = budget.counters().evicted().count;
    outcome
}

/// Replays `trace` against a cache of whole prompts that share nothing. A prompt is served by
/// the entry that has the longest prefix with it, which stays as it is.
#[must_use]
pub fn entries(
    trace: &[Request],
    block_tokens: u64,
    capacity: u64,
    sizes: Sizes,
    policy: impl Policy,
) -> Outcome {
    let mut budget = Budget::new(capacity, policy);
    let mut outcome = Outcome::default();
    // Which entries have a block, the youngest last. An entry is named by its last block.
    let mut holders: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut chains: HashMap<u64, &[u64]> = HashMap::new();
    for request in trace {
        let chain = request.blocks.as_slice();
        let Some(name) = chain.last() else { continue };
        let held = |block: &&u64| holders.get(block).is_some_and(|names| !names.is_empty());
        let found = chain.iter().take_while(held).count();
        let bytes = sizes.bytes(request.tokens);
        let served = covered(request, found, block_tokens);
        outcome.requests += 1;
        outcome.operations += 2;
        outcome.tokens += request.tokens;
        outcome.served_tokens += served;
        outcome.bytes += bytes;
        outcome.served_bytes += sizes.bytes(served);
        let best = found
            .checked_sub(1)
            .and_then(|last| holders[&chain[last]].last());
        if let Some(best) = best {
            budget.access(best);
        }
        if budget.contains(name) {
            continue;
        }
        match budget.insert(*name, NewEntry::new(bytes, request.tokens as f64)) {
            Ok(evicted) => {
                for victim in evicted {
                    for block in chains.remove(&victim.key).unwrap_or_default() {
                        if let Some(names) = holders.get_mut(block) {
                            names.retain(|name| *name != victim.key);
                        }
                    }
                }
                for block in chain {
                    holders.entry(*block).or_default().push(*name);
                }
                chains.insert(*name, chain);
            }
            Err(_) => outcome.refusals += 1,
        }
    }
    outcome.evictions = budget.counters().evicted().count;
    outcome
}
