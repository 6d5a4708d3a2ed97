//! A loaded model: the level below the engine.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::transforms::eval;
use mlx_rs::{Array, Dtype};

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::models::gemma4::Gemma4;
use crate::models::qwen::Qwen;
use crate::models::{Chunk, LanguageModel, Placed, Positions};
use crate::prompt::{PreparedMedium, PreparedPrompt, Prompt};
use crate::sequence::{Sequence, Snapshot};
use crate::thread::MlxThread;
use crate::{Error, Result};

/// Tokens that one forward call of a prefill takes. Calls end at its multiples, whatever
/// is cached, so that the same prompt is always computed in the same pieces.
pub const PREFILL_CHUNK: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// The type that weights, activations and caches have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WorkingType {
    /// As the checkpoint stores it.
    #[default]
    AsStored,
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
}

impl WorkingType {
    fn dtype(self) -> Option<Dtype> {
        match self {
            Self::AsStored => None,
            Self::F32 => Some(Dtype::Float32),
            Self::Bf16 => Some(Dtype::Bfloat16),
        }
    }
}

/// How far a long step is: `done` of `total`, in bytes while loading and in tokens during
/// prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// So far.
    pub done: u64,
    /// In all.
    pub total: u64,
}

/// A model whose weights are in memory. It lives on the thread that holds MLX.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use prefill_engine::{Checkpoint, Conversation, MlxThread, Model, Preparer, WorkingType};
///
/// let thread = MlxThread::claim()?;
/// let checkpoint = Checkpoint::open("model")?;
/// let model = Model::load(&thread, &checkpoint, WorkingType::F32, &mut |_| {})?;
///
/// let preparer = Preparer::open(&checkpoint)?;
/// let prompt = preparer.prepare(&Conversation::user("Hello", []), &Default::default())?;
/// let mut sequence = model.prefill(&prompt, &mut |_| ControlFlow::Continue(()))?;
/// let first = sequence.logits()?; // one value an entry of the vocabulary
/// sequence.feed(42)?;
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    family: Box<dyn LanguageModel>,
    prefill_chunk: NonZeroUsize,
    _thread: MlxThread,
}

impl Model {
    /// Loads a checkpoint's weights. `progress` is told the bytes read.
    ///
    /// # Errors
    /// [`Error::UnsupportedModel`] and [`Error::Config`] for what this engine does not
    /// serve; [`Error::MissingTensors`], [`Error::UnexpectedTensors`],
    /// [`Error::TensorShape`], [`Error::TensorType`] and [`Error::BadFile`] for weights
    /// that do not fit, before any is read.
    pub fn load(
        thread: &MlxThread,
        checkpoint: &Checkpoint,
        working_type: WorkingType,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let mut on_bytes = |done, total| progress(Progress { done, total });
        let family: Box<dyn LanguageModel> = match checkpoint.model_type() {
            "gemma4" | "gemma4_unified" => Box::new(Gemma4::load(
                checkpoint,
                working_type.dtype(),
                &mut on_bytes,
            )?),
            qwen if Qwen::serves(qwen) => {
                Box::new(Qwen::load(checkpoint, working_type.dtype(), &mut on_bytes)?)
            }
            other => {
                return Err(Error::UnsupportedModel {
                    model_type: other.to_owned(),
                });
            }
        };
        Ok(Self {
            family,
            prefill_chunk: PREFILL_CHUNK,
            _thread: thread.clone(),
        })
    }

    /// This model with another number of tokens a forward call of a prefill than
    /// [`PREFILL_CHUNK`]: less memory, or speed. At most 8192: the mask of a call grows with
    /// the square.
    #[must_use]
    pub fn with_prefill_chunk(mut self, tokens: NonZeroUsize) -> Self {
        self.prefill_chunk = tokens.min(const { NonZeroUsize::new(8192).unwrap() });
        self
    }

    /// Entries of the vocabulary: the length of the logits.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.family.vocabulary()
    }

    /// Positions that the model takes.
    #[must_use]
    pub fn max_positions(&self) -> usize {
        self.family.max_positions()
    }

    /// The features of one medium as they enter the text model, row by row: each as wide as
    /// the model's hidden size, or a multiple of it where further features enter later layers
    /// (Qwen3-VL), which then follow in the same row.
    ///
    /// # Errors
    /// [`Error::NoTower`] if the checkpoint has none for it, [`Error::Mlx`].
    pub fn features(&self, medium: &PreparedMedium) -> Result<Vec<Vec<f32>>> {
        let rows = self.encode(medium)?.as_dtype(Dtype::Float32)?;
        let hidden = rows.dim(1) as usize;
        let values = rows
            .to_vec_exact::<f32>()
            .map_err(|error| Error::Conversion(error.to_string()))?;
        Ok(values.chunks(hidden).map(<[f32]>::to_vec).collect())
    }

    /// Encodes the prompt's media and feeds its tokens. `progress` is told the tokens
    /// fed, and may end the work.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `progress` breaks off; [`Error::EmptyPrompt`],
    /// [`Error::ContextLength`], [`Error::TokenId`], [`Error::NoTower`] and
    /// [`Error::FeatureRows`] for prompts that do not fit the model.
    pub fn prefill(
        &self,
        prepared: &PreparedPrompt,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Sequence<'_>> {
        Ok(self.prefill_with_snapshots(prepared, &[], progress)?.0)
    }

    /// [`prefill`](Self::prefill), with snapshots of the sequence after the first `positions`
    /// tokens, in order: ways back for models whose layers can't be cut back to a prefix. A
    /// forward call ends at each; where one would end inside what must not be cut, and where
    /// there is no such token, none is taken.
    ///
    /// # Errors
    /// Those of [`prefill`](Self::prefill).
    pub fn prefill_with_snapshots(
        &self,
        prepared: &PreparedPrompt,
        positions: &[usize],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(Sequence<'_>, Vec<Snapshot>)> {
        let ids = &prepared.prompt.ids;
        self.check(ids)?;
        let total = ids.len() as u64;
        let mut report = |done: usize| match progress(Progress {
            done: done as u64,
            total,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        };
        report(0)?;
        let started = Instant::now();
        let mut features = Vec::with_capacity(prepared.media.len());
        for medium in &prepared.media {
            let rows = self.encode(medium)?;
            eval([&rows])?;
            features.push(rows);
            report(0)?;
        }
        let encode_time = started.elapsed();

        let mut cache = self.family.new_cache();
        let mut logits = None;
        let mut snapshots = Vec::new();
        let mut start = 0;
        for end in self.chunk_ends(&prepared.prompt, positions) {
            let chunk_ids: Vec<i32> = ids[start..end].iter().map(|&id| id as i32).collect();
            let chunk = Chunk {
                ids: &Array::from_slice(&chunk_ids, &[1, chunk_ids.len() as i32]),
                features: &placed(prepared, &features, start, end)?,
                groups: &self.groups(&prepared.prompt, start, end),
                positions: &positions_of(prepared, start, end),
            };
            let is_kept = positions.contains(&end);
            let wants_logits = is_kept || end == ids.len();
            logits = self.family.forward(&chunk, &mut cache, wants_logits)?;
            eval(cache.arrays().chain(&logits))?;
            // Chunks are larger than decoding steps: what they used is not used again.
            mlx_rs::memory::clear_cache()?;
            cache.set_rope_delta(rope_delta_after(prepared, end));
            if let Some(logits) = logits.as_ref().filter(|_| is_kept) {
                snapshots.push(Snapshot::new(&cache, logits));
            }
            report(end)?;
            start = end;
        }
        let logits = logits.ok_or(Error::EmptyPrompt)?;
        Ok((Sequence::new(self, cache, logits, encode_time), snapshots))
    }

    /// Feeds one token, `[1, 1]`, and gives the logits after it, `[vocabulary]` in f32.
    pub(crate) fn step(&self, id: &Array, cache: &mut Cache) -> Result<Array> {
        let chunk = Chunk {
            ids: id,
            features: &[],
            groups: &[],
            positions: &Positions::From(cache.offset() as i32 + cache.rope_delta()),
        };
        let logits = self.family.forward(&chunk, cache, true)?;
        logits.ok_or(Error::EmptyPrompt)
    }

    /// Where forward calls end: at the multiples of the chunk size and at `wanted`, but before
    /// a run of positions that see each other rather than inside it, or after it if it began
    /// the call.
    fn chunk_ends(&self, prompt: &Prompt, wanted: &[usize]) -> Vec<usize> {
        let size = self.prefill_chunk.get();
        let mut ends = Vec::new();
        let mut start = 0;
        while start < prompt.ids.len() {
            let next = wanted.iter().copied().filter(|&at| at > start).min();
            let mut end = ((start / size + 1) * size).min(next.unwrap_or(usize::MAX));
            let cut = prompt
                .spans
                .iter()
                .filter(|span| self.family.is_bidirectional(span.kind))
                .find(|span| span.start < end && end < span.start + span.length);
            if let Some(span) = cut {
                end = if span.start > start {
                    span.start
                } else {
                    span.start + span.length
                };
            }
            start = end.min(prompt.ids.len());
            ends.push(start);
        }
        ends
    }

    /// The runs of positions in `start..end` that see each other.
    fn groups(&self, prompt: &Prompt, start: usize, end: usize) -> Vec<(i32, i32)> {
        prompt
            .spans
            .iter()
            .filter(|span| self.family.is_bidirectional(span.kind))
            .filter(|span| (start..end).contains(&span.start))
            .map(|span| ((span.start - start) as i32, span.length as i32))
            .collect()
    }

    fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        self.family.encode(medium)
    }

    fn check(&self, ids: &[u32]) -> Result<()> {
        let limit = self.max_positions();
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if ids.len() > limit {
            return Err(Error::ContextLength {
                tokens: ids.len(),
                limit,
            });
        }
        ids.iter().try_for_each(|&id| self.check_id(id))
    }

    pub(crate) fn check_id(&self, id: u32) -> Result<()> {
        let vocabulary = self.vocabulary();
        if id as usize >= vocabulary {
            return Err(Error::TokenId { id, vocabulary });
        }
        Ok(())
    }
}

/// Where the tokens `start..end` are for rotary embeddings in three dimensions.
fn positions_of(prepared: &PreparedPrompt, start: usize, end: usize) -> Positions {
    let Some(mrope) = &prepared.mrope else {
        return Positions::From(start as i32);
    };
    let axes = mrope.ids.each_ref().map(|axis| &axis[start..end]);
    let first = axes[0].first().copied().unwrap_or_default();
    let is_text = |axis: &&[i32]| axis.iter().copied().eq(first..first + (end - start) as i32);
    if axes.iter().all(is_text) {
        return Positions::From(first);
    }
    let shape = [3, (end - start) as i32];
    Positions::Each(Array::from_slice(&axes.concat(), &shape))
}

/// What is to be added to the index of a token after the first `end` to get its position.
fn rope_delta_after(prepared: &PreparedPrompt, end: usize) -> i32 {
    let Some(mrope) = &prepared.mrope else {
        return 0;
    };
    let largest = mrope.ids.iter().flat_map(|axis| &axis[..end]).max();
    largest.map_or(0, |largest| largest + 1 - end as i32)
}

/// The rows of features that lie in `start..end` of the prompt. Where a medium has several
/// spans, they take its rows one after the other.
fn placed(
    prepared: &PreparedPrompt,
    features: &[Array],
    start: usize,
    end: usize,
) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    let mut taken = vec![0; features.len()];
    for span in &prepared.prompt.spans {
        let (from, to) = (span.start.max(start), (span.start + span.length).min(end));
        let rows = features.get(span.medium);
        let left = rows.map_or(0, |rows| rows.dim(0) as usize - taken[span.medium]);
        let Some(rows) = rows.filter(|_| span.length <= left) else {
            return Err(Error::FeatureRows {
                kind: span.kind,
                expected: span.length,
                found: left,
            });
        };
        let row = taken[span.medium];
        taken[span.medium] += span.length;
        if from < to {
            let first = (row + from - span.start) as i32;
            let last = (row + to - span.start) as i32;
            placed.push(Placed {
                start: (from - start) as i32,
                rows: rows.try_index((first..last, ..))?,
            });
        }
    }
    for (medium, (rows, taken)) in features.iter().zip(taken).enumerate() {
        if rows.dim(0) as usize != taken {
            return Err(Error::FeatureRows {
                kind: prepared.media[medium].kind(),
                expected: taken,
                found: rows.dim(0) as usize,
            });
        }
    }
    Ok(placed)
}
