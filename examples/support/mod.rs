//! What the examples share.
#![allow(clippy::print_stderr, reason = "these are parts of command-line tools")]
#![allow(clippy::doc_markdown, reason = "comments are the help that is printed")]
#![allow(unreachable_pub, reason = "each example has a copy of its own")]
#![allow(dead_code, reason = "each example uses a part")]

pub mod answer;
pub mod sound;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use prefill::{
    CacheOptions, CancelToken, DiskOptions, Engine, EngineBuilder, FetchPolicy, Fetcher,
    KvQuantization, MediaSource, MessageRules, Progress, WorkingType,
};

/// What a shell expects of a program that Ctrl-C ended: 128 and the number of the signal.
pub fn interrupted() -> ExitCode {
    ExitCode::from(130)
}

/// A bar on standard error, drawn only on a terminal.
pub fn progress_bar(what: &'static str) -> impl FnMut(Progress) + Send + 'static {
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(0).with_style(style).with_message(what);
    move |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        if progress.done >= progress.total {
            bar.finish_and_clear();
        }
    }
}

/// Lets Ctrl-C end the answer instead of the program; a second one ends that too.
///
/// # Errors
/// If the system takes no handler.
pub fn cancel_on_interrupt(cancel: &CancelToken) -> Result<()> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(130);
        }
        cancel.cancel();
    })?;
    Ok(())
}

/// The answer under way, if one is.
#[derive(Clone, Default)]
pub struct Answering(Arc<Mutex<Option<CancelToken>>>);

impl Answering {
    /// A token for a new answer, which Ctrl-C ends.
    pub fn begin(&self) -> CancelToken {
        let token = CancelToken::new();
        *self.lock() = Some(token.clone());
        token
    }

    /// There is no answer any more.
    pub fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<CancelToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets Ctrl-C end the answer under way, or the program where there is none.
///
/// # Errors
/// If the system takes no handler.
pub fn cancel_each_on_interrupt() -> Result<Answering> {
    let answering = Answering::default();
    let seen = answering.clone();
    ctrlc::set_handler(move || match seen.lock().take() {
        Some(token) => token.cancel(),
        None => std::process::exit(130),
    })?;
    Ok(answering)
}

/// What a command line names: a URL, or a file.
pub fn media_source(name: PathBuf) -> MediaSource {
    match name.to_str() {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            MediaSource::Url(url.to_owned())
        }
        _ => MediaSource::Path(name),
    }
}

/// Fetches what the one at the keyboard names, inside addresses too.
pub fn fetcher_of_own_urls() -> Fetcher {
    let policy = FetchPolicy {
        private_addresses: true,
        ..FetchPolicy::default()
    };
    Fetcher::new(policy, &MessageRules::default())
}

/// The working types by the names that the options have.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum DtypeOption {
    F32,
    Bf16,
    F16,
}

impl DtypeOption {
    pub fn working_type(option: Option<Self>) -> WorkingType {
        match option {
            None => WorkingType::AsStored,
            Some(Self::F32) => WorkingType::F32,
            Some(Self::Bf16) => WorkingType::Bf16,
            Some(Self::F16) => WorkingType::F16,
        }
    }
}

/// Options about the model that every example has.
#[derive(clap::Args)]
pub struct ModelOptions {
    /// A checkpoint's folder, or an org/name of the Hugging Face hub
    #[arg(long, value_name = "DIR_OR_ID")]
    pub model: PathBuf,
    /// The type to compute in [default: as the checkpoint stores it]
    #[arg(long)]
    pub dtype: Option<DtypeOption>,
    /// A LoRA adapter's folder, in mlx-lm's or PEFT's layout
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Keep keys and values with this many bits a value: 2 to 6, or 8
    #[arg(long, value_name = "BITS")]
    pub kv_bits: Option<i32>,
    /// Values that share a scale in quantised keys and values: 32, 64 or 128
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub kv_group_size: i32,
    /// The most memory for MLX, in megabytes [default: no limit]
    #[arg(long, value_name = "MB")]
    pub memory_limit: Option<usize>,
    /// A folder in which prompts and media that were computed survive this program; it holds
    /// what was said, readable to who can read the folder [default: memory alone]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Tokens of the blocks that are kept and found again: a power of two from 16
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub block_size: usize,
}

impl ModelOptions {
    /// Loads the model with these options, under a bar.
    ///
    /// # Errors
    /// Those of [`EngineBuilder::build`].
    pub fn load(&self, builder: EngineBuilder) -> Result<Engine> {
        let mut builder = builder
            .working_type(DtypeOption::working_type(self.dtype))
            .on_download(progress_bar("downloading"))
            .on_progress(progress_bar("loading"));
        if let Some(adapter) = &self.adapter {
            builder = builder.adapter(adapter);
        }
        if let Some(bits) = self.kv_bits {
            builder =
                builder.quantized_kv(KvQuantization::new(bits).group_size(self.kv_group_size));
        }
        if let Some(megabytes) = self.memory_limit {
            builder = builder.memory_limit(megabytes * 1_000_000);
        }
        let mut cache = CacheOptions::default().block_size(self.block_size);
        if let Some(folder) = &self.cache {
            cache = cache.disk(DiskOptions::new(folder));
        }
        Ok(builder.cache(cache).build()?)
    }
}
