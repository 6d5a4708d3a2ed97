//! What can go wrong between messages and a prompt.

use std::path::PathBuf;

use crate::prompt::MediaKind;

/// An error of this crate: it names the fact and carries the numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The conversation is not a list of messages of the accepted form.
    #[error("message {message}: {fact}")]
    Message {
        /// The message's index in the conversation.
        message: usize,
        /// What is wrong with it.
        fact: String,
    },
    /// The messages are no JSON.
    #[error("the messages are no JSON: {fact}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
        /// What is wrong there.
        fact: String,
    },
    /// A medium can't be fetched (feature `fetch`).
    #[error("{url}: {fact}")]
    Fetch {
        /// The URL, without its query and password.
        url: String,
        /// Why.
        fact: String,
    },
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
    /// None of the places where a chat template may lie has one.
    #[error(
        "{}: no chat template (looked in chat_template.jinja, tokenizer_config.json, \
         chat_template.json and processor_config.json)",
        folder.display()
    )]
    NoTemplate {
        /// The checkpoint's folder.
        folder: PathBuf,
    },
    /// There is no template of the name asked for, or none named `default`.
    #[error("no chat template is named {name:?} among {names:?}")]
    NoNamedTemplate {
        /// The name.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// The template takes too long.
    #[error("chat template: it takes longer than {limit:?}")]
    TemplateTime {
        /// How long it may take.
        limit: std::time::Duration,
    },
    /// The template is not valid, refuses these messages or takes too long.
    #[error("chat template: {0}")]
    Template(String),
    /// The template's text grew over the limit.
    #[error("chat template: the rendered text is over {limit} bytes")]
    TemplateOutput {
        /// The limit in bytes.
        limit: usize,
    },
    /// The tokenizer can't read its file or encode a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A special token that the model's prompt needs is not in its vocabulary.
    #[error("the tokenizer has no token {token:?}")]
    NoToken {
        /// The token's text.
        token: String,
    },
    /// A video's time is negative, not a number, or beyond 10^9 seconds.
    #[error("medium {medium}: {seconds} is no time in a video")]
    Timestamp {
        /// The medium, counted among all.
        medium: usize,
        /// The time in seconds.
        seconds: f64,
    },
    /// A video has another number of times than of frame groups.
    #[error("medium {medium}: {timestamps} times for {groups} frame groups")]
    TimestampCount {
        /// The medium, counted among all.
        medium: usize,
        /// Frame groups in its grid.
        groups: usize,
        /// Times given.
        timestamps: usize,
    },
    /// A medium's grid of patches is empty or can't be merged.
    #[error("medium {medium}: a grid of {grid:?} patches can't be merged by {merge}")]
    Grid {
        /// The medium, counted among all.
        medium: usize,
        /// Frames, rows and columns of patches.
        grid: [usize; 3],
        /// Patches a soft token, on each side.
        merge: usize,
    },
    /// The media ask for more soft tokens than any prompt may have.
    #[error("medium {medium} ({kind}) takes the prompt over {limit} soft tokens")]
    TooLong {
        /// The kind of media.
        kind: MediaKind,
        /// The medium, counted among all.
        medium: usize,
        /// The limit.
        limit: usize,
    },
    /// A block of keys has a number of positions that is no power of two from 16 to 2^20.
    #[error("a block of {block_size} positions: it must be a power of two from 16 to 2^20")]
    BlockSize {
        /// The size asked for.
        block_size: usize,
    },
    /// A prompt holds media of a kind whose encoder the key space does not know.
    #[error("no encoder fingerprint for {kind} inputs")]
    NoEncoder {
        /// The kind of media.
        kind: MediaKind,
    },
    /// The parts of a prompt do not fit each other.
    #[error("the prompt is not consistent at position {at}: {fact}")]
    PromptShape {
        /// What is wrong with it.
        fact: &'static str,
        /// Where.
        at: usize,
    },
    /// The rendered prompt holds another number of markers than there are media.
    #[error("the prompt holds {markers} {kind} markers for {media} {kind} inputs")]
    MarkerCount {
        /// The kind of media.
        kind: MediaKind,
        /// Markers in the rendered prompt.
        markers: usize,
        /// Media given.
        media: usize,
    },
}
