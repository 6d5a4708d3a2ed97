//! A polyphase filter bank that runs block by block.

use pulp::Arch;

use super::design::{Design, Edge};
use super::output_length;

/// Sums run in this many lanes, added pairwise at the end: the same on every processor.
const LANES: usize = 32;

/// A bank of more phases than this is interpolated.
const MAX_PHASES: usize = 1024;

/// Phases of a bank that is interpolated by cubics: the error is below -160 dB.
const INTERPOLATED_PHASES: usize = 128;

/// One clip on its way from one rate to another.
pub(crate) struct Polyphase {
    from: u32,
    to: u32,
    /// The rates without their common factors: output `k` lies at input `k * down / up`.
    up: u64,
    down: u64,
    edge: Edge,
    bank: Bank,
    /// Input samples from position `start` on; the clip's first is at `half`.
    history: Vec<f32>,
    start: u64,
    taken: u64,
    given: u64,
    last: f32,
}

/// Weights by phase, each row `taps` long.
struct Bank {
    weights: Vec<f32>,
    taps: usize,
    /// Samples before and after an output's position that it needs.
    half: usize,
    interpolated: bool,
}

impl Bank {
    fn new(design: &Design, up: usize) -> Self {
        let half = design.half_width.ceil() as usize;
        let taps = (2 * half).next_multiple_of(LANES);
        let interpolated = up > MAX_PHASES;
        let phases = if interpolated {
            INTERPOLATED_PHASES
        } else {
            up
        };
        // Cubics need a row before the first and two after the last.
        let rows = if interpolated {
            -1..phases as i64 + 2
        } else {
            0..phases as i64
        };
        let mut weights = Vec::with_capacity(rows.clone().count() * taps);
        let mut sum = 0.0;
        for row in rows {
            let phase = row as f64 / phases as f64;
            for tap in 0..taps {
                // Tap 0 is the sample `half - 1` before the output's position.
                let time = tap as f64 - (half as f64 - 1.0) - phase;
                let weight = design.response(time);
                if (0..phases as i64).contains(&row) {
                    sum += weight;
                }
                weights.push(weight);
            }
        }
        // A constant stays what it is.
        let scale = phases as f64 / sum;
        Self {
            weights: weights.iter().map(|w| (w * scale) as f32).collect(),
            taps,
            half,
            interpolated,
        }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.taps..][..self.taps]
    }

    /// The output at `phase / up` after sample `half - 1` of `samples`.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn output(&self, samples: &[f32], phase: u64, up: u64) -> f32 {
        if !self.interpolated {
            return dot(samples, self.row(phase as usize));
        }
        let position = phase as f64 * INTERPOLATED_PHASES as f64 / up as f64;
        let row = position as usize;
        let t = position - row as f64;
        // Lagrange's cubic through rows -1, 0, 1 and 2.
        let cubic = [
            -t * (t - 1.0) * (t - 2.0) / 6.0,
            (t + 1.0) * (t - 1.0) * (t - 2.0) / 2.0,
            -(t + 1.0) * t * (t - 2.0) / 2.0,
            (t + 1.0) * t * (t - 1.0) / 6.0,
        ];
        let sum: f64 = (0..4)
            .map(|i| cubic[i] * f64::from(dot(samples, self.row(row + i))))
            .sum();
        sum as f32
    }
}

/// The sum of products. Not fused, in a fixed order: the same bits on every processor.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]
fn dot(samples: &[f32], weights: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for (x, w) in samples
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(weights.as_chunks::<LANES>().0)
    {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * w[lane];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

impl Polyphase {
    pub(crate) fn new(design: &Design, from: u32, to: u32) -> Self {
        let common = gcd(from, to);
        let (up, down) = (to / common, from / common);
        let bank = Bank::new(design, up as usize);
        Self {
            from,
            to,
            up: up.into(),
            down: down.into(),
            edge: design.edge,
            history: vec![0.0; bank.half],
            bank,
            start: 0,
            taken: 0,
            given: 0,
            last: 0.0,
        }
    }

    pub(crate) fn push(&mut self, input: &[f32], out: &mut Vec<f32>) {
        let (Some(&first), Some(&last)) = (input.first(), input.last()) else {
            return;
        };
        if self.taken == 0 && self.edge == Edge::Repeat {
            self.history.fill(first);
        }
        self.last = last;
        self.taken += input.len() as u64;
        self.history.extend_from_slice(input);
        self.run(u64::MAX, out);
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<f32>) {
        let padding = match self.edge {
            Edge::Zero => 0.0,
            Edge::Repeat => self.last,
        };
        let longer = self.history.len() + self.bank.half + self.bank.taps;
        self.history.resize(longer, padding);
        let length = output_length(self.taken, self.from, self.to);
        self.run(length, out);
    }

    /// Gives the outputs before `limit` for which there is all input, and forgets input that
    /// no later one needs.
    fn run(&mut self, limit: u64, out: &mut Vec<f32>) {
        let taps = self.bank.taps as u64;
        let arch = Arch::new();
        arch.dispatch(
            #[inline(always)]
            || {
                while self.given < limit {
                    // The history begins `half` before the clip, so the sample `half - 1` before
                    // the position is one after that.
                    let position = self.given * self.down;
                    let first = position / self.up + 1 - self.start;
                    if first + taps > self.history.len() as u64 {
                        break;
                    }
                    let samples = &self.history[first as usize..][..self.bank.taps];
                    out.push(self.bank.output(samples, position % self.up, self.up));
                    self.given += 1;
                }
            },
        );
        let needed = self.given * self.down / self.up + 1;
        let forget = needed
            .saturating_sub(self.start)
            .min(self.history.len() as u64);
        if forget as usize > self.history.len() / 2 {
            self.history.drain(..forget as usize);
            self.start += forget;
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
