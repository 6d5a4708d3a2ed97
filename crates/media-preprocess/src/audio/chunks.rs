//! Long clips in pieces that a model takes.

use std::ops::Range;

use super::SAMPLE_RATE;

/// Loudness is measured over this many samples: 20 ms.
const WINDOW: usize = 320;

/// Cuts long clips into pieces, since the models hear only so much: what is longer than 30
/// seconds would be cut off.
///
/// The pieces cover the clip in order. A cut is made at the quietest 20 ms of the end of a piece,
/// where it is least likely to split a word.
///
/// ```
/// use prefill_media_preprocess::audio::{Chunks, Gemma4AudioProcessor};
///
/// let samples = vec![0.0; 75 * 16_000];
/// let processor = Gemma4AudioProcessor::default();
/// for range in Chunks::default().ranges(&samples) {
///     let prepared = processor.prepare(&samples[range])?;
///     assert!(prepared.truncation.is_none());
/// }
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// Longest piece, in samples. By default 480,000: 30 seconds.
    pub max_samples: usize,
    /// How far from a piece's end a cut may be made, in samples; 0 cuts at its end. By default
    /// 80,000: 5 seconds. No more than half of a piece is given up.
    pub search: usize,
    /// Samples that a piece repeats of the one before. By default 0; at most a quarter of a piece.
    pub overlap: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            max_samples: 30 * SAMPLE_RATE as usize,
            search: 5 * SAMPLE_RATE as usize,
            overlap: 0,
        }
    }
}

impl Chunks {
    /// The pieces of a clip, none longer than `max_samples` (which is taken to be at least 4).
    /// A clip without samples has none.
    #[must_use]
    pub fn ranges(&self, samples: &[f32]) -> Vec<Range<usize>> {
        let longest = self.max_samples.max(4);
        let search = self.search.min(longest / 2);
        let overlap = self.overlap.min(longest / 4);
        let mut ranges = Vec::new();
        let mut start = 0;
        while samples.len() - start > longest {
            let end = start + longest;
            let cut = end - search + quietest(&samples[end - search..end]);
            ranges.push(start..cut);
            start = cut - overlap;
        }
        if start < samples.len() {
            ranges.push(start..samples.len());
        }
        ranges
    }
}

/// The middle of the quietest window, the last one if there are several; the end if there is no
/// window.
fn quietest(samples: &[f32]) -> usize {
    let energy = |window: &[f32]| window.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    samples
        .chunks_exact(WINDOW)
        .map(energy)
        .enumerate()
        .min_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))
        .map_or(samples.len(), |(i, _)| i * WINDOW + WINDOW / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_made_in_a_pause() {
        let mut samples = vec![0.5; 40 * 16_000];
        let pause = 27 * 16_000;
        samples[pause..pause + 1600].fill(0.001);
        let ranges = Chunks::default().ranges(&samples);
        assert_eq!(ranges.len(), 2);
        assert!((pause..pause + 1600).contains(&ranges[0].end));
        assert_eq!(ranges[1], ranges[0].end..samples.len());
    }

    #[test]
    fn short_clips_are_one_piece() {
        assert!(Chunks::default().ranges(&[]).is_empty());
        let samples = vec![0.0; 480_000];
        assert_eq!(Chunks::default().ranges(&samples).len(), 1);
    }
}
