//! Still images: decoding, resizing and the patch layouts of the model families.

mod decode;
mod exif;
pub mod gemma4;
mod limits;
pub(crate) mod patches;
pub mod qwen;
pub(crate) mod rescale;
pub mod resize;
mod rgb;
pub(crate) mod steps;
#[cfg(feature = "webp")]
pub(crate) mod webp_frames;

pub use decode::{AlphaPolicy, DecodeOptions, Format, JpegBackend, decode, jpeg_backend};
pub use exif::Orientation;
pub use gemma4::{Gemma4Image, Gemma4ImageProcessor, Gemma4Layout};
pub use limits::Limits;
pub use qwen::{QwenImage, QwenImageProcessor};
pub use rescale::Rescale;
pub use rgb::RgbImage;
