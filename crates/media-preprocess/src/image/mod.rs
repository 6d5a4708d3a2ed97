//! Still images: decoding, resizing and the patch layouts of the model families.

mod config;
mod decode;
mod exif;
pub mod gemma4;
mod limits;
mod rescale;
pub mod resize;
mod rgb;
mod steps;

pub use decode::{AlphaPolicy, DecodeOptions, Format, JpegBackend, decode, jpeg_backend};
pub use exif::Orientation;
pub use gemma4::{Gemma4Image, Gemma4ImageProcessor, Gemma4Layout};
pub use limits::Limits;
pub use rescale::Rescale;
pub use rgb::RgbImage;
