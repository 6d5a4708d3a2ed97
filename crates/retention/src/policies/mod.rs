//! The policies.

mod greedy_dual;
mod lru;

pub use greedy_dual::GreedyDual;
pub use lru::Lru;
