//! The families of models.

pub(crate) mod gemma4;
mod limits;
pub(crate) mod qwen;

use std::fmt::Debug;

use mlx_rs::Array;

use crate::Result;
use crate::cache::Cache;
use crate::prompt::PreparedMedium;

/// What the engine needs of a model. All arrays belong to the MLX thread.
pub(crate) trait LanguageModel: Debug {
    /// A cache for one sequence.
    fn new_cache(&self) -> Cache;

    /// The size of a head in each layer that keeps keys and values.
    fn head_sizes(&self) -> Vec<i32>;

    /// Bytes of a value of the working type.
    fn value_bytes(&self) -> usize;

    /// Bytes that the cache of a sequence of `tokens` takes.
    fn cache_bytes(&self, tokens: usize) -> usize;

    /// Bytes that one forward call of `chunk` tokens, the last of `tokens`, takes at most
    /// beside weights and cache; an estimate.
    fn working_bytes(&self, chunk: usize, tokens: usize) -> usize;

    /// Positions that the model takes.
    fn max_positions(&self) -> usize;

    /// Entries of the vocabulary: the length of the logits.
    fn vocabulary(&self) -> usize;

    /// The features of a medium in the working type, a row a soft token, which the model
    /// itself gets back: `[soft tokens, hidden]`, or wider where more than the embedding is
    /// replaced.
    ///
    /// # Errors
    /// [`NoTower`](crate::Error::NoTower) for a medium that it does not take.
    fn encode(&self, medium: &PreparedMedium) -> Result<Array>;

    /// Feeds a chunk. Where `logits` are wanted, gives those after its last position,
    /// `[vocabulary]` in f32.
    fn forward(&self, chunk: &Chunk<'_>, cache: &mut Cache, logits: bool) -> Result<Option<Array>>;
}

/// Consecutive tokens of one sequence.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    /// `[1, count]`, i32.
    pub ids: &'a Array,
    /// Features of media that lie in this chunk, in order of position.
    pub features: &'a [Placed],
    /// Runs of positions that see each other, as first position in the chunk and length.
    pub groups: &'a [(i32, i32)],
    /// Where the tokens are for rotary embeddings in three dimensions.
    pub positions: &'a Positions,
}

/// The positions of consecutive tokens on the axes time, row and column.
#[derive(Debug)]
pub(crate) enum Positions {
    /// One after the other from this one, the same on every axis.
    From(i32),
    /// `[3, count]`, i32.
    Each(Array),
}

/// Rows of features, and the position in the chunk of the first.
#[derive(Debug)]
pub(crate) struct Placed {
    pub start: i32,
    /// `[count, hidden]`.
    pub rows: Array,
}
