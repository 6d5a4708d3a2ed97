//! A loaded model and a sequence that it works on: the level below the engine.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use mlx_rs::ops::indexing::{TryIndexOp, argmax};
use mlx_rs::transforms::{async_eval, eval};
use mlx_rs::{Array, Dtype};

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::models::gemma4::Gemma4;
use crate::models::{Chunk, LanguageModel, Placed};
use crate::prompt::{PreparedMedium, PreparedPrompt};
use crate::thread::MlxThread;
use crate::{Error, Result};

/// Tokens that one forward call of a prefill takes. Calls end at its multiples, whatever
/// is cached, so that the same prompt is always computed in the same pieces.
pub const PREFILL_CHUNK: usize = 512;

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
    model: Box<dyn LanguageModel>,
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
        let model: Box<dyn LanguageModel> = match checkpoint.model_type() {
            "gemma4" => Box::new(Gemma4::load(
                checkpoint,
                working_type.dtype(),
                &mut on_bytes,
            )?),
            other => {
                return Err(Error::UnsupportedModel {
                    model_type: other.to_owned(),
                });
            }
        };
        Ok(Self {
            model,
            _thread: thread.clone(),
        })
    }

    /// Entries of the vocabulary: the length of the logits.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }

    /// Positions that the model takes.
    #[must_use]
    pub fn max_positions(&self) -> usize {
        self.model.max_positions()
    }

    /// The features of one medium as they enter the text model, row by row, each of the
    /// model's hidden size.
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

        let mut cache = self.model.new_cache();
        let mut logits = None;
        for start in (0..ids.len()).step_by(PREFILL_CHUNK) {
            let end = (start + PREFILL_CHUNK).min(ids.len());
            let chunk_ids: Vec<i32> = ids[start..end].iter().map(|&id| id as i32).collect();
            let chunk = Chunk {
                ids: &Array::from_slice(&chunk_ids, &[1, chunk_ids.len() as i32]),
                features: &placed(prepared, &features, start, end)?,
            };
            logits = self.model.forward(&chunk, &mut cache, end == ids.len())?;
            eval(cache.arrays().chain(&logits))?;
            // Chunks are larger than decoding steps: what they used is not used again.
            mlx_rs::memory::clear_cache()?;
            report(end)?;
        }
        let logits = logits.ok_or(Error::EmptyPrompt)?;
        Ok(Sequence {
            model: self,
            cache,
            logits,
            encode_time,
        })
    }

    fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        match medium {
            PreparedMedium::Image(image) => self.model.encode_image(image),
        }
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

    fn check_id(&self, id: u32) -> Result<()> {
        let vocabulary = self.vocabulary();
        if id as usize >= vocabulary {
            return Err(Error::TokenId { id, vocabulary });
        }
        Ok(())
    }
}

/// The rows of features that lie in `start..end` of the prompt.
fn placed(
    prepared: &PreparedPrompt,
    features: &[Array],
    start: usize,
    end: usize,
) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    for span in &prepared.prompt.spans {
        let (from, to) = (span.start.max(start), (span.start + span.length).min(end));
        let Some(rows) = features.get(span.medium) else {
            return Err(Error::FeatureRows {
                kind: span.kind,
                expected: span.length,
                found: 0,
            });
        };
        if rows.dim(0) as usize != span.length {
            let (expected, found) = (span.length, rows.dim(0) as usize);
            return Err(Error::FeatureRows {
                kind: span.kind,
                expected,
                found,
            });
        }
        if from < to {
            let (first, last) = ((from - span.start) as i32, (to - span.start) as i32);
            placed.push(Placed {
                start: (from - start) as i32,
                rows: rows.try_index((first..last, ..))?,
            });
        }
    }
    Ok(placed)
}

/// Tokens fed so far, and what the model says of the next.
#[derive(Debug)]
pub struct Sequence<'m> {
    model: &'m Model,
    cache: Cache,
    /// `[vocabulary]`, f32.
    logits: Array,
    encode_time: Duration,
}

impl<'m> Sequence<'m> {
    /// Tokens fed so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.cache.offset()
    }

    /// How long the prompt's media took in their towers.
    #[must_use]
    pub fn encode_time(&self) -> Duration {
        self.encode_time
    }

    /// The logits of the next token, one an entry of the vocabulary.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.logits
            .to_vec_exact()
            .map_err(|error| Error::Conversion(error.to_string()))
    }

    /// Feeds one token.
    ///
    /// # Errors
    /// [`Error::TokenId`] and [`Error::ContextLength`], [`Error::Mlx`].
    pub fn feed(&mut self, id: u32) -> Result<()> {
        self.model.check_id(id)?;
        self.check_room()?;
        self.feed_array(&Array::from_slice(&[id as i32], &[1, 1]))?;
        Ok(eval([&self.logits])?)
    }

    /// The most likely tokens, one after the other.
    ///
    /// # Errors
    /// [`Error::Mlx`].
    pub fn greedy(&mut self) -> Result<Greedy<'_, 'm>> {
        let next = self.most_likely()?;
        async_eval([&next])?;
        Ok(Greedy {
            sequence: self,
            next,
        })
    }

    fn check_room(&self) -> Result<()> {
        let (tokens, limit) = (self.position() + 1, self.model.max_positions());
        if tokens > limit {
            return Err(Error::ContextLength { tokens, limit });
        }
        Ok(())
    }

    /// `ids` is `[1, 1]`.
    fn feed_array(&mut self, ids: &Array) -> Result<()> {
        let chunk = Chunk { ids, features: &[] };
        let logits = self.model.model.forward(&chunk, &mut self.cache, true)?;
        self.logits = logits.ok_or(Error::EmptyPrompt)?;
        Ok(())
    }

    /// `[1, 1]`, i32.
    fn most_likely(&self) -> Result<Array> {
        Ok(argmax(&self.logits, false)?
            .as_dtype(Dtype::Int32)?
            .reshape(&[1, 1])?)
    }
}

/// Greedy decoding. The step after a token is queued before the token is read, so that
/// the device never waits for the host.
#[derive(Debug)]
pub struct Greedy<'s, 'm> {
    sequence: &'s mut Sequence<'m>,
    next: Array,
}

impl Greedy<'_, '_> {
    /// The next token. With `last`, the step after it is not begun.
    ///
    /// # Errors
    /// [`Error::ContextLength`] if there is no room for the token, [`Error::Mlx`].
    pub fn step(&mut self, last: bool) -> Result<u32> {
        let current = self.next.clone();
        if !last {
            self.sequence.check_room()?;
            self.sequence.feed_array(&current)?;
            self.next = self.sequence.most_likely()?;
            async_eval([&self.next])?;
        }
        let id = current.try_item_exact::<i32>().map_err(|error| Error::Conversion(error.to_string()))?;
        Ok(id as u32)
    }
}
