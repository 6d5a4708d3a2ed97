//! Replaying prefix traces, to compare policies.
//!
//! A trace is a list of [`Request`]s, each a chain of block ids, where an id stands for a block
//! and all that comes before it. [`blocks`] replays it against a cache of blocks, [`entries`]
//! against a cache of whole prompts, and [`bound`] says what no policy can exceed. Traces come
//! from a file (see the example `replay`) or from [`synthetic`].
//!
//! ```
//! use prefill_retention::Lru;
//! use prefill_retention::replay::{blocks, bound, synthetic};
//!
//! let trace = synthetic::mixed(7, 500);
//! let capacity = 40 * synthetic::BLOCK_TOKENS;
//! let lru = blocks(&trace, synthetic::BLOCK_TOKENS, capacity, Lru::default());
//! let best = bound(&trace, synthetic::BLOCK_TOKENS, capacity);
//! assert!(lru.token_hit_ratio() <= best.token_hit_ratio());
//! ```

mod offline;
mod simulate;
pub mod synthetic;

pub use offline::bound;
pub use simulate::{Sizes, blocks, entries};

/// One prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Ids of its blocks, from the root. Equal ids mean equal prefixes up to and including the
    /// block. The last block may be partial.
    pub blocks: Vec<u64>,
    /// Tokens of the prompt.
    pub tokens: u64,
}

/// What a replay gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of requests.
    pub requests: u64,
    /// Tokens of all prompts.
    pub tokens: u64,
    /// Tokens that the cache served.
    pub served_tokens: u64,
    /// Bytes of all prompts, as the cache would hold them.
    pub bytes: u64,
    /// Bytes that the cache served.
    pub served_bytes: u64,
    /// Number of evictions.
    pub evictions: u64,
    /// Number of refused insertions.
    pub refusals: u64,
    /// Insertions, refused ones included, and accesses.
    pub operations: u64,
}

impl Outcome {
    /// Share of tokens that need no prefill, 0 to 1.
    #[must_use]
    pub fn token_hit_ratio(&self) -> f64 {
        ratio(self.served_tokens, self.tokens)
    }

    /// Share of bytes that were there, 0 to 1.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> f64 {
        ratio(self.served_bytes, self.bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Tokens in the first `blocks` blocks of a prompt.
fn covered(request: &Request, blocks: usize, block_tokens: u64) -> u64 {
    (blocks as u64)
        .saturating_mul(block_tokens)
        .min(request.tokens)
}

/// Tokens in block `index` of a prompt.
fn tokens_of(request: &Request, index: usize, block_tokens: u64) -> u64 {
    covered(request, index + 1, block_tokens) - covered(request, index, block_tokens)
}
