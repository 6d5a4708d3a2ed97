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

    /// The impulse response at `times`, in input samples from its middle, not normalised.
    pub(crate) fn responses(&self, times: &[f64]) -> Vec<f64> {
        // Kaiser's window is I0(beta sqrt(u)) / I0(beta) with u = 1 - (time / half_width)^2; I0's
        // power series is one in u. All its terms are positive: it is good to the last digits.
        let scaled: Vec<f64> = times.iter().map(|t| t / self.half_width).collect();
        let u: Vec<f64> = scaled.iter().map(|x| (1.0 - x * x).max(0.0)).collect();
        let series = bessel_series(self.beta);
        let whole: f64 = series.iter().rev().sum();
        let mut window = vec![0.0; times.len()];
        for &term in series.iter().rev() {
            for (value, u) in window.iter_mut().zip(&u) {
                *value = *value * u + term;
            }
        }
        for ((value, x), &time) in window.iter_mut().zip(&scaled).zip(times) {
            let angle = PI * self.cutoff * time;
            let sinc = if angle == 0.0 {
                1.0
            } else {
                angle.sin() / angle
            };
            let inside = x.abs() <= 1.0;
            *value = if inside {
                *value / whole * sinc * self.cutoff
            } else {
                0.0
            };
        }
        window
    }
}

/// The lower of the two Nyquist frequencies, as a part of the input's.
fn lower_nyquist(from: u32, to: u32) -> f64 {
    (f64::from(to) / f64::from(from)).min(1.0)
}

/// The coefficients of `I0(beta sqrt(u))` by rising powers of `u`: `(beta^2 / 4)^k / k!^2`.
fn bessel_series(beta: f64) -> Vec<f64> {
    let quarter = beta * beta / 4.0;
    let mut series = vec![1.0];
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1_u32.. {
        term *= quarter / f64::from(k * k);
        sum += term;
        series.push(term);
        if term < sum * 1e-18 {
            break;
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_agrees_with_tables() {
        // Abramowitz and Stegun, table 9.8.
        for (x, expected) in [
            (0.0, 1.0),
            (1.0, 1.266_065_877_752_008_4),
            (5.0, 27.239_871_823_604_44),
        ] {
            let sum: f64 = bessel_series(x).iter().sum();
            assert!((sum / expected - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn response_is_even_and_bounded() {
        let design = Design::kaiser(44_100, 16_000);
        assert!((526.0..528.0).contains(&(2.0 * design.half_width)));
        let times: Vec<f64> = (0..100).map(|i| f64::from(i) * 2.7).collect();
        let mirrored: Vec<f64> = times.iter().map(|t| -t).collect();
        assert_eq!(design.responses(&times), design.responses(&mirrored));
        let outside = design.responses(&[design.half_width * 1.001]);
        assert_eq!(outside[0].to_bits(), 0);
    }
}
