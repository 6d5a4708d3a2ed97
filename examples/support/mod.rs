//! What the examples share.
#![allow(unreachable_pub, reason = "each example has a copy of its own")]

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use prefill::{Progress, WorkingType};

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

/// The working types by the names that the options have.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum DtypeOption {
    F32,
    Bf16,
}

impl DtypeOption {
    pub fn working_type(option: Option<Self>) -> WorkingType {
        match option {
            None => WorkingType::AsStored,
            Some(Self::F32) => WorkingType::F32,
            Some(Self::Bf16) => WorkingType::Bf16,
        }
    }
}

/// Options about the model that every example has.
#[derive(clap::Args)]
pub struct ModelOptions {
    /// A checkpoint's folder, or an org/name in the local Hugging Face cache
    #[arg(long, value_name = "DIR_OR_ID")]
    pub model: PathBuf,
    /// The type to compute in [default: as the checkpoint stores it]
    #[arg(long)]
    pub dtype: Option<DtypeOption>,
}
