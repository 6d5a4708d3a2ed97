//! The mixture of experts that runs beside the MLP (26B-A4B).

use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexOp, take_along_axis};
use mlx_rs::ops::{argpartition_axis, softmax_axis};

use super::config::{ExpertSizes, TextConfig};
use crate::Result;
use crate::checkpoint::weights::Weights;
use crate::nn::{Linear, Matrix, RmsNorm, gated_gelu, scalar_like};

/// `norm1(mlp) + norm2(sum of the chosen experts' outputs, weighted)`.
#[derive(Debug)]
pub(super) struct Mixture {
    router: Router,
    experts: Experts,
    mlp_norm: RmsNorm,
    input_norm: RmsNorm,
    output_norm: RmsNorm,
}

impl Mixture {
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        config: &TextConfig,
        sizes: ExpertSizes,
    ) -> Result<Self> {
        let (hidden, eps) = (config.hidden_size, config.rms_norm_eps);
        let mut norm = |name: &str| RmsNorm::load(weights, &format!("{path}.{name}"), hidden, eps);
        let [mlp_norm, input_norm, output_norm] = [
            norm("post_feedforward_layernorm_1")?,
            norm("pre_feedforward_layernorm_2")?,
            norm("post_feedforward_layernorm_2")?,
        ];
        Ok(Self {
            router: Router::load(weights, &format!("{path}.router"), hidden, eps, sizes)?,
            experts: Experts::load(weights, &format!("{path}.experts"), hidden, sizes)?,
            mlp_norm,
            input_norm,
            output_norm,
        })
    }

    /// `mlp` is the dense MLP's output, `h` the residual stream before it; both are
    /// `[1, tokens, hidden]`.
    pub(super) fn add_to(&self, mlp: &Array, h: &Array) -> Result<Array> {
        let (chosen, shares) = self.router.forward(h)?;
        let outputs = self
            .experts
            .forward(&self.input_norm.forward(h)?, &chosen)?;
        let mixed = outputs
            .multiply(shares.expand_dims(-1)?)?
            .sum_axis(-2, false)?;
        let mixed = self.output_norm.forward(&mixed)?;
        Ok(self.mlp_norm.forward(mlp)?.add(&mixed)?)
    }
}

/// Chooses experts from the residual stream itself, normalised without a weight.
#[derive(Debug)]
struct Router {
    norm: RmsNorm,
    /// `[hidden]`
    scale: Array,
    projection: Linear,
    /// `[experts]`
    per_expert_scale: Array,
    chosen: i32,
    hidden: i32,
}

impl Router {
    fn load(
        weights: &mut Weights,
        path: &str,
        hidden: i32,
        eps: f32,
        sizes: ExpertSizes,
    ) -> Result<Self> {
        Ok(Self {
            norm: RmsNorm::without_weight(eps),
            scale: weights.take(&format!("{path}.scale"), &[hidden])?,
            projection: Linear::load(weights, &format!("{path}.proj"), hidden, sizes.experts)?,
            per_expert_scale: weights
                .take(&format!("{path}.per_expert_scale"), &[sizes.experts])?,
            chosen: sizes.chosen,
            hidden,
        })
    }

    /// The chosen experts, `[1, tokens, chosen]`, and their shares, which sum to 1 before
    /// each expert's own scale.
    fn forward(&self, h: &Array) -> Result<(Array, Array)> {
        let x = self.norm.forward(h)?.multiply(&self.scale)?;
        let root = scalar_like((self.hidden as f32).powf(-0.5), &x)?;
        let logits = self.projection.forward(&x.multiply(root)?)?;
        // The likeliest are the least of the negated; their order does not matter.
        let negated = logits.multiply(scalar_like(-1.0, &logits)?)?;
        let order = argpartition_axis(&negated, self.chosen - 1, -1)?;
        let chosen = order.try_index((.., .., 0..self.chosen))?;
        // Softmax over the chosen logits is softmax over all, made to sum to 1 again.
        let shares = softmax_axis(take_along_axis(&logits, &chosen, -1)?, -1, true)?;
        let shares = shares.multiply(self.per_expert_scale.take_axis(&chosen, 0)?)?;
        Ok((chosen, shares))
    }
}

/// The experts: each `down(gelu(gate(x)) * up(x))`.
#[derive(Debug)]
struct Experts {
    /// Stacks `[experts, width, hidden]`.
    gate: Matrix,
    up: Matrix,
    /// `[experts, hidden, width]`.
    down: Matrix,
}

impl Experts {
    /// Takes Hugging Face's fused tensors, or else mlx-community's three.
    fn load(weights: &mut Weights, path: &str, hidden: i32, sizes: ExpertSizes) -> Result<Self> {
        let ExpertSizes { experts, width, .. } = sizes;
        let fused = format!("{path}.gate_up_proj");
        if weights.contains(&fused) {
            weights.record_stack(&fused, false);
            weights.record_stack(&format!("{path}.down_proj"), false);
            let both = weights.take(&fused, &[experts, 2 * width, hidden])?;
            let halves = both.split_equal(2, 1)?;
            let down = weights.take(&format!("{path}.down_proj"), &[experts, hidden, width])?;
            return Ok(Self {
                gate: Matrix::plain(&halves[0])?,
                up: Matrix::plain(&halves[1])?,
                down: Matrix::plain(&down)?,
            });
        }
        let mut load = |name: &str, shape: [i32; 3]| {
            Matrix::load(weights, &format!("{path}.switch_glu.{name}"), &shape)
        };
        Ok(Self {
            gate: load("gate_proj", [experts, width, hidden])?,
            up: load("up_proj", [experts, width, hidden])?,
            down: load("down_proj", [experts, hidden, width])?,
        })
    }

    /// `[1, tokens, hidden]` through the experts `[1, tokens, chosen]`:
    /// `[1, tokens, chosen, hidden]`.
    fn forward(&self, x: &Array, chosen: &Array) -> Result<Array> {
        // One row a product, for every chosen expert of every token.
        let rows = x.expand_dims_axes(&[-2, -3])?;
        let gate = self.gate.gather(&rows, chosen)?;
        let gated = gated_gelu(&gate, &self.up.gather(&rows, chosen)?)?;
        Ok(self.down.gather(&gated, chosen)?.squeeze_axes(&[-2])?)
    }
}
