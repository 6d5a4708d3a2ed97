//! A loaded model: the level below the engine.

mod run;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use mlx_rs::{Array, Dtype};

use self::run::SnapshotsOnly;
pub(crate) use self::run::{Observer, Run};
use crate::cache::{Cache, KvQuantization};
use crate::checkpoint::Checkpoint;
use crate::models::gemma4::Gemma4;
use crate::models::qwen::Qwen;
use crate::models::{Chunk, LanguageModel, Positions};
use crate::prompt::{PreparedMedium, PreparedPrompt};
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
    /// IEEE half precision.
    F16,
}

impl WorkingType {
    pub(crate) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::AsStored => None,
            Self::F32 => Some(Dtype::Float32),
            Self::Bf16 => Some(Dtype::Bfloat16),
            Self::F16 => Some(Dtype::Float16),
        }
    }
}

/// How a model is loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub(crate) working_type: WorkingType,
    pub(crate) prefill_chunk: NonZeroUsize,
    pub(crate) kv: Option<KvQuantization>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            working_type: WorkingType::AsStored,
            prefill_chunk: PREFILL_CHUNK,
            kv: None,
        }
    }
}

impl LoadOptions {
    /// The type to compute in; otherwise as the checkpoint stores its weights.
    #[must_use]
    pub fn working_type(mut self, working_type: WorkingType) -> Self {
        self.working_type = working_type;
        self
    }

    /// Another number of tokens a forward call of a prefill than [`PREFILL_CHUNK`]: less
    /// memory, or speed. At most 8192: the mask of a call grows with the square.
    #[must_use]
    pub fn prefill_chunk(mut self, tokens: NonZeroUsize) -> Self {
        self.prefill_chunk = tokens.min(const { NonZeroUsize::new(8192).unwrap() });
        self
    }

    /// Keeps keys and values quantised.
    #[must_use]
    pub fn quantized_kv(mut self, kv: KvQuantization) -> Self {
        self.kv = Some(kv);
        self
    }
}

/// What a model takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub positions: usize,
    pub vocabulary: usize,
}

impl Limits {
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::ContextLength`] and [`Error::TokenId`].
    pub(crate) fn check(self, ids: &[u32]) -> Result<()> {
        let limit = self.positions;
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

    pub(crate) fn check_id(self, id: u32) -> Result<()> {
        let vocabulary = self.vocabulary;
        if id as usize >= vocabulary {
            return Err(Error::TokenId { id, vocabulary });
        }
        Ok(())
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
    options: LoadOptions,
    _thread: MlxThread,
}

impl Model {
    /// Loads a checkpoint's weights. `progress` is told the bytes read.
    ///
    /// # Errors
    /// [`Error::UnsupportedModel`] and [`Error::Config`] for what this engine does not
    /// serve; [`Error::MissingTensors`], [`Error::UnexpectedTensors`],
    /// [`Error::TensorShape`], [`Error::TensorType`] and [`Error::BadFile`] for weights
    /// that do not fit, before any is read; [`Error::NotANumber`].
    pub fn load(
        thread: &MlxThread,
        checkpoint: &Checkpoint,
        working_type: WorkingType,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let options = LoadOptions::default().working_type(working_type);
        Self::load_with(thread, checkpoint, options, progress)
    }

    /// [`load`](Self::load), with more to choose.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn load_with(
        thread: &MlxThread,
        checkpoint: &Checkpoint,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let mut on_bytes = |done, total| progress(Progress { done, total });
        let family: Box<dyn LanguageModel> = match checkpoint.model_type() {
            "gemma3_text" | "gemma4" | "gemma4_text" | "gemma4_unified" | "gemma4_unified_text" => {
                Box::new(Gemma4::load(
                    checkpoint,
                    options.working_type.dtype(),
                    &mut on_bytes,
                )?)
            }
            qwen if Qwen::serves(qwen) => Box::new(Qwen::load(
                checkpoint,
                options.working_type.dtype(),
                &mut on_bytes,
            )?),
            other => {
                return Err(Error::UnsupportedModel {
                    model_type: other.to_owned(),
                });
            }
        };
        if let Some(kv) = &options.kv {
            kv.check(&family.head_sizes())?;
        }
        Ok(Self {
            family,
            options,
            _thread: thread.clone(),
        })
    }

    /// This model with another number of tokens a forward call of a prefill; see
    /// [`LoadOptions::prefill_chunk`].
    #[must_use]
    pub fn with_prefill_chunk(mut self, tokens: NonZeroUsize) -> Self {
        self.options = self.options.prefill_chunk(tokens);
        self
    }

    /// This model with shorter forward calls of a prefill if one would take more than a quarter
    /// of `room` bytes: halved until it does not, to 64 tokens at least. It is decided once, when
    /// a model is loaded, since calls must not be cut otherwise from one request to the next.
    pub(crate) fn fit_prefill_chunk(mut self, room: usize) -> Self {
        const LEAST: usize = 64;
        let takes = |chunk: usize| self.family.working_bytes(chunk, chunk);
        let mut chunk = self.options.prefill_chunk.get();
        while chunk / 2 >= LEAST && takes(chunk) > room / 4 {
            chunk /= 2;
        }
        if let Some(chunk) = NonZeroUsize::new(chunk) {
            self.options = self.options.prefill_chunk(chunk);
        }
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
        let rows = self.family.encode(medium)?.as_dtype(Dtype::Float32)?;
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
        let mut observer = SnapshotsOnly {
            model: self,
            media: &prepared.media,
            positions,
            snapshots: Vec::new(),
        };
        let run = Run {
            prepared,
            cache: self.family.new_cache(),
            start: 0,
            stops: positions,
        };
        let sequence = self.run(run, &mut observer, progress)?;
        Ok((sequence, observer.snapshots))
    }

    /// Feeds the rest of a longer prompt to a sequence whose tokens it begins with, in the
    /// calls that a prefill of the whole prompt would make from there on; calls end at the
    /// `stops` too. That the media among the sequence's tokens are the same is the caller's to
    /// see to.
    ///
    /// # Errors
    /// [`Error::NotContinued`] if the prompt does not begin with the sequence's tokens, ends
    /// with them, or can't be cut there; those of [`prefill`](Self::prefill).
    pub fn extend<'m>(
        &'m self,
        sequence: Sequence<'m>,
        prepared: &PreparedPrompt,
        stops: &[usize],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Sequence<'m>> {
        let (cache, ids) = sequence.into_parts();
        let prompt = &prepared.prompt;
        let start = ids.len();
        let shared = prompt.ids.iter().zip(&ids).take_while(|(a, b)| a == b);
        let shared = shared.count();
        if shared < start || start >= prompt.len() || !prompt.can_cut_at(start) {
            return Err(Error::NotContinued {
                tokens: start,
                shared,
                prompt: prompt.len(),
            });
        }
        let mut observer = SnapshotsOnly {
            model: self,
            media: &prepared.media,
            positions: &[],
            snapshots: Vec::new(),
        };
        let run = Run {
            prepared,
            cache,
            start,
            stops,
        };
        self.run(run, &mut observer, progress)
    }

    pub(crate) fn new_cache(&self) -> Cache {
        self.family.new_cache()
    }

    pub(crate) fn encode(&self, medium: &PreparedMedium) -> Result<Array> {
        self.family.encode(medium)
    }

    /// Whether layers have states, which are those of the last token and no other.
    pub(crate) fn has_states(&self) -> bool {
        self.family.new_cache().has_states()
    }

    /// How it was loaded.
    pub(crate) fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Whether a prefix can only be resumed where more than rows was kept of it.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        let cache = self.family.new_cache();
        cache.has_states() || cache.has_windows()
    }

    /// How keys and values are quantised, if they are.
    pub(crate) fn kv(&self) -> Option<&KvQuantization> {
        self.options.kv.as_ref()
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
        self.quantize_when_due(cache)?;
        logits.ok_or(Error::EmptyPrompt)
    }

    fn quantize_when_due(&self, cache: &mut Cache) -> Result<()> {
        match &self.options.kv {
            Some(kv) => cache.quantize_when_due(kv),
            None => Ok(()),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            positions: self.max_positions(),
            vocabulary: self.vocabulary(),
        }
    }

    /// Bytes that a sequence of `tokens` takes beside the weights.
    pub(crate) fn request_bytes(&self, tokens: usize) -> usize {
        let chunk = self.options.prefill_chunk.get().min(tokens);
        let rows = self.family.cache_bytes(tokens);
        let rows = match &self.options.kv {
            Some(kv) => (rows as f64 * kv.share(8 * self.family.value_bytes())) as usize,
            None => rows,
        };
        rows + self.family.working_bytes(chunk, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_as_long_as_memory_allows() {
        let thread = MlxThread::claim().unwrap();
        let folder = prefill_test_support::assets_dir().join("demo-model");
        let checkpoint = Checkpoint::open(folder).unwrap();
        let load = || Model::load(&thread, &checkpoint, WorkingType::F32, &mut |_| {}).unwrap();
        let chunk = |room| load().fit_prefill_chunk(room).options.prefill_chunk.get();
        assert_eq!(chunk(usize::MAX), PREFILL_CHUNK.get());
        let needed = load().family.working_bytes(512, 512);
        assert_eq!(chunk(4 * needed), 512);
        assert_eq!(chunk(4 * needed - 4), 256);
        assert_eq!(chunk(0), 64);
    }
}
