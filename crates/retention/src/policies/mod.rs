//! The policies.

mod adaptive;
mod arc;
mod greedy_dual;
mod lru;
mod s3_fifo;
mod w_tiny_lfu;

pub use adaptive::Adaptive;
pub use arc::Arc;
pub use greedy_dual::GreedyDual;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use w_tiny_lfu::WTinyLfu;
