//! Video: where frames come from, which are taken, and how the model families cut them.
//!
//! transformers prepares video with torchvision only, so its rules here resize and rescale as
//! torchvision does; mlx-vlm's rules, which differ in sampling and sizes and use Pillow, are
//! there by name: [`VideoRules`].

mod animation;
mod ffmpeg;
pub mod gemma4;
pub mod qwen;
pub mod qwen2;
mod sampling;
mod source;

pub use animation::Animation;
pub use ffmpeg::{Ffmpeg, FfmpegLimits};
pub use gemma4::{Gemma4Video, Gemma4VideoProcessor};
pub use qwen::{QwenVideo, QwenVideoProcessor};
pub use qwen2::Qwen2VideoProcessor;
pub use sampling::Sampling;
pub use source::{FrameList, FrameSource};

use crate::error::{Error, Result};
use crate::image::Rescale;
use crate::image::resize::{Backend, PassOrder};

/// The rate assumed where a source has none, as transformers assumes it.
pub const DEFAULT_FPS: f64 = 24.0;

/// The most frames that one video may give a model.
pub const MAX_SAMPLED_FRAMES: usize = 4096;

/// Whose rules prepare video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum VideoRules {
    /// transformers 5.24: torchvision's resize and rescaling.
    #[default]
    Transformers,
    /// mlx-vlm 0.6.15: Pillow's resize, with the given pass order, and its own sampling.
    MlxVlm(PassOrder),
}

impl VideoRules {
    /// The resize and rescaling that these rules use.
    fn arithmetic(self) -> (Backend, Rescale) {
        match self {
            Self::Transformers => (Backend::Torchvision, Rescale::Torch),
            Self::MlxVlm(order) => (Backend::Pillow(order), Rescale::MlxVlm),
        }
    }
}

/// Checks the number of frames that a video gives.
fn check_count(frames: usize) -> Result<()> {
    if frames > MAX_SAMPLED_FRAMES {
        let (found, limit) = (frames as u64, MAX_SAMPLED_FRAMES as u64);
        return Err(Error::Limit {
            what: "sampled frames",
            found,
            limit,
        });
    }
    Ok(())
}

/// Checks that a frame has the size of those before it.
fn check_frame_size(first: Option<(u32, u32)>, found: (u32, u32)) -> Result<()> {
    match first {
        Some(expected) if expected != found => Err(Error::FrameSize { expected, found }),
        _ => Ok(()),
    }
}
