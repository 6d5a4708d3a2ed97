//! What follows attention in a layer: an MLP, or a mixture of experts.

use mlx_rs::Array;
use mlx_rs::ops::sigmoid;

use super::config::QwenConfig;
use super::experts::Mixture;
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, gated_silu};

/// Either.
#[derive(Debug)]
pub(super) enum FeedForward {
    Dense(Box<Mlp>),
    Sparse(Box<Sparse>),
}

/// A mixture, beside an expert that every token goes through (Qwen3.5).
#[derive(Debug)]
pub(super) struct Sparse {
    mixture: Mixture,
    shared: Option<SharedExpert>,
}

#[derive(Debug)]
struct SharedExpert {
    mlp: Mlp,
    /// One value a token.
    gate: Linear,
}

impl FeedForward {
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        config: &QwenConfig,
        layer: usize,
    ) -> Result<Self> {
        let hidden = config.text.hidden_size;
        let Some(sizes) = config.text.experts(config.family, layer)? else {
            let width = config.text.mlp_width()?;
            let mlp = Mlp::load(weights, path, hidden, width)?;
            return Ok(Self::Dense(Box::new(mlp)));
        };
        let shared = match sizes.shared_width {
            Some(width) => Some(SharedExpert {
                mlp: Mlp::load(weights, &format!("{path}.shared_expert"), hidden, width)?,
                gate: Linear::load(weights, &format!("{path}.shared_expert_gate"), hidden, 1)?,
            }),
            None => None,
        };
        Ok(Self::Sparse(Box::new(Sparse {
            mixture: Mixture::load(weights, path, config, sizes)?,
            shared,
        })))
    }

    /// `[1, tokens, hidden]`.
    pub(super) fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            Self::Dense(mlp) => mlp.forward(x),
            Self::Sparse(sparse) => {
                let mixed = sparse.mixture.forward(x)?;
                let Some(shared) = &sparse.shared else {
                    return Ok(mixed);
                };
                let share = sigmoid(shared.gate.forward(x)?)?;
                Ok(mixed.add(share.multiply(shared.mlp.forward(x)?)?)?)
            }
        }
    }
}

/// `down(silu(gate(x)) * up(x))`.
#[derive(Debug)]
pub(super) struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Mlp {
    fn load(weights: &mut Weights, path: &str, hidden: i32, width: i32) -> Result<Self> {
        Ok(Self {
            gate: Linear::load(weights, &format!("{path}.gate_proj"), hidden, width)?,
            up: Linear::load(weights, &format!("{path}.up_proj"), hidden, width)?,
            down: Linear::load(weights, &format!("{path}.down_proj"), width, hidden)?,
        })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let gated = gated_silu(&self.gate.forward(x)?, &self.up.forward(x)?)?;
        self.down.forward(&gated)
    }
}
