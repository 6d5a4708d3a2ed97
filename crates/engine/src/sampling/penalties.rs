//! What is added to logits before they are read: a bias, and penalties on recent tokens.

use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexOp, put_along_axis, scatter_add_single, take_along_axis};
use mlx_rs::ops::{concatenate, full, lt, select};

use super::{Penalty, Sampling};
use crate::Result;

/// The last tokens, kept on the device, and what they do to the logits.
#[derive(Debug)]
pub(super) struct Penalties {
    /// `[count]`, i32, the oldest first; none where no penalty looks at them.
    recent: Option<Array>,
    /// Tokens that the widest penalty looks at.
    context: i32,
    repetition: Option<Penalty>,
    presence: Option<Penalty>,
    frequency: Option<Penalty>,
    /// Ids `[count]` and what is added to their logits, `[count, 1]`.
    bias: Option<(Array, Array)>,
}

impl Penalties {
    /// With the prompt's `ids` as the tokens so far.
    pub(super) fn new(sampling: &Sampling, ids: &[u32]) -> Self {
        let effective = |penalty: Option<Penalty>, neutral: f32| {
            penalty.filter(|penalty| penalty.strength.to_bits() != f32::to_bits(neutral))
        };
        let repetition = effective(sampling.repetition, 1.0);
        let presence = effective(sampling.presence, 0.0);
        let frequency = effective(sampling.frequency, 0.0);
        let widest = [repetition, presence, frequency]
            .into_iter()
            .flatten()
            .map(|penalty| penalty.context)
            .max();
        let recent = widest.map(|context| {
            let first = ids.len().saturating_sub(context as usize);
            let tail: Vec<i32> = ids[first..].iter().map(|&id| id as i32).collect();
            Array::from_slice(&tail, &[tail.len() as i32])
        });
        let bias = (!sampling.bias.is_empty()).then(|| {
            let ids: Vec<i32> = sampling.bias.keys().map(|&id| id as i32).collect();
            let values: Vec<f32> = sampling.bias.values().copied().collect();
            let count = ids.len() as i32;
            (
                Array::from_slice(&ids, &[count]),
                Array::from_slice(&values, &[count, 1]),
            )
        });
        Self {
            recent,
            context: widest.unwrap_or(0) as i32,
            repetition,
            presence,
            frequency,
            bias,
        }
    }

    /// Adds a chosen token, `[1, 1]`, i32.
    pub(super) fn push(&mut self, token: &Array) -> Result<()> {
        if let Some(recent) = &mut self.recent {
            let from = (recent.dim(0) + 1 - self.context).max(0);
            let kept = recent.try_index(from..)?;
            *recent = concatenate(&[&kept, &token.reshape(&[1])?], 0)?;
        }
        Ok(())
    }

    /// Puts another token in the place of the last.
    pub(super) fn replace_last(&mut self, token: &Array) -> Result<()> {
        if let Some(recent) = &mut self.recent {
            let before = recent.try_index(..recent.dim(0) - 1)?;
            *recent = concatenate(&[&before, &token.reshape(&[1])?], 0)?;
        }
        Ok(())
    }

    /// `[vocabulary]`, f32.
    pub(super) fn apply(&self, logits: &Array) -> Result<Array> {
        let mut logits = logits.clone();
        if let Some((ids, values)) = &self.bias {
            logits = scatter_add_single(&logits, ids, values, 0)?;
        }
        let Some(recent) = self.recent.as_ref().filter(|recent| recent.dim(0) > 0) else {
            return Ok(logits);
        };
        let last = |penalty: Penalty| -> Result<Array> {
            let from = (recent.dim(0) - penalty.context as i32).max(0);
            Ok(recent.try_index(from..)?)
        };
        if let Some(penalty) = self.repetition {
            let ids = last(penalty)?;
            let found = take_along_axis(&logits, &ids, 0)?;
            let strength = Array::from_f32(penalty.strength);
            let changed = select(
                lt(&found, Array::from_f32(0.0))?,
                found.multiply(&strength)?,
                found.divide(&strength)?,
            )?;
            logits = put_along_axis(&logits, ids, changed, 0)?;
        }
        if let Some(penalty) = self.presence {
            let ids = last(penalty)?;
            let changed =
                take_along_axis(&logits, &ids, 0)?.subtract(Array::from_f32(penalty.strength))?;
            logits = put_along_axis(&logits, ids, changed, 0)?;
        }
        if let Some(penalty) = self.frequency {
            let ids = last(penalty)?;
            let each = full::<f32>(&[ids.dim(0), 1], Array::from_f32(-penalty.strength))?;
            logits = scatter_add_single(&logits, ids, each, 0)?;
        }
        Ok(logits)
    }
}
