//! The engine: a handle to a model that any thread may use.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;

use crate::checkpoint::Checkpoint;
use crate::generation::{Generation, Work};
use crate::model::{Model, Progress, WorkingType};
use crate::prompt::{Conversation, Preparer, TemplateOptions};
use crate::runtime::{self, ModelId, Models};
use crate::{Error, Result};

/// A model, loaded and ready. Cheap to clone; any thread may use it. The model is unloaded
/// when the last handle and the last [`Generation`] are gone.
///
/// One generation runs at a time; others wait their turn.
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
    pub id: ModelId,
    pub preparer: Preparer,
    pub stop_ids: BTreeSet<u32>,
    load_time: Duration,
}

impl Drop for Loaded {
    /// Waits until the model's memory is given back, so that no array is freed while the
    /// process already ends. What was queued before, on any model, is done first.
    fn drop(&mut self) {
        let id = self.id;
        let unload = move |models: &mut Models| {
            models.loaded.remove(&id);
            Ok(mlx_rs::memory::clear_cache()?)
        };
        let unloaded = if runtime::is_current() {
            runtime::submit(move |models| drop(unload(models)))
        } else {
            runtime::call(unload)
        };
        // If the runtime is gone, so is the model.
        if let Err(error) = unloaded {
            tracing::warn!(%error, "a model was not unloaded");
        }
    }
}

impl Engine {
    /// Begins to load a model: a folder, or an `org/name` that the local Hugging Face
    /// cache holds.
    pub fn builder(model: impl Into<PathBuf>) -> EngineBuilder {
        EngineBuilder {
            model: model.into(),
            working_type: WorkingType::AsStored,
            progress: None,
        }
    }

    /// Prepares a request on the calling thread (media, template, tokens) and queues it.
    ///
    /// # Errors
    /// Those of [`Preparer::prepare`]; errors of the computation come as the generation's
    /// items. [`OnRuntimeThread`](crate::Error::OnRuntimeThread) in a callback of the runtime
    /// thread, which can't wait for itself.
    pub fn generate(&self, request: Request) -> Result<Generation> {
        if runtime::is_current() {
            return Err(Error::OnRuntimeThread);
        }
        let asked = Instant::now();
        let prepared = self
            .loaded
            .preparer
            .prepare(&request.conversation, &request.template)?;
        let (events, received) = unbounded();
        let cancelled = Arc::new(AtomicBool::new(false));
        let work = Work {
            prepared,
            max_tokens: request.max_tokens,
            sampling: crate::Sampling::greedy(),
            stop_ids: self.loaded.stop_ids.clone(),
            asked,
            cancelled: Arc::clone(&cancelled),
            events,
        };
        let id = self.loaded.id;
        runtime::submit(move |models| work.run(models.loaded.get(&id)))?;
        Ok(Generation::new(
            Arc::clone(&self.loaded),
            received,
            cancelled,
        ))
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
}

/// Settings of an [`Engine`].
pub struct EngineBuilder {
    model: PathBuf,
    working_type: WorkingType,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EngineBuilder")
            .field("model", &self.model)
            .field("working_type", &self.working_type)
            .finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// The type to compute in. As stored, unless this says otherwise.
    #[must_use]
    pub fn working_type(mut self, working_type: WorkingType) -> Self {
        self.working_type = working_type;
        self
    }

    /// Is told the bytes of weights read, on the runtime thread.
    #[must_use]
    pub fn on_progress(mut self, progress: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Loads the model; returns when it is ready.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`], [`Preparer::open`] and [`Model::load`], and
    /// [`MlxTaken`](crate::Error::MlxTaken) if the program holds MLX itself.
    pub fn build(self) -> Result<Engine> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let started = Instant::now();
        let checkpoint = Checkpoint::open(&self.model)?;
        let preparer = Preparer::open(&checkpoint)?;
        let stop_ids = checkpoint.stop_ids().clone();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let working_type = self.working_type;
        let mut progress = self.progress.unwrap_or_else(|| Box::new(|_| {}));
        runtime::call(move |models| {
            let model = Model::load(&models.thread, &checkpoint, working_type, &mut progress)?;
            models.loaded.insert(id, model);
            Ok(())
        })?;
        let load_time = started.elapsed();
        tracing::info!(model = %self.model.display(), ?load_time, "loaded");
        Ok(Engine {
            loaded: Arc::new(Loaded {
                id,
                preparer,
                stop_ids,
                load_time,
            }),
        })
    }
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    conversation: Conversation,
    template: TemplateOptions,
    max_tokens: usize,
}

impl Request {
    /// Tokens that an answer has at most, unless the request says otherwise.
    pub const DEFAULT_MAX_TOKENS: usize = 1024;

    /// A request to continue `conversation`.
    #[must_use]
    pub fn new(conversation: Conversation) -> Self {
        let template = TemplateOptions::default();
        Self {
            conversation,
            template,
            max_tokens: Self::DEFAULT_MAX_TOKENS,
        }
    }

    /// Ends the answer after this many tokens.
    #[must_use]
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// Tools and variables for the chat template.
    #[must_use]
    pub fn template(mut self, template: TemplateOptions) -> Self {
        self.template = template;
        self
    }
}
