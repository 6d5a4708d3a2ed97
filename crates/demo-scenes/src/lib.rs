//! The pictures of shapes, clips of beeps and questions that the bundled model is tested with.
//!
//! - [`Sample`]: media and a question with its one right answer, a function of a seed, a
//!   [`Kind`], a [`Mode`] and a number. [`Sample::held_out`] has combinations of colour, shape
//!   and place (or sequences of beeps) that the model's training never had.
//! - [`Picture`] and [`Clip`]: what is in them, in integers; [`Picture::png`] and [`Clip::wav`]
//!   make files of them.
//! - [`Counter`]: the random numbers all this is drawn from.
//!
//! `tools/demo-checkpoint`, which trains the model, draws the same in Python: pixel for pixel,
//! sample for sample and word for word. `tests/digests.json` holds that together.
//!
//! ```
//! use prefill_demo_scenes::{Kind, Medium, Mode, Sample};
//!
//! let sample = Sample::held_out(2026, Kind::One, Mode::Plain, 0);
//! let Medium::Picture(picture) = &sample.media[0] else { unreachable!() };
//! assert_eq!(picture.pixels().len(), 3 * picture.width() * picture.height());
//! println!("{} {}", sample.question.text, sample.question.answer);
//! ```
//!
//! It runs no model, draws nothing else, and is not published. Small talk, which needs no media,
//! is not among its samples.

mod counter;
mod drawing;
mod questions;
mod sample;
mod scene;
mod wording;

pub use counter::Counter;
pub use questions::Question;
pub use sample::{Call, Kind, Medium, Mode, Sample, tools};
pub use scene::{Beep, Clip, Outline, Picture, SAMPLE_RATE, Thing};
