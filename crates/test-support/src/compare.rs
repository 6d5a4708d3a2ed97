use std::fmt;

use crate::Matrix;

/// How two sets of logits compare, over all steps.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The largest absolute difference; NaN if there is one on either side.
    pub max_abs: f32,
    /// The step with the largest difference.
    pub step: usize,
    /// The id with the largest difference.
    pub id: usize,
    /// What the golden has there.
    pub expected: f32,
    /// What was found there.
    pub found: f32,
    /// The root mean square of the differences.
    pub rms: f32,
    /// The largest absolute difference of each step.
    pub by_step: Vec<f32>,
    /// The steps at which the largest logit has another id.
    pub other_argmax: Vec<usize>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            max_abs,
            step,
            id,
            expected,
            found,
            rms,
            ..
        } = self;
        write!(
            f,
            "largest difference {max_abs:.2e} at step {step}, id {id} \
             (expected {expected}, found {found}), rms {rms:.2e}, by step ["
        )?;
        for (i, d) in self.by_step.iter().enumerate() {
            write!(f, "{}{d:.1e}", if i == 0 { "" } else { " " })?;
        }
        write!(f, "]")?;
        if !self.other_argmax.is_empty() {
            write!(f, ", another best id at steps {:?}", self.other_argmax)?;
        }
        Ok(())
    }
}

/// Why logits do not agree with a golden.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogitsMismatch {
    /// There are more or fewer values than in the golden.
    #[error("expected {rows} x {columns} logits, found {found} values")]
    Shape {
        /// Steps of the golden.
        rows: usize,
        /// The vocabulary of the golden.
        columns: usize,
        /// The number of values given.
        found: usize,
    },
    /// A difference is above the tolerance, or not a number.
    #[error("logits differ by more than {tolerance:.2e}: {comparison}")]
    Values {
        /// The largest difference allowed.
        tolerance: f32,
        /// All about the differences.
        comparison: Box<Comparison>,
    },
}

/// Compares `found`, row-major, with the logits of a golden.
///
/// ```
/// use prefill_test_support::{Golden, compare_logits};
///
/// let expected = Golden::read("gemma4_e2b", "text")?.logits()?;
/// let mut found = expected.values().to_vec();
/// found[5] += 0.25;
/// let error = compare_logits(&expected, &found, 1e-3).unwrap_err();
/// assert!(error.to_string().contains("at step 0, id 5"));
/// assert!(compare_logits(&expected, &found, 0.3).is_ok());
/// # Ok::<(), prefill_test_support::Error>(())
/// ```
///
/// # Errors
/// The number of values is another, a difference is above `tolerance`, or a value is NaN.
pub fn compare_logits(
    expected: &Matrix,
    found: &[f32],
    tolerance: f32,
) -> Result<Comparison, LogitsMismatch> {
    let (rows, columns) = (expected.rows(), expected.columns());
    if rows == 0 || columns == 0 || found.len() != rows * columns {
        return Err(LogitsMismatch::Shape {
            rows,
            columns,
            found: found.len(),
        });
    }
    let comparison = compare(expected, found);
    if comparison.max_abs <= tolerance {
        Ok(comparison)
    } else {
        let comparison = Box::new(comparison);
        Err(LogitsMismatch::Values {
            tolerance,
            comparison,
        })
    }
}

fn compare(expected: &Matrix, found: &[f32]) -> Comparison {
    let columns = expected.columns();
    let difference = |i: usize| (expected.values()[i] - found[i]).abs();
    // `total_cmp` puts NaN, made positive by `abs`, above every number.
    let worst_of = |range: std::ops::Range<usize>| {
        let start = range.start;
        range
            .max_by(|&a, &b| difference(a).total_cmp(&difference(b)))
            .unwrap_or(start)
    };
    let worst = worst_of(0..found.len());
    let squares: f64 = (0..found.len())
        .map(|i| f64::from(difference(i)).powi(2))
        .sum();
    let steps = 0..expected.rows();
    let other_argmax = |&step: &usize| {
        argmax(expected.row(step)) != argmax(&found[step * columns..(step + 1) * columns])
    };
    Comparison {
        max_abs: difference(worst),
        step: worst / columns,
        id: worst % columns,
        expected: expected.values()[worst],
        found: found[worst],
        rms: (squares / found.len() as f64).sqrt() as f32,
        by_step: steps
            .clone()
            .map(|s| difference(worst_of(s * columns..(s + 1) * columns)))
            .collect(),
        other_argmax: steps.filter(other_argmax).collect(),
    }
}

/// The first index of the largest value.
fn argmax(row: &[f32]) -> Option<usize> {
    row.iter()
        .enumerate()
        .rev()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map(|(i, _)| i)
}
