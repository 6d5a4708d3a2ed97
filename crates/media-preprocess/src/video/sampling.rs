//! Which frames of a video are taken.

use super::DEFAULT_FPS;
use crate::error::{Error, Result};

/// A rule that chooses frames.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Sampling {
    /// Every frame (`do_sample_frames` off).
    All,
    /// `frames` of them, the `i`-th at `i * total / frames` rounded down: transformers'
    /// default. It is an error to ask for more than there are.
    Uniform {
        /// How many.
        frames: usize,
    },
    /// As many as `fps` a second gives, rounded down, within bounds and no more than there
    /// are, from the first to the last frame: Qwen3-VL. A source without a rate has 24.
    Rate {
        /// Frames a second to take.
        fps: f64,
        /// The fewest.
        min_frames: usize,
        /// The most.
        max_frames: usize,
    },
    /// `frames` of them from the first to the last; all if there are no more: mlx-vlm's
    /// Gemma 4.
    Spread {
        /// How many.
        frames: usize,
    },
}

impl Sampling {
    /// The indices of the chosen frames, ascending.
    ///
    /// # Errors
    /// [`Error::TooFewFrames`] if there is none, or fewer than `Uniform` wants.
    pub fn indices(self, total: usize, fps: Option<f64>) -> Result<Vec<usize>> {
        let too_few = |wanted| {
            Err(Error::TooFewFrames {
                found: total,
                wanted,
            })
        };
        if total == 0 {
            return too_few(1);
        }
        Ok(match self {
            Self::All => (0..total).collect(),
            Self::Uniform { frames } if frames == 0 || frames > total => {
                return too_few(frames.max(1));
            }
            Self::Uniform { frames } => (0..frames).map(|i| i * total / frames).collect(),
            Self::Rate {
                fps: wanted,
                min_frames,
                max_frames,
            } => {
                let fps = fps.filter(|fps| *fps > 0.0).unwrap_or(DEFAULT_FPS);
                // `as` cuts off, as Python's `int` does.
                let frames = (total as f64 / fps * wanted) as usize;
                linspace(
                    total,
                    frames.max(min_frames).min(max_frames).min(total).max(1),
                )
            }
            Self::Spread { frames } if frames >= total => (0..total).collect(),
            Self::Spread { frames } => linspace(total, frames.max(1)),
        })
    }
}

/// `np.linspace(0, total - 1, count).round()`: steps multiplied, not added, the last exact,
/// halves to even.
fn linspace(total: usize, count: usize) -> Vec<usize> {
    let last = total - 1;
    let step = last as f64 / (count.max(2) - 1) as f64;
    (0..count)
        .map(|i| {
            if i > 0 && i + 1 == count {
                last
            } else {
                (i as f64 * step).round_ties_even() as usize
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_rounds_down_and_refuses_too_many() {
        let four = Sampling::Uniform { frames: 4 };
        assert_eq!(four.indices(10, None).unwrap(), [0, 2, 5, 7]);
        assert_eq!(four.indices(4, None).unwrap(), [0, 1, 2, 3]);
        let error = four.indices(3, None).unwrap_err();
        assert!(matches!(
            error,
            Error::TooFewFrames {
                found: 3,
                wanted: 4
            }
        ));
        assert!(Sampling::All.indices(0, None).is_err());
    }

    #[test]
    fn rates_are_bounded_and_spread_to_the_last_frame() {
        let rate = |max_frames| Sampling::Rate {
            fps: 2.0,
            min_frames: 4,
            max_frames,
        };
        // 90 frames at 30 a second: 6. numpy: [0, 18, 36, 53, 71, 89].
        assert_eq!(
            rate(768).indices(90, Some(30.0)).unwrap(),
            [0, 18, 36, 53, 71, 89]
        );
        assert_eq!(
            rate(5).indices(90, Some(30.0)).unwrap(),
            [0, 22, 44, 67, 89]
        );
        assert_eq!(rate(768).indices(3, Some(30.0)).unwrap(), [0, 1, 2]);
        // Halves go to the even neighbour: 2.5 to 2, 7.5 to 8.
        assert_eq!(rate(768).indices(11, Some(5.5)).unwrap(), [0, 3, 7, 10]);
        assert_eq!(
            Sampling::Spread { frames: 5 }.indices(11, None).unwrap(),
            [0, 2, 5, 8, 10]
        );
        assert_eq!(
            Sampling::Spread { frames: 5 }.indices(4, None).unwrap(),
            [0, 1, 2, 3]
        );
        assert_eq!(
            Sampling::Spread { frames: 1 }.indices(4, None).unwrap(),
            [0]
        );
    }
}
