//! The families of models.

pub(crate) mod gemma4;
pub(crate) mod qwen;

use std::fmt::Debug;

use mlx_rs::Array;
use prefill_media_preprocess::image::Gemma4Image;

use crate::Result;
use crate::cache::Cache;
use crate::prompt::{MediaKind, PreparedMedium};

/// What the engine needs of a model. All arrays belong to the MLX thread.
pub(crate) trait LanguageModel: Debug {
    /// A cache for one sequence.
    fn new_cache(&self) -> Cache;

    /// Positions that the model takes.
    fn max_positions(&self) -> usize;

    /// Entries of the vocabulary: the length of the logits.
    fn vocabulary(&self) -> usize;

    /// Whether the positions of one medium of this kind see each other, so that no forward
    /// call may end inside it.
    fn is_bidirectional(&self, kind: MediaKind) -> bool;

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

/// Whether a picture's parts agree with each other: MLX checks no index and no length.
pub(crate) fn is_consistent(image: &Gemma4Image) -> bool {
    let inside = |&[x, y]: &[i32; 2]| {
        (0..image.columns as i32).contains(&x) && (0..image.rows as i32).contains(&y)
    };
    image.positions.len() == image.num_patches()
        && image.pixel_values.len() == image.num_patches() * image.patch_dim()
        && image.positions.iter().all(inside)
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
