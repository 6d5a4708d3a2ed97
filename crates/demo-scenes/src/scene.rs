//! What is in a picture or a clip, in integers: nothing is drawn here.
//!
//! The twin of `tools/demo-checkpoint/scenes.py`: both draw the same numbers from a [`Counter`]
//! in the same order. A picture is a grid of 3 x 3 places with at most one shape in each.
//! Lengths inside a tile are in sixteenths of a pixel.

use crate::Counter;

pub(crate) const COLOURS: [&str; 6] = ["red", "green", "blue", "yellow", "purple", "orange"];
const RGB: [[i64; 3]; 6] = [
    [220, 40, 40],
    [40, 170, 60],
    [40, 80, 220],
    [240, 210, 40],
    [150, 50, 180],
    [245, 130, 20],
];
pub(crate) const SHAPES: [&str; 5] = ["circle", "square", "triangle", "star", "cross"];
pub(crate) const SIZES: [&str; 2] = ["small", "big"];
pub(crate) const PLACES: [&str; 9] = [
    "top left",
    "top middle",
    "top right",
    "middle left",
    "centre",
    "middle right",
    "bottom left",
    "bottom middle",
    "bottom right",
];
pub(crate) const PITCHES: [&str; 3] = ["low", "middle", "high"];
const HERTZ: [(i64, i64); 3] = [(300, 480), (900, 1300), (2400, 3400)];

/// Sizes in squares of 48 pixels, columns by rows, which the processor leaves as they are, and
/// how often each is drawn.
const GRIDS: [((usize, usize), usize); 15] = [
    ((8, 8), 48),
    ((9, 7), 7),
    ((7, 9), 7),
    ((10, 7), 5),
    ((7, 10), 5),
    ((10, 6), 5),
    ((6, 10), 5),
    ((11, 6), 4),
    ((6, 11), 4),
    ((12, 5), 2),
    ((5, 12), 2),
    ((14, 5), 2),
    ((5, 14), 2),
    ((17, 4), 1),
    ((4, 17), 1),
];

/// Samples a second of a clip.
pub const SAMPLE_RATE: u32 = 16_000;

/// A shape in a picture. The numbers index the generator's lists of colours, shapes and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thing {
    /// 0 to 8, in reading order.
    pub place: usize,
    /// Of red, green, blue, yellow, purple, orange.
    pub colour: usize,
    /// Of circle, square, triangle, star, cross.
    pub shape: usize,
    /// 0 for small, 1 for big.
    pub size: usize,
}

impl Thing {
    /// Whether no picture of the training has this colour and shape in this place.
    #[must_use]
    pub fn is_held_out(&self) -> bool {
        is_held_out(self.colour, self.shape, self.place)
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", COLOURS[self.colour], SHAPES[self.shape])
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{} {}", SIZES[self.size], self.name())
    }

    pub(crate) fn location(&self) -> &'static str {
        PLACES[self.place]
    }
}

/// Where a thing is in its tile, and its colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Of its centre, in sixteenths of a pixel.
    pub x: i64,
    /// Of its centre, in sixteenths of a pixel, downwards.
    pub y: i64,
    /// In sixteenths of a pixel.
    pub radius: i64,
    /// 0 to 255.
    pub rgb: [i64; 3],
}

/// A picture of `48 columns` x `48 rows` pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Squares of 48 pixels across.
    pub columns: usize,
    /// Squares of 48 pixels down.
    pub rows: usize,
    /// What is in it, in reading order.
    pub things: Vec<Thing>,
    /// One for each thing.
    pub outlines: Vec<Outline>,
    /// What a question is about; held out in a test.
    pub focus: Thing,
    /// Red, green, blue, 0 to 255.
    pub background: [i64; 3],
    /// The noise's strength.
    pub noise: i64,
    /// The noise's key.
    pub noise_key: u64,
}

/// One beep of a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beep {
    /// Its first sample.
    pub start: i64,
    /// In samples.
    pub length: i64,
    /// Its frequency.
    pub hertz: i64,
    /// Of 256.
    pub amplitude: i64,
}

/// A clip of one to two seconds with one to four beeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    /// Of low, middle, high.
    pub pitches: Vec<usize>,
    /// One for each pitch.
    pub beeps: Vec<Beep>,
    /// Its length.
    pub samples: i64,
    /// The noise's strength.
    pub noise: i64,
    /// The noise's key.
    pub noise_key: u64,
}

/// The 28 of 270 triples that no picture of the training has. Every pair is still seen.
fn is_held_out(colour: usize, shape: usize, place: usize) -> bool {
    (3 * colour + 7 * shape + place).is_multiple_of(10)
}

/// The 14 of 120 sequences that no clip of the training has.
fn is_held_out_sequence(pitches: &[usize]) -> bool {
    let total: usize = pitches
        .iter()
        .enumerate()
        .map(|(index, pitch)| (index + 1) * (2 * pitch + 1))
        .sum();
    pitches.len() > 1 && (total + pitches.len()).is_multiple_of(9)
}

fn held_out() -> Vec<(usize, usize, usize)> {
    (0..6)
        .flat_map(|colour| (0..5).map(move |shape| (colour, shape)))
        .flat_map(|(colour, shape)| (0..9).map(move |place| (colour, shape, place)))
        .filter(|&(colour, shape, place)| is_held_out(colour, shape, place))
        .collect()
}

/// All sequences of one to four pitches, the short ones first.
fn all_sequences() -> Vec<Vec<usize>> {
    let (mut sequences, mut longest) = (Vec::new(), vec![Vec::new()]);
    for _ in 0..4 {
        longest = longest
            .iter()
            .flat_map(|sequence| (0..3).map(|pitch| [sequence.as_slice(), &[pitch]].concat()))
            .collect();
        sequences.extend(longest.clone());
    }
    sequences
}

/// Things in reading order, and the one that questions are about. Colour and shape together are
/// unique in a picture, so that "the red circle" is one thing.
fn draw_things(r: &mut Counter, is_test: bool, most: i64) -> (Vec<Thing>, Thing) {
    let count = r.between(1, most) as usize;
    let (mut things, mut focus) = (Vec::<Thing>::new(), None);
    if is_test {
        let (colour, shape, place) = *r.choice(&held_out());
        let size = r.below(2);
        let thing = Thing {
            place,
            colour,
            shape,
            size,
        };
        focus = Some(thing);
        things.push(thing);
    }
    while things.len() < count {
        let (place, mut colour, mut shape) = (r.below(9), r.below(6), r.below(5));
        // Repeats of a colour or a shape would be rare otherwise.
        if let Some(first) = things.first() {
            if r.chance(25) {
                colour = first.colour;
            }
            if r.chance(25) {
                shape = first.shape;
            }
        }
        let is_taken = |t: &Thing| t.place == place || (t.colour, t.shape) == (colour, shape);
        if things.iter().any(is_taken) || (!is_test && is_held_out(colour, shape, place)) {
            continue;
        }
        let size = r.below(2);
        things.push(Thing {
            place,
            colour,
            shape,
            size,
        });
    }
    things.sort_by_key(|thing| thing.place);
    let focus = focus.unwrap_or_else(|| *r.choice(&things));
    (things, focus)
}

/// A tile is 16 `columns` x 16 `rows` pixels. A big shape's radius is 44 to 52 parts of 128 of
/// its shorter side, a small one's 22 to 28.
fn draw_outline(r: &mut Counter, thing: &Thing, columns: usize, rows: usize) -> Outline {
    let lengths = [16 * columns as i64, 16 * rows as i64];
    let side = lengths[0].min(lengths[1]);
    let part = if thing.size == 1 {
        r.between(352, 416)
    } else {
        r.between(176, 224)
    };
    let radius = (side * part) >> 6;
    let [x, y] = lengths.map(|length| {
        let room = (8 * length - side / 4 - radius).min(7 * length / 4);
        8 * length + r.between(-room, room)
    });
    let rgb = RGB[thing.colour].map(|c| (c + r.between(-12, 12)).clamp(0, 255));
    Outline { x, y, radius, rgb }
}

impl Picture {
    /// A picture of at most `most` shapes. In a test's at least one is a held-out triple; in one
    /// of the training's none is.
    pub fn draw(r: &mut Counter, is_test: bool, most: i64) -> Self {
        let (columns, rows) = r.weighted(&GRIDS);
        let (things, focus) = draw_things(r, is_test, most);
        let outlines = things
            .iter()
            .map(|thing| draw_outline(r, thing, columns, rows))
            .collect();
        let grey = r.between(20, 242);
        let background = [(); 3].map(|()| (grey + r.between(-8, 8)).clamp(0, 255));
        let noise = if r.chance(50) { r.between(6, 31) } else { 0 };
        Self {
            columns,
            rows,
            things,
            outlines,
            focus,
            background,
            noise,
            noise_key: r.bits(),
        }
    }
}

impl Clip {
    /// A clip, in a test of a sequence that the training's clips do not have.
    pub fn draw(r: &mut Counter, is_test: bool) -> Self {
        // Long sequences outnumber short ones: a fifth of the training's clips is drawn from these.
        let is_short = !is_test && r.chance(20);
        let mut sequences = all_sequences();
        sequences.retain(|sequence| {
            is_held_out_sequence(sequence) == is_test && (!is_short || sequence.len() < 4)
        });
        let pitches = r.choice(&sequences).clone();
        let mut at = r.between(800, 3200);
        let mut beeps = Vec::new();
        for &pitch in &pitches {
            let (low, high) = HERTZ[pitch];
            let beep = Beep {
                start: at,
                length: r.between(1600, 2880),
                hertz: r.between(low, high),
                amplitude: r.between(64, 179),
            };
            at += beep.length + r.between(1600, 3840);
            beeps.push(beep);
        }
        let second = i64::from(SAMPLE_RATE);
        Self {
            pitches,
            beeps,
            samples: (at + r.between(0, 4000)).clamp(second, 2 * second),
            noise: r.between(0, 800),
            noise_key: r.bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_out_is_a_tenth() {
        assert_eq!(held_out().len(), 28);
        let sequences = all_sequences();
        assert_eq!(sequences.len(), 120);
        let held_out = sequences.iter().filter(|s| is_held_out_sequence(s));
        assert_eq!(held_out.count(), 14);
    }

    #[test]
    fn only_tests_have_held_out_combinations() {
        for index in 0..200 {
            let r = &mut Counter::new(3, &index.to_string());
            let picture = Picture::draw(r, true, 4);
            assert!(picture.focus.is_held_out() && picture.things.contains(&picture.focus));
            assert!(is_held_out_sequence(&Clip::draw(r, true).pitches));
            let picture = Picture::draw(r, false, 4);
            assert!(!picture.things.iter().any(Thing::is_held_out));
            assert!(!is_held_out_sequence(&Clip::draw(r, false).pitches));
        }
    }
}
