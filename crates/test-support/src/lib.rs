//! Tiny checkpoints and goldens for prefill's tests.
//!
//! - [`Checkpoint`] builds a checkpoint folder from a description under
//!   `tests/reference/models`. Its weights come from a counter ([`weights`]), bit for bit those
//!   that the references were given, so that none are committed.
//! - [`Golden`] reads what a reference answered: prompt ids, media spans, greedy ids, logits.
//! - [`compare_logits`] compares logits with a golden and says where they differ.
//!
//! ```
//! use prefill_test_support::{Checkpoint, DType};
//!
//! let folder = Checkpoint::named("gemma4_e2b")?.dtype(DType::Bf16).shards(2).build()?;
//! assert!(folder.path().join("model.safetensors.index.json").exists());
//! assert!(folder.path().join("tokenizer.json").exists());
//! # Ok::<(), prefill_test_support::Error>(())
//! ```
//!
//! It knows no model and runs none: it has no MLX, and is of no use outside this repository.

mod checkpoint;
mod compare;
mod description;
mod error;
mod golden;
mod stored;
pub mod weights;

use std::path::PathBuf;

pub use checkpoint::{Checkpoint, DType};
pub use compare::{Comparison, LogitsMismatch, compare_logits};
pub use description::{ModelDescription, TensorDescription};
pub use error::{Error, Result};
pub use golden::{Golden, Matrix, Patch, Span};
pub use stored::StoredTensor;

/// `tests/reference` of this repository: models, media and goldens.
#[must_use]
pub fn reference_dir() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/reference"
    ))
}

/// `assets` of this repository: the demo's checkpoint and picture.
#[must_use]
pub fn assets_dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets"))
}
