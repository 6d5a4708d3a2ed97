//! What the encoders of the Gemma families take.

use super::Truncation;
use crate::digest::MediaDigest;

/// A clip as Gemma 4 or Gemma 3n takes it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AudioFeatures {
    /// `[rows, dim]`, row major. For Gemma 4's tower, natural logarithms of mel magnitudes: -6.9
    /// is silence; rows that the mask leaves out are zeros, of either sign. For its unified model
    /// the samples themselves, the last row filled up with zeros. For Gemma 3n logarithms too,
    /// where -11.5 is silence, masked rows included.
    pub input_features: Vec<f32>,
    /// `[rows]`: which rows count. For Gemma 4's tower those of real samples alone, for Gemma 3n
    /// those that begin with one; all of them in the unified model.
    pub input_features_mask: Vec<bool>,
    /// Rows of `input_features`.
    pub rows: usize,
    /// Values a row: 128 mel bands, or 640 samples.
    pub dim: usize,
    /// How many audio tokens the prompt gets. It can be 0: for clips up to 10 ms of Gemma 4's
    /// tower.
    pub soft_tokens: usize,
    /// The clip's length in seconds, before any truncation.
    pub seconds: f64,
    /// What was cut, if the clip was longer than the model takes.
    pub truncation: Option<Truncation>,
    /// What names this prepared clip in caches.
    pub digest: MediaDigest,
}

impl AudioFeatures {
    /// Rows that the mask keeps. They come first.
    #[must_use]
    pub fn valid_rows(&self) -> usize {
        self.input_features_mask
            .iter()
            .filter(|&&valid| valid)
            .count()
    }

    /// The tensors padded to `rows`, as transformers pads the shorter clips of a batch: with
    /// zeros, masked. Fewer than there are changes nothing.
    #[must_use]
    pub fn padded(&self, rows: usize) -> (Vec<f32>, Vec<bool>) {
        let rows = rows.max(self.rows);
        let mut features = self.input_features.clone();
        features.resize(rows * self.dim, 0.0);
        let mut mask = self.input_features_mask.clone();
        mask.resize(rows, false);
        (features, mask)
    }
}
