//! A polyphase filter bank that runs block by block.

use pulp::Arch;

use super::design::{Design, Edge};
use super::output_length;

/// Sums run in this many lanes, added pairwise at the end: the same on every processor.
const LANES: usize = 16;

/// Outputs of the same phase that are summed side by side, so that weights are loaded once.
const GROUP: usize = 4;

/// Input is taken up to this much before it is worked on.
const BLOCK: usize = 1 << 14;

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
            // Tap 0 is the sample `half - 1` before the output's position.
            let start = -(half as f64 - 1.0) - row as f64 / phases as f64;
            let times: Vec<f64> = (0..taps).map(|tap| tap as f64 + start).collect();
            let responses = design.responses(&times);
            if (0..phases as i64).contains(&row) {
                sum += responses.iter().sum::<f64>();
            }
            weights.extend(responses);
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

    /// The outputs at `phase / up` after sample `half - 1` of each of `samples`.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn outputs<const G: usize>(&self, samples: [&[f32]; G], phase: u64, up: u64) -> [f32; G] {
        if !self.interpolated {
            return dots(samples, self.row(phase as usize));
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
        let mut sums = [0.0; G];
        for (i, factor) in cubic.into_iter().enumerate() {
            let parts = dots(samples, self.row(row + i));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += factor * f64::from(part);
            }
        }
        sums.map(|sum| sum as f32)
    }
}

/// Sums of products with the same weights. Not fused, in a fixed order: the same bits on every
/// processor, and however many there are.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]
fn dots<const G: usize>(samples: [&[f32]; G], weights: &[f32]) -> [f32; G] {
    let weights = weights.as_chunks::<LANES>().0;
    let samples = samples.map(|samples| &samples.as_chunks::<LANES>().0[..weights.len()]);
    let mut lanes = [[0.0_f32; LANES]; G];
    for (i, w) in weights.iter().enumerate() {
        for (lanes, samples) in lanes.iter_mut().zip(&samples) {
            let x = &samples[i];
            for lane in 0..LANES {
                lanes[lane] += x[lane] * w[lane];
            }
        }
    }
    lanes.map(|mut lanes| {
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    })
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
        if self.history.len() >= BLOCK.max(2 * self.bank.taps) {
            self.run(u64::MAX, out);
        }
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
        let taps = self.bank.taps;
        let arch = Arch::new();
        arch.dispatch(
            #[inline(always)]
            || {
                if !self.bank.interpolated {
                    self.run_groups(limit, out);
                }
                while self.given < limit && self.first(self.given) + taps <= self.history.len() {
                    let samples = &self.history[self.first(self.given)..][..taps];
                    let phase = self.given * self.down % self.up;
                    out.extend(self.bank.outputs([samples], phase, self.up));
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

impl Polyphase {
    /// The first sample of the history that an output needs. The history begins `half` before
    /// the clip, so the sample `half - 1` before the output's position is one after that.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn first(&self, output: u64) -> usize {
        (output * self.down / self.up + 1 - self.start) as usize
    }

    /// Gives as many whole groups as there are: in each, every phase `GROUP` times.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for the features of the caller"
    )]
    fn run_groups(&mut self, limit: u64, out: &mut Vec<f32>) {
        let (taps, up, down) = (self.bank.taps, self.up as usize, self.down as usize);
        loop {
            let next = self.given + (GROUP * up) as u64;
            if next > limit || self.first(next) + taps > self.history.len() {
                break;
            }
            let base = out.len();
            out.resize(base + GROUP * up, 0.0);
            for i in 0..up {
                let output = self.given + i as u64;
                let first = self.first(output);
                let samples = std::array::from_fn(|g| &self.history[first + g * down..][..taps]);
                let phase = output * self.down % self.up;
                let values = self.bank.outputs::<GROUP>(samples, phase, self.up);
                for (g, value) in values.into_iter().enumerate() {
                    out[base + g * up + i] = value;
                }
            }
            self.given = next;
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
