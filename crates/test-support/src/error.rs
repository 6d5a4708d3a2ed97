use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a description, a golden or a checkpoint could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A JSON file does not have the expected form.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A safetensors file could not be read or written.
    #[error("{path}: {source}")]
    SafeTensors {
        /// The file.
        path: PathBuf,
        /// Why.
        source: safetensors::SafeTensorError,
    },
    /// A golden's tensor is missing, or is not an f32 matrix.
    #[error("{path}: tensor `{name}`: {problem}")]
    Tensor {
        /// The golden's safetensors file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A patch points at a place that its file does not have.
    #[error("{path}: no value at `{pointer}`")]
    Pointer {
        /// The JSON file.
        path: PathBuf,
        /// The JSON pointer (RFC 6901).
        pointer: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Json { path, source }
    }

    pub(crate) fn safetensors(path: &Path) -> impl FnOnce(safetensors::SafeTensorError) -> Self {
        let path = path.to_owned();
        |source| Self::SafeTensors { path, source }
    }
}
