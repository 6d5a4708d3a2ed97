//! Multimodal language models on MLX, from a checkpoint's folder to streamed text.
//!
//! - [`Engine`] is the handle that programs embed: cheap to clone, usable from any thread.
//!   A [`Request`] goes in, a [`Generation`] (an iterator of [`Event`]s, or a stream of them)
//!   comes back, and dropping it cancels the work. [`Sampling`] says how tokens are chosen.
//! - [`Checkpoint`] is a folder in the layout of the Hugging Face hub, [`Preparer`] turns
//!   [`Conversation`]s into its prompts.
//! - [`MlxThread`], [`Model`] and [`Sequence`] are the level below, for programs that own
//!   their MLX thread and step the model themselves.
//!
//! ```
//! use prefill_engine::{Conversation, Engine, Event, MediaKind, Request};
//!
//! # let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets");
//! # let (model, picture) = (format!("{assets}/demo-model"), format!("{assets}/demo/shapes.png"));
//! let engine = Engine::builder(model).build()?;
//! let question = Conversation::user(
//!     "How many shapes are there?",
//!     [(MediaKind::Image, picture.as_str().into())],
//! );
//! for event in engine.generate(Request::new(question).max_tokens(32))? {
//!     match event? {
//!         Event::Text(text) => print!("{text}"),
//!         Event::Finished(end) => println!("\n{:?}", end.reason),
//!         _ => {}
//!     }
//! }
//! # Ok::<(), prefill_engine::Error>(())
//! ```
//!
//! # Threads
//! MLX's state is shared by a process. One thread, started with the first engine, does all
//! of its work; media, templates and tokens are prepared on the caller's.
//!
//! # Numbers
//! It computes in the type that a checkpoint stores, or in the [`WorkingType`] asked for; norms,
//! pooling, soft caps of the audio tower and softmaxes are f32 whatever it is, as in
//! transformers, and towers of f16 checkpoints are f32 altogether, since their values leave
//! f16's range. Where implementations differ, transformers is followed.
//!
//! # Media by URL
//! With the feature `fetch` (off by default), `EngineBuilder::fetcher` lets conversations name
//! media by URL, within a `Fetcher`'s limits and never from inside addresses. Without it no
//! request makes a connection.
//!
//! # Reuse
//! What was computed is kept, in memory by itself and on disk with
//! [`EngineBuilder::cache`]: prefixes of prompts, for every kind of layer, and features of
//! media. It is found again by keys that say all it depends on, and a resumed prompt gives the
//! bits that the same forward calls give without it. [`Statistics::reused`] says what was found
//! and why not more. [`PrefixCache`] is the same for programs that own their MLX thread.
//!
//! # What it does not do
//! It runs one answer at a time. What is kept on disk is not encrypted. Two machines whose BLAS
//! libraries differ should not share a folder: their roundings do.

mod cache;
mod cancel;
mod checkpoint;
mod engine;
mod error;
mod generation;
mod memory;
mod model;
mod models;
mod nn;
mod output;
mod prompt;
mod quantize;
mod request;
mod reuse;
mod runtime;
mod sampling;
mod sequence;
mod stop;
mod thread;
mod work;

pub use cache::KvQuantization;
pub use cancel::CancelToken;
pub use checkpoint::Checkpoint;
pub use engine::{Engine, EngineBuilder};
pub use error::Error;
pub use generation::{Event, EventStream, FinishReason, Finished, Generation, Statistics};
pub use model::{LoadOptions, Model, PREFILL_CHUNK, Progress, WorkingType};
pub use prefill_hub::{Hub, RepoId};
pub use prompt::{
    AnswerFormat, Conversation, MediaKind, MediaSource, Message, MessageRules, Mrope, Positions,
    PreparedMedium, PreparedPrompt, Preparer, Prompt, Span, TemplateOptions, ToolCall,
};
#[cfg(feature = "fetch")]
pub use prompt::{FetchPolicy, Fetcher};
pub use quantize::{Quantised, QuantizationMode, QuantizeOptions, quantize_checkpoint};
pub use request::Request;
pub use reuse::{
    CacheOptions, CachePolicy, CacheStats, DiskOptions, Gate, Kept, PrefixCache, Reused, Shortfall,
};
pub use sampling::Sampling;
pub use sequence::{Decoder, Sequence, Snapshot, Token, TokenLogProbs};
pub use thread::MlxThread;

/// Entry points for the fuzz targets; not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    /// Reads `file` as a safetensors file; true if its header is sound.
    #[must_use]
    pub fn safetensors_header(file: &[u8]) -> bool {
        crate::checkpoint::container::read(file, file.len() as u64).is_ok()
    }
}

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
