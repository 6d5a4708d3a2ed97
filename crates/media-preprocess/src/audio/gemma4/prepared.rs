//! What Gemma 4 takes.

use crate::audio::Truncation;
use crate::digest::MediaDigest;

/// A clip as Gemma 4 takes it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Gemma4Audio {
    /// `[rows, dim]`, row major. For the tower, natural logarithms of mel magnitudes: -6.9 is
    /// silence; rows that the mask leaves out are zeros, of either sign. For the unified model
    /// the samples themselves, the last row filled up with zeros.
    pub input_features: Vec<f32>,
    /// `[rows]`: which rows are of real samples alone. All are in the unified model.
    pub input_features_mask: Vec<bool>,
    /// Rows of `input_features`.
    pub rows: usize,
    /// Values a row: 128 mel bands, or 640 samples.
    pub dim: usize,
    /// How many audio tokens the prompt gets. It can be 0: for clips up to 10 ms.
    pub soft_tokens: usize,
    /// The clip's length in seconds, before any truncation.
    pub seconds: f64,
    /// What was cut, if the clip was longer than the model takes.
    pub truncation: Option<Truncation>,
    /// What names this prepared clip in caches.
    pub digest: MediaDigest,
}

impl Gemma4Audio {
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
