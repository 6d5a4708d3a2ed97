//! Resampling to 16 kHz by a named method, block by block.

mod design;
mod polyphase;
#[cfg(feature = "soxr")]
mod soxr;

use design::Design;
use polyphase::Polyphase;

use crate::error::Result;

/// How audio of another rate becomes 16 kHz. The references differ, so the method is named.
///
/// The length is `ceil(n * 16000 / rate)` with each, as in librosa.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Resampler {
    /// A Kaiser-windowed sinc with the band edges and attenuation of soxr's HQ recipe: flat to
    /// 0.9136 of the lower Nyquist frequency, 126.4 dB down from that frequency on.
    #[default]
    Kaiser,
    /// libsoxr's HQ recipe: what `librosa.load` and transformers' `load_audio` (soundfile)
    /// compute, bit for bit.
    #[cfg(feature = "soxr")]
    Soxr,
    /// The parameters of mlx-audio, which mlx-vlm uses: 64 zero crossings, rolloff 0.9476,
    /// Kaiser beta 14.77, the edge samples repeated outwards.
    MlxAudio,
}

/// Where the samples of one clip are turned to another rate.
pub(crate) enum Stream {
    /// The rates are the same.
    Same,
    Polyphase(Box<Polyphase>),
    #[cfg(feature = "soxr")]
    Soxr(Box<soxr::Stream>),
}

impl Stream {
    /// From `from` to `to` samples a second, neither of them 0.
    #[cfg_attr(
        not(feature = "soxr"),
        allow(clippy::unnecessary_wraps, reason = "soxr can fail")
    )]
    pub(crate) fn new(resampler: Resampler, from: u32, to: u32) -> Result<Self> {
        if from == to {
            return Ok(Self::Same);
        }
        Ok(match resampler {
            Resampler::Kaiser => Self::Polyphase(Box::new(Polyphase::new(
                &Design::kaiser(from, to),
                from,
                to,
            ))),
            Resampler::MlxAudio => Self::Polyphase(Box::new(Polyphase::new(
                &Design::mlx_audio(from, to),
                from,
                to,
            ))),
            #[cfg(feature = "soxr")]
            Resampler::Soxr => Self::Soxr(Box::new(soxr::Stream::new(from, to)?)),
        })
    }

    /// Takes a block, and appends what can be told already.
    #[cfg_attr(
        not(feature = "soxr"),
        allow(clippy::unnecessary_wraps, reason = "soxr can fail")
    )]
    pub(crate) fn push(&mut self, input: &[f32], out: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::Same => out.extend_from_slice(input),
            Self::Polyphase(stream) => stream.push(input, out),
            #[cfg(feature = "soxr")]
            Self::Soxr(stream) => stream.push(input, out)?,
        }
        Ok(())
    }

    /// Appends the rest.
    #[cfg_attr(
        not(feature = "soxr"),
        allow(clippy::unnecessary_wraps, reason = "soxr can fail")
    )]
    pub(crate) fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::Same => {}
            Self::Polyphase(stream) => stream.finish(out),
            #[cfg(feature = "soxr")]
            Self::Soxr(stream) => stream.finish(out)?,
        }
        Ok(())
    }
}

/// Resamples a whole clip.
///
/// ```
/// use prefill_media_preprocess::audio::{Resampler, resample};
///
/// let second = vec![0.0; 44_100];
/// assert_eq!(resample(&second, 44_100, 16_000, Resampler::Kaiser)?.len(), 16_000);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
///
/// # Errors
/// [`Error::SampleRate`](crate::Error::SampleRate) for a rate of 0 or over 768 kHz.
pub fn resample(samples: &[f32], from: u32, to: u32, resampler: Resampler) -> Result<Vec<f32>> {
    for rate in [from, to] {
        super::limits::check_rate(rate)?;
    }
    let mut out = Vec::with_capacity(output_length(samples.len() as u64, from, to) as usize);
    let mut stream = Stream::new(resampler, from, to)?;
    for block in samples.chunks(1 << 16) {
        stream.push(block, &mut out)?;
    }
    stream.finish(&mut out)?;
    Ok(out)
}

/// `ceil(samples * to / from)`.
pub(crate) fn output_length(samples: u64, from: u32, to: u32) -> u64 {
    (u128::from(samples) * u128::from(to)).div_ceil(u128::from(from)) as u64
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    fn tone(hertz: f64, rate: u32, count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| (TAU * hertz * i as f64 / f64::from(rate)).sin() as f32)
            .collect()
    }

    /// Signal to noise in dB against the tone itself, without the edges.
    fn quality(hertz: f64, from: u32, to: u32, resampler: Resampler) -> f64 {
        let got = resample(&tone(hertz, from, from as usize), from, to, resampler).unwrap();
        let want = tone(hertz, to, got.len());
        let edge = got.len() / 8;
        let (mut signal, mut noise) = (0.0, 0.0);
        for (&g, &w) in got[edge..got.len() - edge].iter().zip(&want[edge..]) {
            signal += f64::from(w).powi(2);
            noise += (f64::from(g) - f64::from(w)).powi(2);
        }
        10.0 * (signal / noise).log10()
    }

    #[test]
    fn tones_in_the_pass_band_come_through() {
        for from in [8000, 11_025, 22_050, 44_100, 48_000, 96_000, 44_101] {
            for resampler in [Resampler::Kaiser, Resampler::MlxAudio] {
                let quality = quality(1000.0, from, 16_000, resampler);
                assert!(quality > 120.0, "{from} Hz, {resampler:?}: {quality} dB");
            }
        }
    }

    #[test]
    fn tones_above_nyquist_are_gone() {
        for (from, hertz) in [(44_100, 9000.0), (48_000, 8001.0), (44_101, 15_000.0)] {
            let samples = tone(hertz, from, from as usize);
            let got = resample(&samples, from, 16_000, Resampler::Kaiser).unwrap();
            let edge = got.len() / 8;
            let peak = got[edge..got.len() - edge]
                .iter()
                .fold(0.0, |m: f32, x| m.max(x.abs()));
            assert!(peak < 2e-6, "{hertz} Hz of {from}: {peak}");
        }
    }

    #[test]
    fn lengths_are_rounded_up() {
        for (samples, from, expected) in [
            (1, 44_100, 1),
            (2, 44_100, 1),
            (3, 44_100, 2),
            (0, 48_000, 0),
        ] {
            let got = resample(&vec![0.5; samples], from, 16_000, Resampler::Kaiser).unwrap();
            assert_eq!(got.len(), expected, "{samples} at {from}");
        }
    }

    #[test]
    fn blocks_change_nothing() {
        let samples = tone(440.0, 44_100, 20_000);
        for resampler in [Resampler::Kaiser, Resampler::MlxAudio] {
            let whole = resample(&samples, 44_100, 16_000, resampler).unwrap();
            let mut stream = Stream::new(resampler, 44_100, 16_000).unwrap();
            let mut got = Vec::new();
            for block in samples.chunks(777) {
                stream.push(block, &mut got).unwrap();
            }
            stream.finish(&mut got).unwrap();
            assert_eq!(got, whole);
        }
    }
}
