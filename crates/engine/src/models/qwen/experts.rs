//! The mixture of experts.

use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexOp, take_along_axis};
use mlx_rs::ops::{argpartition_axis, softmax_axis, stack};

use super::config::{ExpertSizes, Family, QwenConfig};
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, Matrix, gated_silu};

/// The sum of the chosen experts' outputs, weighted: each `down(silu(gate(x)) * up(x))`.
#[derive(Debug)]
pub(super) struct Mixture {
    router: Linear,
    sizes: ExpertSizes,
    /// Stacks `[experts, width, hidden]`.
    gate: Matrix,
    up: Matrix,
    /// `[experts, hidden, width]`.
    down: Matrix,
}

impl Mixture {
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        config: &QwenConfig,
        sizes: ExpertSizes,
    ) -> Result<Self> {
        let hidden = config.text.hidden_size;
        let router = Linear::load(weights, &format!("{path}.gate"), hidden, sizes.experts)?;
        let [gate, up, down] = experts(weights, path, config, sizes)?;
        Ok(Self {
            router,
            sizes,
            gate,
            up,
            down,
        })
    }

    /// `[1, tokens, hidden]`.
    pub(super) fn forward(&self, x: &Array) -> Result<Array> {
        let (chosen, shares) = self.route(x)?;
        // One row a product, for every chosen expert of every token.
        let rows = x.expand_dims_axes(&[-2, -3])?;
        let gate = self.gate.gather(&rows, &chosen)?;
        let gated = gated_silu(&gate, &self.up.gather(&rows, &chosen)?)?;
        let outputs = self.down.gather(&gated, &chosen)?.squeeze_axes(&[-2])?;
        Ok(outputs
            .multiply(shares.expand_dims(-1)?)?
            .sum_axis(-2, false)?)
    }

    /// The chosen experts, `[1, tokens, chosen]`, and their shares.
    fn route(&self, x: &Array) -> Result<(Array, Array)> {
        let ExpertSizes {
            experts, chosen, ..
        } = self.sizes;
        let shares = softmax_axis(self.router.forward(x)?, -1, true)?;
        let order = argpartition_axis(&shares, experts - chosen, -1)?;
        let best = order.try_index((.., .., experts - chosen..))?;
        let shares = take_along_axis(&shares, &best, -1)?;
        if !self.sizes.is_normalised {
            return Ok((best, shares));
        }
        let sum = shares.sum_axis(-1, true)?;
        Ok((best, shares.divide(sum)?))
    }
}

/// Gate, up and down, from any of the forms that files hold: Hugging Face's fused stacks,
/// MLX's three stacks, or one tensor an expert.
fn experts(
    weights: &mut Weights,
    path: &str,
    config: &QwenConfig,
    sizes: ExpertSizes,
) -> Result<[Matrix; 3]> {
    let hidden = config.text.hidden_size;
    let ExpertSizes { experts, width, .. } = sizes;
    let shapes = [
        ("gate_proj", [width, hidden]),
        ("up_proj", [width, hidden]),
        ("down_proj", [hidden, width]),
    ];
    if weights.contains(&format!("{path}.experts.gate_up_proj")) {
        return fused(
            weights,
            &format!("{path}.experts"),
            config.family,
            hidden,
            sizes,
        );
    }
    if weights.contains(&format!("{path}.experts.0.gate_proj.weight")) {
        let mut each = |name: &str, shape: [i32; 2]| {
            let matrices = (0..experts)
                .map(|expert| {
                    weights.take(&format!("{path}.experts.{expert}.{name}.weight"), &shape)
                })
                .collect::<Result<Vec<_>>>()?;
            Matrix::plain(&stack(&matrices, 0)?)
        };
        let [gate, up, down] = shapes.map(|(name, shape)| each(name, shape));
        return Ok([gate?, up?, down?]);
    }
    let mut stacked = |name: &str, [out, input]: [i32; 2]| {
        let path = format!("{path}.switch_mlp.{name}");
        Matrix::load(weights, &path, &[experts, out, input])
    };
    let [gate, up, down] = shapes.map(|(name, shape)| stacked(name, shape));
    Ok([gate?, up?, down?])
}

/// Qwen3-VL's files hold these stacks as `[experts, in, out]`, the others' as
/// `[experts, out, in]`. Sizes can't tell which: the two may be equal.
fn fused(
    weights: &mut Weights,
    path: &str,
    family: Family,
    hidden: i32,
    sizes: ExpertSizes,
) -> Result<[Matrix; 3]> {
    let ExpertSizes { experts, width, .. } = sizes;
    let is_turned = family == Family::Qwen3Vl;
    let mut take = |name: &str, out: i32, input: i32| {
        let shape = if is_turned {
            [experts, input, out]
        } else {
            [experts, out, input]
        };
        let name = format!("{path}.{name}");
        weights.record_stack(&name, is_turned);
        weights.take(&name, &shape)
    };
    let both = take("gate_up_proj", 2 * width, hidden)?;
    let down = take("down_proj", hidden, width)?;
    if !is_turned {
        let halves = both.split_equal(2, 1)?;
        return Ok([
            Matrix::plain(&halves[0])?,
            Matrix::plain(&halves[1])?,
            Matrix::plain(&down)?,
        ]);
    }
    // Halves of rows: products would copy them each time if they stayed views.
    let halves = both.split_equal(2, 2)?;
    let turned = |stack: &Array| -> Result<Matrix> {
        let stored = stack.swap_axes(-1, -2)?.contiguous()?;
        Matrix::plain(&stored)
    };
    Ok([turned(&halves[0])?, turned(&halves[1])?, turned(&down)?])
}
