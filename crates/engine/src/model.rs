//! A loaded model: the level below the engine.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::transforms::{async_eval, eval};
use mlx_rs::{Array, Dtype};

use crate::cache::{Cache, KvQuantization};
use crate::checkpoint::Checkpoint;
use crate::models::gemma4::Gemma4;
use crate::models::qwen::Qwen;
use crate::models::{Chunk, LanguageModel, Placed, Positions};
use crate::prompt::{self, PreparedMedium, PreparedPrompt, Prompt};
use crate::reuse::media_beyond;
use crate::sequence::{Sequence, Snapshot};
use crate::thread::MlxThread;
use crate::{Error, Result};

/// Tokens that one forward call of a prefill takes. Calls end at its multiples, whatever
/// is cached, so that the same prompt is always computed in the same pieces.
pub const PREFILL_CHUNK: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Tokens that take no more memory than decoding steps, or hardly.
const FEW: usize = 32;

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

    /// Feeds a prompt from where the cache stands.
    pub(crate) fn run(
        &self,
        run: Run<'_>,
        observer: &mut dyn Observer,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Sequence<'_>> {
        let Run {
            prepared,
            mut cache,
            mut start,
            stops,
        } = run;
        let ids = &prepared.prompt.ids;
        self.limits().check(ids)?;
        let total = ids.len() as u64;
        let mut report = |done: usize| match progress(Progress {
            done: done as u64,
            total,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        };
        report(start)?;
        let started = Instant::now();
        let mut features = vec![None; prepared.media.len()];
        for medium in media_beyond(&prepared.prompt, start) {
            let Some(slot) = features.get_mut(medium) else {
                continue;
            };
            let rows = observer.features(medium)?;
            // The next is put together while the device works on this one.
            async_eval([&rows])?;
            *slot = Some(rows);
            report(start)?;
        }
        eval(features.iter().flatten())?;
        check_features(prepared, &features, start)?;
        observer.encoded();
        let encode_time = started.elapsed();

        if start > 0 {
            cache.set_rope_delta(rope_delta_after(&prepared.prompt, start));
        }
        let mut logits = None;
        for end in chunk_ends(&prepared.prompt, self.options.prefill_chunk, stops) {
            if end <= start {
                continue;
            }
            let chunk_ids: Vec<i32> = ids[start..end].iter().map(|&id| id as i32).collect();
            let chunk = Chunk {
                ids: &Array::from_slice(&chunk_ids, &[1, chunk_ids.len() as i32]),
                features: &placed(prepared, &features, start, end)?,
                groups: &groups(&prepared.prompt, start, end),
                positions: &positions_of(&prepared.prompt, start, end),
            };
            let wants_logits = end == ids.len() || observer.wants_logits(end);
            logits = self.family.forward(&chunk, &mut cache, wants_logits)?;
            // Rows are kept as they were computed, before they are quantised.
            let mut computed = observer.take(&cache)?;
            self.quantize_when_due(&mut cache)?;
            computed.extend(cache.arrays().chain(&logits).cloned());
            eval(&computed)?;
            drop(computed);
            // Chunks are larger than decoding steps: what they used is not used again. The few
            // tokens after a reused prefix are not, and what made room for it will be.
            if end - start > FEW {
                mlx_rs::memory::clear_cache()?;
            }
            cache.set_rope_delta(rope_delta_after(&prepared.prompt, end));
            observer.evaluated(&cache, logits.as_ref());
            report(end)?;
            start = end;
        }
        let logits = logits.ok_or(Error::EmptyPrompt)?;
        Ok(Sequence::new(self, cache, ids.clone(), logits, encode_time))
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

/// A prompt to feed from where a cache stands.
pub(crate) struct Run<'r> {
    pub prepared: &'r PreparedPrompt,
    pub cache: Cache,
    /// Tokens that the cache holds.
    pub start: usize,
    /// Where forward calls end beside the usual places.
    pub stops: &'r [usize],
}

/// Who watches a prompt being fed, and supplies the features of its media.
pub(crate) trait Observer {
    /// A medium's features; they need not be evaluated.
    fn features(&mut self, medium: usize) -> Result<Array>;

    /// All that were asked for are evaluated.
    fn encoded(&mut self) {}

    /// Whether the logits after so many tokens are wanted.
    fn wants_logits(&self, _end: usize) -> bool {
        false
    }

    /// After a forward call: what is to be evaluated with it.
    fn take(&mut self, _cache: &Cache) -> Result<Vec<Array>> {
        Ok(Vec::new())
    }

    /// It is evaluated.
    fn evaluated(&mut self, _cache: &Cache, _logits: Option<&Array>) {}
}

/// Encodes everything, and takes snapshots.
struct SnapshotsOnly<'m> {
    model: &'m Model,
    media: &'m [PreparedMedium],
    positions: &'m [usize],
    snapshots: Vec<Snapshot>,
}

impl Observer for SnapshotsOnly<'_> {
    fn features(&mut self, medium: usize) -> Result<Array> {
        self.model.encode(&self.media[medium])
    }

    fn wants_logits(&self, end: usize) -> bool {
        self.positions.contains(&end)
    }

    fn evaluated(&mut self, cache: &Cache, logits: Option<&Array>) {
        if let Some(logits) = logits.filter(|_| self.positions.contains(&cache.offset())) {
            self.snapshots.push(Snapshot::new(cache, logits));
        }
    }
}

/// The groups of positions in `start..end` that see each other, from `start`.
fn groups(prompt: &Prompt, start: usize, end: usize) -> Vec<(i32, i32)> {
    let groups = prompt.attention.groups().iter();
    groups
        .filter(|group| (start..end).contains(&group.start))
        .map(|group| ((group.start - start) as i32, group.len() as i32))
        .collect()
}

/// Where forward calls end: where [`Prompt::chunk_ends`] says, and at those of `wanted` where
/// a prompt may be cut.
fn chunk_ends(prompt: &Prompt, size: NonZeroUsize, wanted: &[usize]) -> Vec<usize> {
    let mut ends = prompt.chunk_ends(size);
    let inside = |&at: &usize| (1..prompt.len()).contains(&at) && prompt.can_cut_at(at);
    ends.extend(wanted.iter().copied().filter(inside));
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Where the tokens `start..end` are for rotary embeddings in three dimensions.
fn positions_of(prompt: &Prompt, start: usize, end: usize) -> Positions {
    let prompt::Positions::Mrope(mrope) = &prompt.positions else {
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
fn rope_delta_after(prompt: &Prompt, end: usize) -> i32 {
    let prompt::Positions::Mrope(mrope) = &prompt.positions else {
        return 0;
    };
    let largest = mrope.ids.iter().flat_map(|axis| &axis[..end]).max();
    largest.map_or(0, |largest| largest + 1 - end as i32)
}

/// The rows of features that lie in `start..end` of the prompt.
fn placed(
    prepared: &PreparedPrompt,
    features: &[Option<Array>],
    start: usize,
    end: usize,
) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    for span in &prepared.prompt.spans {
        let (from, to) = (span.start.max(start), span.end().min(end));
        if from < to
            && let Some(rows) = &features[span.medium]
        {
            let first = span.offset + from - span.start;
            let last = first + to - from;
            placed.push(Placed {
                start: (from - start) as i32,
                rows: rows.try_index((first as i32..last as i32, ..))?,
            });
        }
    }
    Ok(placed)
}

/// Whether every medium beyond `start` has as many rows of features as it has places in the
/// prompt: MLX checks no index.
fn check_features(
    prepared: &PreparedPrompt,
    features: &[Option<Array>],
    start: usize,
) -> Result<()> {
    let found = |medium: usize| {
        let rows = features.get(medium).and_then(Option::as_ref);
        rows.map_or(0, |rows| rows.dim(0) as usize)
    };
    let mut places = vec![0; features.len()];
    for span in &prepared.prompt.spans {
        let (expected, found) = (span.offset + span.length, found(span.medium));
        if span.end() > start && expected > found {
            return Err(Error::FeatureRows {
                kind: span.kind,
                expected,
                found,
            });
        }
        if let Some(places) = places.get_mut(span.medium) {
            *places += span.length;
        }
    }
    for (index, (medium, expected)) in prepared.media.iter().zip(places).enumerate() {
        // Those that lie in the prefix were checked when it was computed.
        let found = match &features[index] {
            Some(rows) => rows.dim(0) as usize,
            None => medium.soft_tokens(),
        };
        if expected != found {
            return Err(Error::FeatureRows {
                kind: medium.kind(),
                expected,
                found,
            });
        }
    }
    Ok(())
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
