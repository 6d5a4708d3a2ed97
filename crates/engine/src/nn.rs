//! The parts that the models share.

mod activation;
mod attend;
mod biased_linear;
mod fused;
mod gated_delta;
mod layer_norm;
mod linear;
mod lora;
mod mask;
mod matrix;
mod mrope;
mod norm;
mod rope;
mod scalar;

pub(crate) use activation::{gelu, gelu_tanh, gelu_tanh_as_defined, glu, silu};
pub(crate) use attend::attend;
pub(crate) use biased_linear::BiasedLinear;
#[cfg(test)]
pub(crate) use fused::fuse_on_any_device;
pub(crate) use fused::{SeveralSlot, fuse_several, gated_gelu, gated_silu, soft_cap};
pub(crate) use gated_delta::{DeltaInputs, gated_delta};
pub(crate) use layer_norm::LayerNorm;
pub(crate) use linear::{ClippedLinear, Linear};
pub(crate) use lora::Lora;
pub(crate) use mask::{Mask, attention};
pub(crate) use matrix::Matrix;
pub(crate) use mrope::{Mrope, rotate_half};
pub(crate) use norm::RmsNorm;
pub(crate) use rope::{Rope, Rotation};
pub(crate) use scalar::scalar_like;
