//! Sample frames that encoders add, and players leave out.

use std::ops::Range;

/// What is left out of a track.
#[derive(Debug)]
pub(super) struct Trim {
    /// Frames still to leave out at the start.
    skip: u64,
    /// Frames still to give, if that is known.
    remaining: Option<u64>,
    /// Frames to leave out at the end.
    tail: usize,
    /// The last frames so far, which may be the tail.
    held: Vec<f32>,
}

impl Trim {
    pub(super) fn new(skip: u64, remaining: Option<u64>, tail: usize) -> Self {
        Self {
            skip,
            remaining,
            tail,
            held: Vec::new(),
        }
    }

    /// Whether all that is to be given was.
    pub(super) fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Which of the next `frames` are to be given.
    pub(super) fn range(&mut self, frames: usize) -> Range<usize> {
        let from = self.skip.min(frames as u64) as usize;
        self.skip -= from as u64;
        let mut to = frames;
        if let Some(remaining) = &mut self.remaining {
            to = from + (*remaining).min((frames - from) as u64) as usize;
            *remaining -= (to - from) as u64;
        }
        from..to
    }

    /// Puts what was held before `samples`, and holds their last instead.
    pub(super) fn hold(&mut self, samples: &mut Vec<f32>) {
        if self.tail == 0 {
            return;
        }
        self.held.append(samples);
        let give = self.held.len().saturating_sub(self.tail);
        samples.extend(self.held.drain(..give));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_end_and_length() {
        let mut trim = Trim::new(5, Some(6), 2);
        let mut given = Vec::new();
        for packet in 0..5 {
            let range = trim.range(4);
            let mut samples: Vec<f32> = range.map(|i| (packet * 4 + i) as f32).collect();
            trim.hold(&mut samples);
            given.append(&mut samples);
        }
        assert!(trim.is_done());
        // 5 to 10, less two.
        assert_eq!(given, [5.0, 6.0, 7.0, 8.0]);
    }
}
