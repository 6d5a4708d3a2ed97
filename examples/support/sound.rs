//! Long clips in pieces.

use std::path::Path;

use anyhow::Result;
use prefill_media_preprocess::audio::{Chunks, DecodeOptions, decode_file};

/// Samples a second of what models hear.
const RATE: u32 = 16_000;

/// A clip's pieces as WAV files, each of at most so many seconds, cut where it is quiet.
///
/// # Errors
/// If the file can't be decoded.
pub fn pieces(path: &Path, seconds: f64) -> Result<Vec<Vec<u8>>> {
    let options = DecodeOptions::default().with_sample_rate(RATE);
    let samples = decode_file(path, &options)?.samples;
    let longest = (seconds.max(1.0) * f64::from(RATE)) as usize;
    let chunks = Chunks {
        max_samples: longest,
        ..Chunks::default()
    };
    let ranges = chunks.ranges(&samples).into_iter();
    Ok(ranges.map(|range| wav(&samples[range])).collect())
}

/// A WAV file of 32-bit floats with one channel.
fn wav(samples: &[f32]) -> Vec<u8> {
    let data = 4 * samples.len() as u32;
    let mut file = Vec::with_capacity(44 + 4 * samples.len());
    file.extend(b"RIFF");
    file.extend((36 + data).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    // IEEE floats, one channel.
    file.extend(3u16.to_le_bytes());
    file.extend(1u16.to_le_bytes());
    file.extend(RATE.to_le_bytes());
    file.extend((4 * RATE).to_le_bytes());
    file.extend(4u16.to_le_bytes());
    file.extend(32u16.to_le_bytes());
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}
