//! Kaiser-windowed sinc low-passes.

use std::f64::consts::PI;

/// What lies before the first and after the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Zero,
    Repeat,
}

/// A low-pass in continuous time, in units of input samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Design {
    /// The cutoff as a part of the input's Nyquist frequency.
    pub(crate) cutoff: f64,
    /// The response is zero from this distance on.
    pub(crate) half_width: f64,
    beta: f64,
    pub(crate) edge: Edge,
}

impl Design {
    /// The band edges and attenuation of soxr's HQ recipe, by Kaiser's formulas for the length
    /// and `beta` (Kaiser 1974; `scipy.signal.kaiserord`).
    pub(crate) fn kaiser(from: u32, to: u32) -> Self {
        const PASS: f64 = 0.9136;
        const STOP: f64 = 1.0;
        const ATTENUATION: f64 = 126.4;
        let nyquist = lower_nyquist(from, to);
        let width = PI * (STOP - PASS) * nyquist;
        let taps = (ATTENUATION - 7.95) / (2.285 * width);
        Self {
            cutoff: nyquist * f64::midpoint(PASS, STOP),
            half_width: taps / 2.0,
            beta: 0.1102 * (ATTENUATION - 8.7),
            edge: Edge::Zero,
        }
    }

    /// The constants of mlx-audio's `resample.py`, which are those of resampy's `kaiser_best`.
    pub(crate) fn mlx_audio(from: u32, to: u32) -> Self {
        let nyquist = lower_nyquist(from, to);
        Self {
            cutoff: nyquist * 0.947_593_716_739_959_6,
            half_width: 64.0 / nyquist,
            beta: 14.769_656_459_379_492,
            edge: Edge::Repeat,
        }
    }

    /// The impulse response `time` input samples from its middle, not normalised.
    pub(crate) fn response(&self, time: f64) -> f64 {
        let x = time / self.half_width;
        if x.abs() > 1.0 {
            return 0.0;
        }
        let angle = PI * self.cutoff * time;
        let sinc = if angle == 0.0 {
            1.0
        } else {
            angle.sin() / angle
        };
        sinc * self.cutoff * bessel_i0(self.beta * (1.0 - x * x).sqrt()) / bessel_i0(self.beta)
    }
}

/// The lower of the two Nyquist frequencies, as a part of the input's.
fn lower_nyquist(from: u32, to: u32) -> f64 {
    (f64::from(to) / f64::from(from)).min(1.0)
}

/// The modified Bessel function of the first kind and order 0, by its power series: all terms
/// are positive, so that it is good to the last digits.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1_u32.. {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_agrees_with_tables() {
        // Abramowitz and Stegun, table 9.8, and scipy.special.i0(14.77).
        for (x, expected) in [
            (0.0, 1.0),
            (1.0, 1.266_065_877_752_008_4),
            (5.0, 27.239_871_823_604_44),
        ] {
            assert!((bessel_i0(x) / expected - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn response_is_even_and_bounded() {
        let design = Design::kaiser(44_100, 16_000);
        assert!((526.0..528.0).contains(&(2.0 * design.half_width)));
        for i in 0..100 {
            let time = f64::from(i) * 2.7;
            assert!((design.response(time) - design.response(-time)).abs() < 1e-15);
        }
        assert_eq!(design.response(design.half_width * 1.001).to_bits(), 0);
    }
}
