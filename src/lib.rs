//! Multimodal models on MLX, from Rust.
//!
//! A picture and a question go in, text streams out, from a checkpoint in the layout of
//! the Hugging Face hub. The crate is a facade over [`prefill_engine`], whose documentation
//! has the details:
//!
//! - [`Engine`], [`Request`], [`Generation`] and its [`Event`]s: what programs embed;
//! - [`Conversation`]: messages with their media;
//! - [`CacheOptions`]: what is kept of prompts and media, in memory and on disk;
//! - [`Checkpoint`], [`Preparer`], [`MlxThread`], [`Model`] and [`Sequence`]: the level
//!   below, for those who step a model themselves.
//!
//! The feature `fetch`, off by default, lets conversations name media by URL
//! (`EngineBuilder::fetcher`).
//!
//! # Example
#![doc = include_str!("../docs/example.md")]
//!
//! What is kept, also on disk:
#![doc = include_str!("../docs/example_reuse.md")]
//! # What it does not do
//! See [`prefill_engine`]: one answer at a time.

pub use prefill_engine::*;

/// What most programs use.
///
/// ```
/// use prefill::prelude::*;
///
/// let question = Conversation::user("Name three rivers.", []);
/// let request = Request::new(question).sampling(Sampling::greedy()).max_tokens(64);
/// ```
pub mod prelude {
    pub use prefill_engine::{
        CacheOptions, CachePolicy, CancelToken, Conversation, DiskOptions, Engine, Event,
        FinishReason, Finished, Generation, MediaKind, MediaSource, Message, Request, Sampling,
        Statistics,
    };
}
