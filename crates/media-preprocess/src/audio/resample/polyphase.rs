//! A polyphase filter bank that runs block by block.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

use pulp::{Arch, Scalar, Simd, WithSimd};

use super::design::{Design, Edge};
use super::output_length;

/// Sums run in this many lanes, added pairwise at the end: the same on every processor.
const LANES: usize = 64;

/// Outputs of the same phase that are summed one after another, while its weights are at hand.
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

    /// The output at `phase / up` after sample `half - 1` of `samples`.
    #[inline(always)]
    fn output<S: Simd>(&self, simd: S, samples: &[f32], phase: u64, up: u64) -> f32 {
        if !self.interpolated {
            return dot(simd, samples, self.row(phase as usize));
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
        let mut sum = 0.0;
        for (i, factor) in cubic.into_iter().enumerate() {
            sum += factor * f64::from(dot(simd, samples, self.row(row + i)));
        }
        sum as f32
    }
}

/// The sum of products. Not fused, in a fixed order: the same bits on every processor.
#[inline(always)]
fn dot<S: Simd>(simd: S, samples: &[f32], weights: &[f32]) -> f32 {
    let sums: [f32; 16] = match S::F32_LANES {
        16 => accumulate::<S, 4, 1>(simd, samples, weights),
        8 => accumulate::<S, 8, 2>(simd, samples, weights),
        4 => accumulate::<S, 16, 4>(simd, samples, weights),
        _ => accumulate::<Scalar, LANES, 16>(Scalar, samples, weights),
    };
    let mut eight = [0.0; 8];
    for lane in 0..8 {
        eight[lane] = sums[lane] + sums[lane + 8];
    }
    let [a, b, c, d, e, f, g, h] = eight;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Adds up the products in `VECTORS` vectors, which are `LANES` lanes; then those in pairs, until
/// `LEFT` vectors, 16 lanes, are left.
#[inline(always)]
fn accumulate<S: Simd, const VECTORS: usize, const LEFT: usize>(
    simd: S,
    samples: &[f32],
    weights: &[f32],
) -> [f32; 16] {
    let (samples, weights) = (S::as_simd_f32s(samples).0, S::as_simd_f32s(weights).0);
    let samples = samples.as_chunks::<VECTORS>().0;
    let mut sums = [simd.splat_f32s(0.0); VECTORS];
    for (x, w) in samples.iter().zip(weights.as_chunks::<VECTORS>().0) {
        for i in 0..VECTORS {
            sums[i] = simd.add_f32s(sums[i], simd.mul_f32s(x[i], w[i]));
        }
    }
    let mut left = [simd.splat_f32s(0.0); LEFT];
    for i in 0..LEFT {
        let low = simd.add_f32s(sums[i], sums[i + 2 * LEFT]);
        let high = simd.add_f32s(sums[i + LEFT], sums[i + 3 * LEFT]);
        left[i] = simd.add_f32s(low, high);
    }
    let mut lanes = [0.0; 16];
    lanes.copy_from_slice(bytemuck::cast_slice(&left));
    lanes
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
        Arch::new().dispatch(Run {
            polyphase: self,
            limit,
            out,
        });
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

/// The sums of [`Polyphase::run`], compiled for every kind of processor.
struct Run<'a> {
    polyphase: &'a mut Polyphase,
    limit: u64,
    out: &'a mut Vec<f32>,
}

impl WithSimd for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if !self.polyphase.bank.interpolated {
            self.polyphase.run_groups(simd, self.limit, self.out);
        }
        self.polyphase.run_singly(simd, self.limit, self.out);
    }
}

impl Polyphase {
    /// Gives outputs one by one.
    #[inline(always)]
    fn run_singly<S: Simd>(&mut self, simd: S, limit: u64, out: &mut Vec<f32>) {
        let taps = self.bank.taps;
        while self.given < limit && self.first(self.given) + taps <= self.history.len() {
            let samples = &self.history[self.first(self.given)..][..taps];
            let phase = self.given * self.down % self.up;
            out.push(self.bank.output(simd, samples, phase, self.up));
            self.given += 1;
        }
    }

    /// The first sample of the history that an output needs. The history begins `half` before
    /// the clip, so the sample `half - 1` before the output's position is one after that.
    #[inline(always)]
    fn first(&self, output: u64) -> usize {
        (output * self.down / self.up + 1 - self.start) as usize
    }

    /// Gives as many whole groups as there are: in each, every phase `GROUP` times.
    #[inline(always)]
    fn run_groups<S: Simd>(&mut self, simd: S, limit: u64, out: &mut Vec<f32>) {
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
                let weights = self.bank.row((output * self.down % self.up) as usize);
                for g in 0..GROUP {
                    let samples = &self.history[first + g * down..][..taps];
                    out[base + g * up + i] = dot(simd, samples, weights);
                }
            }
            self.given = next;
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_change_nothing() {
        struct Dot<'a>(&'a [f32], &'a [f32]);
        impl WithSimd for Dot<'_> {
            type Output = f32;

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> f32 {
                dot(simd, self.0, self.1)
            }
        }
        let numbers = |seed: u32| -> Vec<f32> {
            (0..576_u32)
                .map(|i| (i.wrapping_mul(seed) >> 8) as f32 / 16_777_216.0 - 0.5)
                .collect()
        };
        let (samples, weights) = (numbers(2_654_435_761), numbers(2_246_822_519));
        let expected = dot(Scalar, &samples, &weights);
        let got = Arch::new().dispatch(Dot(&samples, &weights));
        assert_eq!(got.to_bits(), expected.to_bits());
        let exact: f64 = samples
            .iter()
            .zip(&weights)
            .map(|(&x, &w)| f64::from(x) * f64::from(w))
            .sum();
        assert!((f64::from(got) - exact).abs() < 1e-5);
    }
}
