//! Checkpoints from the Hugging Face hub: downloaded with resume, verified, and kept in the cache
//! that `huggingface_hub` uses too.
//!
//! - [`Hub`] is an endpoint and a cache: [`Hub::from_env`] as the environment names them.
//! - [`RepoId`] is an `org/name` that can't lead outside the cache.
//! - [`Hub::fetch`] gives the folder of a model's files, all whole.
//!
//! ```no_run
//! use prefill_hub::{Hub, RepoId};
//!
//! let hub = Hub::from_env();
//! let id = RepoId::parse("google/gemma-4-E2B-it")?;
//! let folder = hub.fetch(&id, &mut |progress| {
//!     println!("{} of {} bytes", progress.done, progress.total);
//! })?;
//! # Ok::<(), prefill_hub::Error>(())
//! ```
//!
//! # What it takes
//! Of a model's files those in its top folder that a checkpoint is made of: `*.safetensors`,
//! `*.json` and `*.jinja`.
//!
//! # What it does not do
//! It takes the main branch only, uploads nothing, and knows no datasets or spaces.

mod cache;
mod download;
mod error;
mod hub;
mod id;
mod info;
mod verify;

pub use error::Error;
pub use hub::{Hub, Progress};
pub use id::RepoId;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
