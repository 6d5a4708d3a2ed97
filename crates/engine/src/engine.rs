//! The engine: a handle to a model that any thread may use.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prefill_hub::Hub;

use crate::cache::KvQuantization;
use crate::checkpoint::Checkpoint;
use crate::generation::Generation;
use crate::model::{Limits, LoadOptions, Model, Progress, WorkingType};
use crate::output::{self, Output};
use crate::prompt::{PreparedPrompt, Preparer};
use crate::request::{Input, Request};
use crate::reuse::{CacheOptions, CacheStats, Contents, Reuse};
use crate::runtime::{self, ModelId, Models};
use crate::sampling::Sampling;
use crate::work::{Signals, Work};
use crate::{Error, Result};

/// A model, loaded and ready. Cheap to clone; any thread may use it. The model is unloaded
/// when the last handle and the last [`Generation`] are gone.
///
/// One generation runs at a time; others wait their turn, in the order in which they came.
///
/// ```no_run
/// use prefill_engine::{Conversation, Engine, MediaKind, Request};
///
/// let engine = Engine::builder("org/name").build()?;
/// let question = Conversation::user("What is here?", [(MediaKind::Image, "a.png".into())]);
/// let answer = engine.generate(Request::new(question))?.text()?;
/// # Ok::<(), prefill_engine::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    loaded: Arc<Loaded>,
}

/// What handles and generations share.
#[derive(Debug)]
pub(crate) struct Loaded {
    id: ModelId,
    preparer: Arc<Preparer>,
    stop_ids: BTreeSet<u32>,
    /// What the checkpoint asks for.
    sampling: Sampling,
    limits: Limits,
    reuse: Arc<Reuse>,
    unloaded: AtomicBool,
    load_time: Duration,
}

impl Loaded {
    /// Waits until the model's memory is given back, so that no array is freed while the
    /// process already ends. At most one step of another model's work is done before.
    fn unload(&self) -> Result<()> {
        if self.unloaded.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let id = self.id;
        let reuse = Arc::clone(&self.reuse);
        let write = move |models: &mut Models| {
            models.loaded.remove(&id);
            reuse.write();
            Ok(())
        };
        let reuse = Arc::clone(&self.reuse);
        let close = move |models: &mut Models| {
            models.reuse.remove(&id);
            reuse.close();
            Ok(mlx_rs::memory::clear_cache()?)
        };
        if runtime::is_current() {
            return runtime::submit_urgent(move |models| {
                let _ = write(models);
                let _ = close(models);
            });
        }
        runtime::call_urgent(write)?;
        // What was lent to the writer comes back before the memory is given back.
        self.reuse.flush();
        runtime::call_urgent(close)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // If the runtime is gone, so is the model.
        if let Err(error) = self.unload() {
            tracing::warn!(%error, "a model was not unloaded");
        }
    }
}

impl Engine {
    /// Begins to load a model: a folder, or an `org/name` of the Hugging Face hub.
    pub fn builder(model: impl Into<PathBuf>) -> EngineBuilder {
        EngineBuilder {
            model: model.into(),
            options: LoadOptions::default(),
            adapter: None,
            memory_limit: None,
            cache: CacheOptions::default(),
            progress: None,
            hub: None,
            download: None,
            #[cfg(feature = "fetch")]
            fetcher: None,
        }
    }

    /// Prepares a request on the calling thread (media, template, tokens, and what is on disk
    /// of it already) and queues it.
    ///
    /// # Errors
    /// Those of [`Preparer::prepare`]; [`Error::Request`] and [`Error::Sampling`] for
    /// settings that can't be followed; [`Error::EmptyPrompt`], [`Error::ContextLength`] and
    /// [`Error::TokenId`] for a prompt that does not fit the model; [`Error::Unloaded`].
    /// Errors of the computation come as the generation's items.
    /// [`Error::OnRuntimeThread`] in a callback of the runtime thread, which can't wait for
    /// itself.
    pub fn generate(&self, request: Request) -> Result<Generation> {
        if runtime::is_current() {
            return Err(Error::OnRuntimeThread);
        }
        if self.loaded.unloaded.load(Ordering::Relaxed) {
            return Err(Error::Unloaded);
        }
        let asked = Instant::now();
        request.check()?;
        let preparer = &self.loaded.preparer;
        if request.thinking_budget.is_some() && preparer.reasoning_ids().is_none() {
            return Err(output::no_thoughts());
        }
        let is_parsed = !request.is_plain && !matches!(request.input, Input::Ids(_));
        let prepared = self.prepare(request.input, &request.template)?;
        let lookup = self.loaded.reuse.look_up(
            &prepared.prompt,
            &prepared.media,
            request.salt.as_deref(),
            request.cache,
        )?;
        let mut stop_ids = request.stop_ids;
        if !request.ignores_ends {
            stop_ids.extend(&self.loaded.stop_ids);
            stop_ids.extend(preparer.stop_ids());
        }
        let (events, received) = async_channel::unbounded();
        let loaded = Arc::clone(&self.loaded);
        let generation = Generation::new(loaded, received, request.cancel.clone());
        let work = Work {
            model: self.loaded.id,
            output: Output::new(
                Arc::clone(preparer),
                &prepared.text,
                is_parsed,
                request.stop,
                request.thinking_budget,
                request.template.tools.as_deref(),
            ),
            prepared,
            lookup,
            max_tokens: request.max_tokens,
            sampling: request
                .sampling
                .unwrap_or_else(|| self.loaded.sampling.clone()),
            top_logprobs: request.top_logprobs,
            stop_ids,
            asked,
            signals: Signals {
                deadline: request.deadline.and_then(|time| asked.checked_add(time)),
                cancel: request.cancel,
                dropped: generation.dropped(),
            },
            events,
        };
        runtime::submit(move |models| work.run(models))?;
        Ok(generation)
    }

    /// How long it took to load the model.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        self.loaded.load_time
    }

    /// What turns conversations into this model's prompts.
    #[must_use]
    pub fn preparer(&self) -> &Preparer {
        &self.loaded.preparer
    }

    /// How tokens are chosen where a request does not say: as the checkpoint asks.
    #[must_use]
    pub fn default_sampling(&self) -> &Sampling {
        &self.loaded.sampling
    }

    /// Positions that the model takes, prompt and answer together.
    #[must_use]
    pub fn max_positions(&self) -> usize {
        self.loaded.limits.positions
    }

    /// What is kept, and what was reused so far.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.loaded.reuse.stats()
    }

    /// Writes to disk what is still to be written, and waits until it is there. Without a
    /// folder it does nothing.
    ///
    /// # Errors
    /// [`Error::RuntimeGone`]; [`Error::OnRuntimeThread`] in a callback of the runtime thread.
    pub fn flush_cache(&self) -> Result<()> {
        let reuse = Arc::clone(&self.loaded.reuse);
        runtime::call_urgent(move |_| {
            reuse.write();
            Ok(())
        })?;
        self.loaded.reuse.flush();
        // What was lent to the writer comes back.
        let reuse = Arc::clone(&self.loaded.reuse);
        runtime::call_urgent(move |_| {
            reuse.flush_here();
            Ok(())
        })
    }

    /// Drops what is kept in memory. What is on disk stays.
    ///
    /// # Errors
    /// Those of [`flush_cache`](Self::flush_cache), which it does first.
    pub fn clear_memory_cache(&self) -> Result<()> {
        self.flush_cache()?;
        let reuse = Arc::clone(&self.loaded.reuse);
        runtime::call_urgent(move |_| {
            reuse.clear_ram();
            Ok(mlx_rs::memory::clear_cache()?)
        })
    }

    /// Gives the model's memory back, whoever still has a handle: requests that wait, and
    /// later ones, end with [`Error::Unloaded`].
    ///
    /// # Errors
    /// [`Error::RuntimeGone`]; [`Error::OnRuntimeThread`] in a callback of the runtime thread.
    pub fn unload(self) -> Result<()> {
        if runtime::is_current() {
            return Err(Error::OnRuntimeThread);
        }
        self.loaded.unload()
    }

    fn prepare(
        &self,
        input: Input,
        template: &prefill_multimodal_prompt::TemplateOptions,
    ) -> Result<PreparedPrompt> {
        let prepared = match input {
            Input::Conversation(conversation) => {
                self.loaded.preparer.prepare(&conversation, template)?
            }
            Input::Ids(ids) => PreparedPrompt::from_ids(ids),
            Input::Prepared(prepared) => *prepared,
        };
        self.loaded.limits.check(&prepared.prompt.ids)?;
        Ok(prepared)
    }
}

/// What [`EngineBuilder::on_progress`] is given.
type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// Settings of an engine, before its model is loaded.
#[must_use]
pub struct EngineBuilder {
    model: PathBuf,
    options: LoadOptions,
    adapter: Option<PathBuf>,
    memory_limit: Option<usize>,
    cache: CacheOptions,
    progress: Option<OnProgress>,
    hub: Option<Hub>,
    download: Option<OnProgress>,
    #[cfg(feature = "fetch")]
    fetcher: Option<crate::Fetcher>,
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EngineBuilder")
            .field("model", &self.model)
            .field("options", &self.options)
            .field("adapter", &self.adapter)
            .field("memory_limit", &self.memory_limit)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// The type to compute in; otherwise as the checkpoint stores its weights.
    pub fn working_type(mut self, working_type: WorkingType) -> Self {
        self.options = self.options.working_type(working_type);
        self
    }

    /// Tokens that one forward call of a prefill takes; see
    /// [`LoadOptions::prefill_chunk`].
    pub fn prefill_chunk(mut self, tokens: std::num::NonZeroUsize) -> Self {
        self.options = self.options.prefill_chunk(tokens);
        self
    }

    /// Adds a `LoRA` adapter's folder; see [`Checkpoint::with_adapter`].
    pub fn adapter(mut self, folder: impl Into<PathBuf>) -> Self {
        self.adapter = Some(folder.into());
        self
    }

    /// Keeps keys and values quantised.
    pub fn quantized_kv(mut self, kv: KvQuantization) -> Self {
        self.options = self.options.quantized_kv(kv);
        self
    }

    /// The most memory, in bytes, that MLX may use in this process: weights, keys and values,
    /// and its buffers. There is one limit for all models; the last one that was set holds.
    /// What can't fit is refused before it starts. Where little is left beside the weights,
    /// forward calls of a prefill are shorter.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// What is kept of prompts and media, and where; by default some of it in memory.
    pub fn cache(mut self, cache: CacheOptions) -> Self {
        self.cache = cache;
        self
    }

    /// Is told, on the runtime thread, how many bytes of the weights are loaded.
    pub fn on_progress(mut self, progress: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Another hub than the environment's.
    pub fn hub(mut self, hub: Hub) -> Self {
        self.hub = Some(hub);
        self
    }

    /// Is told, on the calling thread, how many bytes are downloaded, if any are.
    pub fn on_download(mut self, progress: impl FnMut(Progress) + Send + 'static) -> Self {
        self.download = Some(Box::new(progress));
        self
    }

    /// Lets conversations name media by URL: `fetcher` has the limits, and the guard against
    /// requests to inside addresses. [`Engine::generate`] waits for them on the calling thread,
    /// each within the fetcher's time. Without one, URLs are refused.
    ///
    /// ```no_run
    /// use prefill_engine::{Conversation, Engine, FetchPolicy, Fetcher, MediaKind, MediaSource};
    /// use prefill_engine::{MessageRules, Request};
    ///
    /// let fetcher = Fetcher::new(FetchPolicy::default(), &MessageRules::default());
    /// let engine = Engine::builder("org/name").fetcher(fetcher).build()?;
    /// let picture = MediaSource::Url("https://example.org/a.png".to_owned());
    /// let question = Conversation::user("What is here?", [(MediaKind::Image, picture)]);
    /// let answer = engine.generate(Request::new(question))?.text()?;
    /// # Ok::<(), prefill_engine::Error>(())
    /// ```
    #[cfg(feature = "fetch")]
    pub fn fetcher(mut self, fetcher: crate::Fetcher) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    /// Loads the model; returns when it is ready.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`], [`Preparer::open`] and [`Model::load`];
    /// [`Error::MlxTaken`] if the program holds MLX itself; [`Error::Memory`] if the weights
    /// exceed the memory limit.
    pub fn build(self) -> Result<Engine> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let started = Instant::now();
        let hub = self.hub.unwrap_or_else(Hub::from_env);
        let mut download = self.download.unwrap_or_else(|| Box::new(|_| {}));
        let mut checkpoint = Checkpoint::open_from(&hub, &self.model, &mut download)?;
        if let Some(adapter) = &self.adapter {
            checkpoint = checkpoint.with_adapter(adapter)?;
        }
        let preparer = Preparer::open(&checkpoint)?;
        #[cfg(feature = "fetch")]
        let preparer = match self.fetcher {
            Some(fetcher) => preparer.with_fetcher(fetcher),
            None => preparer,
        };
        let stop_ids = checkpoint.stop_ids().clone();
        let sampling = Sampling::from_folder(checkpoint.folder())?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (options, memory_limit, cache) = (self.options, self.memory_limit, self.cache);
        cache.check()?;
        let contents = match &cache.disk {
            Some(disk) => Contents::of(&checkpoint, &disk.folder)?,
            None => Contents::unique(id),
        };
        let turn_ids = preparer.turn_ids();
        let mut progress = self.progress.unwrap_or_else(|| Box::new(|_| {}));
        let (limits, reuse) = runtime::call(move |models| {
            if let Some(bytes) = memory_limit {
                models.memory.set_limit(bytes)?;
            }
            models.make_room(checkpoint.weight_bytes(options.working_type.dtype())?)?;
            let mut model = Model::load_with(&models.thread, &checkpoint, options, &mut progress)?;
            if let Some(room) = models.memory.room()? {
                model = model.fit_prefill_chunk(room);
            }
            let fingerprints = contents.fingerprints(model.options())?;
            let limits = model.limits();
            let needs_checkpoint = model.needs_checkpoint();
            let reuse = Reuse::open(
                cache,
                fingerprints,
                turn_ids,
                needs_checkpoint,
                checkpoint.model_type(),
                true,
            )?;
            models.loaded.insert(id, Rc::new(model));
            models.reuse.insert(id, Arc::clone(&reuse));
            Ok((limits, reuse))
        })?;
        let load_time = started.elapsed();
        tracing::info!(model = %self.model.display(), ?load_time, "loaded");
        Ok(Engine {
            loaded: Arc::new(Loaded {
                id,
                preparer: Arc::new(preparer),
                stop_ids,
                sampling,
                limits,
                reuse,
                unloaded: AtomicBool::new(false),
                load_time,
            }),
        })
    }
}
