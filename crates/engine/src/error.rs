//! What can go wrong between a checkpoint's folder and its answer.

use std::path::{Path, PathBuf};

use mlx_rs::error::Exception;

use crate::prompt::MediaKind;

/// An error of the engine: it names the fact and carries the numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a folder nor an id of the hub.
    #[error("{model}: neither a folder nor an org/name of the Hugging Face hub")]
    NoModel {
        /// What was asked for.
        model: String,
    },
    /// The hub, or its cache.
    #[error(transparent)]
    Hub(#[from] prefill_hub::Error),
    /// A file of the checkpoint can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the checkpoint is not what it should be.
    #[error("{}: {fact}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fact: String,
    },
    /// A value of `config.json` that contradicts another or can't be served.
    #[error("config.json: {key}: {fact}")]
    Config {
        /// The setting, such as `text_config.head_dim`.
        key: &'static str,
        /// What is wrong with it.
        fact: String,
    },
    /// The checkpoint is of a family that this engine does not know.
    #[error("config.json: model_type {model_type:?} is not supported")]
    UnsupportedModel {
        /// What the configuration says.
        model_type: String,
    },
    /// Tensors that the configuration asks for are not in the checkpoint.
    #[error("{} tensors are missing, such as {}", names.len(), first(names))]
    MissingTensors {
        /// Their names, sorted.
        names: Vec<String>,
    },
    /// Tensors in the checkpoint that the configuration has no use for.
    #[error("{} tensors are not expected, such as {}", names.len(), first(names))]
    UnexpectedTensors {
        /// Their names, sorted.
        names: Vec<String>,
    },
    /// A tensor of another shape than the configuration asks for.
    #[error("tensor {name} is {found:?}, and the configuration asks for {expected:?}")]
    TensorShape {
        /// The tensor's name in the file.
        name: String,
        /// The shape by the configuration.
        expected: Vec<i32>,
        /// The shape in the file.
        found: Vec<i32>,
    },
    /// A tensor of a type that can't be computed with.
    #[error("tensor {name} is of type {dtype}, and only F32, F16 and BF16 are supported")]
    TensorType {
        /// The tensor's name in the file.
        name: String,
        /// The type, as the file writes it.
        dtype: String,
    },
    /// Quantised tensors that fit neither each other nor the shape of their matrix.
    #[error("{path}: {fact}")]
    Quantized {
        /// The matrix, as the file names it, without `.weight`.
        path: String,
        /// What does not fit.
        fact: String,
    },
    /// Keys and values of a layer can't be quantised as asked.
    #[error("quantised keys and values: layer {layer}: {fact}")]
    KvQuantization {
        /// The layer, counted among those that keep keys and values.
        layer: usize,
        /// What does not fit.
        fact: String,
    },
    /// A medium of a kind for which the checkpoint has no tower.
    #[error("this checkpoint takes no {kind} input")]
    NoTower {
        /// The kind.
        kind: MediaKind,
    },
    /// A conversation part named no file, and none was supplied.
    #[error("{kind} input {index} names no file")]
    NoSource {
        /// The kind.
        kind: MediaKind,
        /// Which medium of the conversation, in document order.
        index: usize,
    },
    /// A conversation part names a URL, and nothing was given to fetch it with: see the feature
    /// `fetch`.
    #[error("{kind} input {index} is a URL, and URLs are not fetched here")]
    NoFetcher {
        /// The kind.
        kind: MediaKind,
        /// Which medium of the conversation, in document order.
        index: usize,
    },
    /// A tower gave another number of rows than the prompt has places for.
    #[error("the {kind} tower gave {found} rows for {expected} places in the prompt")]
    FeatureRows {
        /// The kind.
        kind: MediaKind,
        /// The places in the prompt.
        expected: usize,
        /// The rows of the tower's output.
        found: usize,
    },
    /// A setting of a request that can't be followed.
    #[error("request: {setting}: {fact}")]
    Request {
        /// The setting, such as `stop`.
        setting: &'static str,
        /// What is wrong with it.
        fact: String,
    },
    /// A model or a request needs more memory than the budget leaves.
    #[error("{needed} bytes are needed, and {in_use} of the limit of {limit} are in use")]
    Memory {
        /// What it needs, in bytes.
        needed: usize,
        /// What MLX has in use.
        in_use: usize,
        /// The limit that was set.
        limit: usize,
    },
    /// The model was unloaded.
    #[error("the model was unloaded")]
    Unloaded,
    /// A tensor with values that are no numbers.
    #[error("tensor {name} holds values that are not numbers (NaN)")]
    NotANumber {
        /// The tensor's name in the file.
        name: String,
    },
    /// The prompt holds nothing to answer.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocabulary}")]
    TokenId {
        /// The id.
        id: u32,
        /// The size of the vocabulary.
        vocabulary: usize,
    },
    /// The prompt is longer than the model's positions.
    #[error("the prompt has {tokens} tokens, and the model takes {limit}")]
    ContextLength {
        /// Tokens of the prompt.
        tokens: usize,
        /// The model's limit.
        limit: usize,
    },
    /// A sampling setting out of its range, or that contradicts another.
    #[error("sampling: {setting}: {fact}")]
    Sampling {
        /// The setting, such as `top_p`.
        setting: &'static str,
        /// What is wrong with it.
        fact: String,
    },
    /// A sequence can't go back to a position.
    #[error("no way back to position {position} from a sequence of {tokens} tokens")]
    NotRestorable {
        /// Where it was to go.
        position: usize,
        /// Tokens fed so far.
        tokens: usize,
    },
    /// What was kept of a prompt does not fit the model. Requests do not fail by it: they
    /// compute what it would have spared.
    #[error("a kept part of a prompt does not fit: {fact}")]
    CachedPart {
        /// What does not fit.
        fact: String,
    },
    /// The folder of a cache.
    #[error("cache: {0}")]
    Store(#[from] prefill_kv_store::Error),
    /// A prompt that does not go on where a sequence ends.
    #[error(
        "a prompt of {prompt} tokens does not go on after the {tokens} of the sequence: they \
         share {shared}"
    )]
    NotContinued {
        /// Tokens of the sequence.
        tokens: usize,
        /// How many the prompt begins with.
        shared: usize,
        /// Tokens of the prompt.
        prompt: usize,
    },
    /// Whoever asked for the work no longer wants it.
    #[error("cancelled")]
    Cancelled,
    /// An array that can't be read as what it should be.
    #[error("reading an array: {0}")]
    Conversion(String),
    /// MLX belongs to another thread of this process.
    #[error("MLX is in use by another thread of this process ({owner})")]
    MlxTaken {
        /// Who has it.
        owner: &'static str,
    },
    /// A callback of the runtime thread asked for work that this thread would have to do.
    #[error("the MLX runtime thread can't wait for itself")]
    OnRuntimeThread,
    /// The runtime thread is gone or did not answer.
    #[error("the MLX runtime thread is not running")]
    RuntimeGone,
    /// The runtime thread panicked while it worked on this request.
    #[error("the MLX runtime thread panicked: {0}")]
    Panicked(String),
    /// The runtime thread can't be started.
    #[error("the MLX runtime thread can't be started: {0}")]
    RuntimeStart(std::io::Error),
    /// Templates, tokens or splicing.
    #[error(transparent)]
    Prompt(#[from] prefill_multimodal_prompt::Error),
    /// Decoding or preprocessing of a medium.
    #[error("{kind} input {index}: {source}")]
    Media {
        /// The kind.
        kind: MediaKind,
        /// Which medium of the conversation, in document order.
        index: usize,
        /// What is wrong with it.
        source: prefill_media_preprocess::Error,
    },
    /// The checkpoint's preprocessing settings.
    #[error(transparent)]
    Processor(prefill_media_preprocess::Error),
    /// MLX refused an operation.
    #[error("MLX: {0}")]
    Mlx(#[from] Exception),
    /// MLX refused an operation that mlx-rs does not have.
    #[error(transparent)]
    MlxExtension(#[from] mlx_sys_ext::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn bad_file(path: &Path, fact: impl Into<String>) -> Self {
        Self::BadFile {
            path: path.to_owned(),
            fact: fact.into(),
        }
    }
}

fn first(names: &[String]) -> &str {
    names.first().map_or("none", String::as_str)
}
