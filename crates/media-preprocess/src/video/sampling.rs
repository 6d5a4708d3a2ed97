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
    /// `frames` of them, rounded to a multiple, half to even, the `i`-th at `i` strides of
    /// `total / frames`: Qwen2-VL with `num_frames`. It is an error to ask for more than there
    /// are.
    UniformMultiple {
        /// How many.
        frames: usize,
        /// What their number is a multiple of: the temporal patch.
        multiple: usize,
    },
    /// As many as `fps` a second gives, within bounds and no more than there are, rounded down
    /// to a multiple, at equal strides from the first: Qwen2-VL with `fps`. It is an error if
    /// the source has no rate, or fewer frames than the multiple.
    RateMultiple {
        /// Frames a second to take.
        fps: f64,
        /// The fewest.
        min_frames: usize,
        /// The most.
        max_frames: usize,
        /// What their number is a multiple of: the temporal patch.
        multiple: usize,
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
    /// [`Error::TooFewFrames`] if there is none, or fewer than `Uniform` or a multiple wants;
    /// [`Error::NoFrameRate`] if `RateMultiple` has no rate to work with.
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
            Self::UniformMultiple { frames, multiple } => {
                let multiple = multiple.max(1);
                let groups = (frames as f64 / multiple as f64).round_ties_even() as usize;
                match groups.saturating_mul(multiple) {
                    0 => return too_few(multiple),
                    count if count > total => return too_few(count),
                    count => arange(total, count),
                }
            }
            Self::RateMultiple {
                fps: wanted,
                min_frames,
                max_frames,
                multiple,
            } => {
                let rate = fps.filter(|fps| *fps > 0.0).ok_or(Error::NoFrameRate)?;
                let multiple = multiple.max(1);
                let most = max_frames.min(total) / multiple * multiple;
                // The rate gives a fraction of frames, which is rounded down at the end.
                let frames = (total as f64 / rate * wanted).max(min_frames as f64);
                match frames.min(most as f64) as usize / multiple * multiple {
                    0 => return too_few(multiple),
                    count => arange(total, count),
                }
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

/// `torch.arange(0, total, total / count).int()`: multiples in f32, cut off. Where that gives
/// one more, beyond the last frame (and transformers fails), it is left out.
///
/// torch adds to an f32 at the start of each of its vectors, whose length depends on the
/// processor; that shows, by one frame, in videos of over 16,384 frames.
fn arange(total: usize, count: usize) -> Vec<usize> {
    let step = total as f64 / count as f64;
    (0..count)
        .map(|i| ((i as f64 * step) as f32 as usize).min(total - 1))
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
    #[test]
    fn multiples_are_kept_and_strides_cut_off() {
        let uniform = |frames, multiple| Sampling::UniformMultiple { frames, multiple };
        // Python: round(5 / 2) * 2 == 4, round(7 / 2) * 2 == 8.
        assert_eq!(uniform(5, 2).indices(10, None).unwrap(), [0, 2, 5, 7]);
        assert_eq!(uniform(7, 2).indices(9, None).unwrap().len(), 8);
        assert!(uniform(1, 2).indices(9, None).is_err());
        assert!(uniform(10, 2).indices(9, None).is_err());
        // torch.arange(0, 205, 205 / 200) has 201 items, the last 205.
        let indices = uniform(200, 2).indices(205, None).unwrap();
        assert_eq!((indices.len(), indices.last()), (200, Some(&203)));
        let rate = Sampling::RateMultiple {
            fps: 2.0,
            min_frames: 4,
            max_frames: 7,
            multiple: 2,
        };
        assert_eq!(
            rate.indices(90, Some(30.0)).unwrap(),
            [0, 15, 30, 45, 60, 75]
        );
        assert_eq!(rate.indices(5, Some(30.0)).unwrap(), [0, 1, 2, 3]);
        assert!(matches!(rate.indices(90, None), Err(Error::NoFrameRate)));
        assert!(matches!(
            rate.indices(1, Some(30.0)),
            Err(Error::TooFewFrames {
                found: 1,
                wanted: 2
            })
        ));
    }
}
