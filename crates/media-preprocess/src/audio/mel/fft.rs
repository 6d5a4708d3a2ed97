//! The Fourier transform of several real frames at once.
#![allow(
    clippy::inline_always,
    reason = "compiled for the features of the caller"
)]

use std::f64::consts::TAU;

use super::lanes::Complex;

/// A plan for frames of a length that is a power of two, from 4 on.
///
/// The even and odd samples are the real and imaginary parts of a complex signal of half the
/// length; its transform is Stockham's, in steps of radix 4 and perhaps one of radix 2; the
/// symmetry of real signals then tells the two apart.
#[derive(Debug, Clone)]
pub(super) struct RealFft {
    length: usize,
    /// For each step of radix 4, and each of its groups, the three turns.
    steps: Vec<Vec<[[f64; 2]; 3]>>,
    /// `exp(-2 pi i k / length)` for the first quarter.
    split: Vec<[f64; 2]>,
}

impl RealFft {
    pub(super) fn new(length: usize) -> Self {
        debug_assert!(length.is_power_of_two() && length >= 4);
        let turn = |part: usize, whole: usize| {
            let (sin, cos) = (-TAU * part as f64 / whole as f64).sin_cos();
            [cos, sin]
        };
        let mut steps = Vec::new();
        let mut n = length / 2;
        while n >= 4 {
            let group = |p: usize| [turn(p, n), turn(2 * p, n), turn(3 * p, n)];
            steps.push((0..n / 4).map(group).collect());
            n /= 4;
        }
        Self {
            length,
            steps,
            split: (0..=length / 4).map(|k| turn(k, length)).collect(),
        }
    }

    /// The length of a frame.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Values of the spectrum, from 0 Hz to half the sampling rate.
    pub(super) fn bins(&self) -> usize {
        self.length / 2 + 1
    }

    /// Transforms what `signal` holds: sample `2 n` of every frame in the real part of entry `n`,
    /// sample `2 n + 1` in the imaginary part. `other` is as long; `re` and `im`
    /// get the result, by bin.
    #[inline(always)]
    pub(super) fn run<const L: usize>(
        &self,
        signal: &mut Vec<Complex<L>>,
        other: &mut Vec<Complex<L>>,
        re: &mut [[f64; L]],
        im: &mut [[f64; L]],
    ) {
        let half = self.length / 2;
        let (mut n, mut stride) = (half, 1);
        for step in &self.steps {
            let quarter = n / 4;
            let (from, to) = (&signal[..half], &mut other[..half]);
            for (p, &[w1, w2, w3]) in step.iter().enumerate() {
                let first = &from[stride * p..][..stride];
                let second = &from[stride * (p + quarter)..][..stride];
                let third = &from[stride * (p + 2 * quarter)..][..stride];
                let fourth = &from[stride * (p + 3 * quarter)..][..stride];
                let outputs = &mut to[stride * 4 * p..][..stride * 4];
                for q in 0..stride {
                    let (a, b, c, d) = (first[q], second[q], third[q], fourth[q]);
                    let (sum, difference) = (a + c, a - c);
                    let (other_sum, turned) = (b + d, (b - d).quarter());
                    outputs[q] = sum + other_sum;
                    outputs[q + stride] = (difference - turned).turned(w1);
                    outputs[q + 2 * stride] = (sum - other_sum).turned(w2);
                    outputs[q + 3 * stride] = (difference + turned).turned(w3);
                }
            }
            std::mem::swap(signal, other);
            n = quarter;
            stride *= 4;
        }
        if n == 2 {
            let (from, to) = (&signal[..half], &mut other[..half]);
            for q in 0..stride {
                let (a, b) = (from[q], from[q + stride]);
                to[q] = a + b;
                to[q + stride] = a - b;
            }
            std::mem::swap(signal, other);
        }
        self.tell_apart(&signal[..half], re, im);
    }

    /// The spectrum of the real frames from that of the complex signal.
    #[inline(always)]
    fn tell_apart<const L: usize>(
        &self,
        spectrum: &[Complex<L>],
        re: &mut [[f64; L]],
        im: &mut [[f64; L]],
    ) {
        let half = spectrum.len();
        let first = spectrum[0];
        re[0] = (first.re + first.im).0;
        re[half] = (first.re - first.im).0;
        (im[0], im[half]) = ([0.0; L], [0.0; L]);
        for k in 1..=half / 2 {
            let (low, high) = (spectrum[k], spectrum[half - k].conjugate());
            let even = halved(low + high);
            // Times -i, then turned.
            let odd = halved(high - low).quarter().turned(self.split[k]);
            let (here, there) = (even + odd, (even - odd).conjugate());
            (re[k], im[k]) = (here.re.0, here.im.0);
            (re[half - k], im[half - k]) = (there.re.0, there.im.0);
        }
    }
}

#[inline(always)]
fn halved<const L: usize>(value: Complex<L>) -> Complex<L> {
    Complex {
        re: value.re * 0.5,
        im: value.im * 0.5,
    }
}

#[cfg(test)]
mod tests {
    use realfft::RealFftPlanner;

    use super::super::lanes::Lanes;
    use super::*;

    #[test]
    fn equals_another_implementation() {
        for length in [4, 8, 16, 32, 128, 512, 1024] {
            let frames: [Vec<f64>; 2] = [3, 7].map(|seed| {
                (0..length)
                    .map(|i| f64::from((i as u32 * 7919 * seed + 13) % 1009) / 500.0 - 1.0)
                    .collect()
            });
            let plan = RealFft::new(length);
            let mut signal: Vec<Complex<2>> = (0..length / 2)
                .map(|n| Complex {
                    re: Lanes([frames[0][2 * n], frames[1][2 * n]]),
                    im: Lanes([frames[0][2 * n + 1], frames[1][2 * n + 1]]),
                })
                .collect();
            let mut re = vec![[0.0; 2]; plan.bins()];
            let mut im = re.clone();
            let mut other = signal.clone();
            plan.run(&mut signal, &mut other, &mut re, &mut im);
            let reference = RealFftPlanner::<f64>::new().plan_fft_forward(length);
            for (lane, frame) in frames.iter().enumerate() {
                let mut want = reference.make_output_vec();
                reference.process(&mut frame.clone(), &mut want).unwrap();
                for (bin, want) in want.iter().enumerate() {
                    let error = (re[bin][lane] - want.re).hypot(im[bin][lane] - want.im);
                    assert!(error < 1e-11, "{length}, bin {bin}: {error}");
                }
            }
        }
    }
}
