//! Log-mel spectrograms, with the rounding of the numpy code that they are compared to.

mod fft;
mod filters;
mod frames;
mod lanes;
mod power;
mod window;

pub(crate) use filters::{Bank, Filters, Scale};
pub(crate) use frames::{Floor, LogMel, Preemphasis, Signal};
pub(crate) use power::LogPowerMel;
pub(crate) use window::{hann_f32, hann_f64, hann_numpy};
