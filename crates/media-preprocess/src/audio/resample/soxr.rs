//! libsoxr, the resampler of librosa.

use ::soxr::Soxr;
use ::soxr::format::Mono;
use ::soxr::params::{QualityRecipe, QualitySpec, RuntimeSpec};

use super::output_length;
use crate::error::{Error, Result};

/// Output is asked for in pieces of this many samples.
const PIECE: usize = 1 << 14;

/// One clip on its way through libsoxr.
pub(crate) struct Stream {
    soxr: Soxr<Mono<f32>>,
    from: u32,
    to: u32,
    taken: u64,
    given: u64,
    piece: Vec<f32>,
}

impl Stream {
    pub(crate) fn new(from: u32, to: u32) -> Result<Self> {
        let quality = QualitySpec::new(QualityRecipe::high());
        let soxr = Soxr::new_with_params(from.into(), to.into(), quality, RuntimeSpec::new(1))
            .map_err(|error| failed(&error))?;
        Ok(Self {
            soxr,
            from,
            to,
            taken: 0,
            given: 0,
            piece: vec![0.0; PIECE],
        })
    }

    pub(crate) fn push(&mut self, mut input: &[f32], out: &mut Vec<f32>) -> Result<()> {
        self.taken += input.len() as u64;
        while !input.is_empty() {
            let done = self
                .soxr
                .process(input, &mut self.piece)
                .map_err(|error| failed(&error))?;
            input = &input[done.input_frames..];
            self.give(done.output_frames, u64::MAX, out);
        }
        Ok(())
    }

    /// As transformers does, cut or padded with zeros to the rounded-up length.
    pub(crate) fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        let length = output_length(self.taken, self.from, self.to);
        loop {
            let frames = self
                .soxr
                .drain(&mut self.piece)
                .map_err(|error| failed(&error))?;
            if frames == 0 {
                break;
            }
            self.give(frames, length, out);
        }
        while self.given < length {
            out.push(0.0);
            self.given += 1;
        }
        // `push` may have given one too many.
        let extra = self.given - length;
        out.truncate(out.len() - extra as usize);
        Ok(())
    }

    fn give(&mut self, frames: usize, limit: u64, out: &mut Vec<f32>) {
        let frames = (frames as u64).min(limit.saturating_sub(self.given));
        out.extend_from_slice(&self.piece[..frames as usize]);
        self.given += frames;
    }
}

fn failed(error: &::soxr::Error) -> Error {
    Error::Resampler {
        message: error.as_str().to_owned(),
    }
}
