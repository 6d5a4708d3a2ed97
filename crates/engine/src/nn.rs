//! The parts that the models share.

mod activation;
mod linear;
mod mask;
mod matrix;
mod norm;
mod rope;
mod scalar;

pub(crate) use activation::{gelu_tanh, glu, silu};
pub(crate) use linear::{ClippedLinear, Linear};
pub(crate) use mask::{Mask, attention};
pub(crate) use matrix::Matrix;
pub(crate) use norm::RmsNorm;
pub(crate) use rope::Rope;
pub(crate) use scalar::scalar_like;
