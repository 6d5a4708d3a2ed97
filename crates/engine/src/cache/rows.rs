//! Keys and values of one layer, plain or quantised.

use mlx_rs::Array;
use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::{TryIndexMutOp, TryIndexOp};
use mlx_sys_ext::{Quantization, Quantized, quantize};

use crate::Result;

/// Rows `[batch, heads, rows, D]`, as they are kept.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Plain(Array),
    /// In groups along `D`.
    Quantized(Quantized),
}

impl Stored {
    /// New rows in the form that a layer keeps.
    pub(super) fn of(rows: &Array, quantization: Option<Quantization>) -> Result<Self> {
        Ok(match quantization {
            Some(quantization) => Self::Quantized(quantize(rows, quantization)?),
            None => Self::Plain(rows.clone()),
        })
    }

    /// The same rows in that form; quantised ones stay as they are.
    pub(super) fn into_form(self, quantization: Quantization) -> Result<Self> {
        match self {
            Self::Plain(rows) => Self::of(&rows, Some(quantization)),
            quantized @ Self::Quantized(_) => Ok(quantized),
        }
    }

    /// Every array.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let (first, rest) = match self {
            Self::Plain(rows) => (rows, [None, None]),
            Self::Quantized(quantized) => (
                &quantized.weight,
                [Some(&quantized.scales), quantized.biases.as_ref()],
            ),
        };
        std::iter::once(first).chain(rest.into_iter().flatten())
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> i32 {
        match self {
            Self::Plain(rows) => rows.dim(2),
            Self::Quantized(quantized) => quantized.weight.dim(2),
        }
    }

    /// The rows `from..to`.
    pub(crate) fn slice(&self, from: i32, to: i32) -> Result<Self> {
        self.map(|array| Ok(array.try_index((.., .., from..to, ..))?))
    }

    /// Room for `rows` rows like these, with zeros.
    pub(super) fn zeros(&self, rows: i32) -> Result<Self> {
        self.map(|array| {
            let mut shape = array.shape().to_vec();
            shape[2] = rows;
            Ok(mlx_rs::ops::zeros_dtype(&shape, array.dtype())?)
        })
    }

    /// These rows, then those of `after`, which has the same form.
    pub(super) fn then(&self, after: &Self) -> Result<Self> {
        self.zip(after, |a, b| Ok(concatenate(&[a, b], 2)?))
    }

    /// Writes rows of the same form from row `from` on.
    pub(super) fn write(&mut self, from: i32, rows: &Self) -> Result<()> {
        *self = self.zip(rows, |buffer, rows| {
            let mut buffer = buffer.clone();
            let to = from + rows.dim(2);
            buffer.try_index_mut((.., .., from..to, ..), rows)?;
            Ok(buffer)
        })?;
        Ok(())
    }

    pub(super) fn map(&self, mut change: impl FnMut(&Array) -> Result<Array>) -> Result<Self> {
        Ok(match self {
            Self::Plain(rows) => Self::Plain(change(rows)?),
            Self::Quantized(quantized) => Self::Quantized(Quantized {
                weight: change(&quantized.weight)?,
                scales: change(&quantized.scales)?,
                biases: quantized.biases.as_ref().map(change).transpose()?,
            }),
        })
    }

    /// `join` of each of these arrays and the other's. Forms never mix: a layer changes its
    /// form as a whole.
    fn zip(
        &self,
        other: &Self,
        mut join: impl FnMut(&Array, &Array) -> Result<Array>,
    ) -> Result<Self> {
        let mut others = other.arrays();
        self.map(|array| {
            let other = others.next().ok_or_else(|| {
                crate::Error::Conversion("plain rows beside quantised ones".to_owned())
            })?;
            join(array, other)
        })
    }
}

/// What the queries of a layer attend to.
#[derive(Debug, Clone)]
pub(crate) struct KeysValues {
    pub keys: Stored,
    pub values: Stored,
    /// How they are quantised, if they are.
    pub quantization: Option<Quantization>,
}

impl KeysValues {
    /// How many rows there are.
    pub(crate) fn count(&self) -> i32 {
        self.keys.count()
    }

    /// The rows from `first` on.
    pub(crate) fn rows_from(&self, first: i32) -> Result<Self> {
        let count = self.count();
        Ok(Self {
            keys: self.keys.slice(first, count)?,
            values: self.values.slice(first, count)?,
            quantization: self.quantization,
        })
    }
}
