//! What is kept, for programs that own their MLX thread.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::feeding::stops;
use super::fingerprint::Contents;
use super::look_up::Lookup;
use super::options::{CacheOptions, CachePolicy};
use super::report::{CacheStats, Reused};
use super::{Reuse, keep_answer, prefill};
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::model::{Model, Progress};
use crate::prompt::{PreparedPrompt, Preparer, Prompt};
use crate::sequence::Sequence;

/// What was computed with one [`Model`], kept and found again: what an
/// [`Engine`](crate::Engine) has by itself, for programs that step a model on their own
/// thread. Nothing is written behind such a program's back: [`write`](Self::write) does it, and
/// what has to leave memory is written when it does.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use prefill_engine::{
///     CacheOptions, CachePolicy, Checkpoint, Conversation, MlxThread, Model, PrefixCache,
///     Preparer, WorkingType,
/// };
///
/// let thread = MlxThread::claim()?;
/// let checkpoint = Checkpoint::open("model")?;
/// let model = Model::load(&thread, &checkpoint, WorkingType::AsStored, &mut |_| {})?;
/// let preparer = Preparer::open(&checkpoint)?;
/// let cache = PrefixCache::open(&checkpoint, &preparer, &model, CacheOptions::default())?;
///
/// let prompt = preparer.prepare(&Conversation::user("Hello", []), &Default::default())?;
/// let mut go_on = |_| ControlFlow::Continue(());
/// let (mut sequence, mut kept) =
///     cache.prefill(&model, &prompt, CachePolicy::ReadWrite, &mut go_on)?;
/// sequence.feed(42)?;
/// kept.keep_answer(&sequence);
/// // A prompt that begins with these tokens computes only what comes after them.
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct PrefixCache {
    reuse: Arc<Reuse>,
}

/// What a prefill found, and where its answer will be kept.
#[derive(Debug)]
pub struct Kept {
    lookup: Lookup,
}

impl PrefixCache {
    /// An empty memory, and what is in the folder of `options` already. `model` was loaded
    /// from `checkpoint`, of which all weights are read if there is a folder, to name it by
    /// their contents.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File), [`Error::Store`](crate::Error::Store),
    /// [`Error::Prompt`](crate::Error::Prompt) for a block size that is none.
    pub fn open(
        checkpoint: &Checkpoint,
        preparer: &Preparer,
        model: &Model,
        options: CacheOptions,
    ) -> Result<Self> {
        options.check()?;
        let contents = match &options.disk {
            Some(disk) => Contents::of(checkpoint, &disk.folder)?,
            None => Contents::unique(u64::MAX),
        };
        let reuse = Reuse::open(
            options,
            contents.fingerprints(model.options())?,
            preparer.turn_ids(),
            model.needs_checkpoint(),
            checkpoint.model_type(),
            false,
        )?;
        Ok(Self { reuse })
    }

    /// [`Model::prefill`], of which only what is not kept is computed.
    ///
    /// # Errors
    /// Those of [`Model::prefill`].
    pub fn prefill<'m>(
        &self,
        model: &'m Model,
        prepared: &PreparedPrompt,
        policy: CachePolicy,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(Sequence<'m>, Kept)> {
        self.prefill_for(model, prepared, policy, None, progress)
    }

    /// [`prefill`](Self::prefill) for a tenant; see [`Request::tenant`](crate::Request::tenant).
    ///
    /// # Errors
    /// Those of [`Model::prefill`].
    pub fn prefill_for<'m>(
        &self,
        model: &'m Model,
        prepared: &PreparedPrompt,
        policy: CachePolicy,
        tenant: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(Sequence<'m>, Kept)> {
        model.limits().check(&prepared.prompt.ids)?;
        let reuse = &self.reuse;
        let mut lookup = reuse.look_up(&prepared.prompt, &prepared.media, tenant, policy)?;
        let sequence = prefill(model, prepared, &mut lookup, progress)?;
        Ok((sequence, Kept { lookup }))
    }

    /// Where the forward calls of a prefill end beside the usual places: only models with
    /// states have such. They depend on the prompt alone, never on what is kept, so that a
    /// run without cache can make the same calls.
    #[must_use]
    pub fn stops(&self, model: &Model, prompt: &Prompt) -> Vec<usize> {
        stops(model, &self.reuse.marks(prompt))
    }

    /// Writes what is still to be written to the folder, if there is one, and waits for it.
    pub fn write(&self) {
        self.reuse.write();
        self.reuse.flush_here();
    }

    /// What is kept, and what was reused so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.reuse.stats()
    }
}

impl Drop for PrefixCache {
    fn drop(&mut self) {
        self.write();
        self.reuse.close();
    }
}

impl Kept {
    /// What was found.
    #[must_use]
    pub fn reused(&self) -> Reused {
        self.lookup.reused()
    }

    /// Keeps what the sequence has been fed since, for a prompt that goes on after it.
    pub fn keep_answer(&mut self, sequence: &Sequence<'_>) {
        keep_answer(sequence, &mut self.lookup);
    }
}
