//! Draws log-mel rows as a picture.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Rows of pixels that a band takes.
const THICKNESS: usize = 2;

/// Colours from quiet to loud, evenly spaced.
const COLOURS: [[f32; 3]; 5] = [
    [8.0, 6.0, 30.0],
    [80.0, 18.0, 110.0],
    [190.0, 55.0, 85.0],
    [250.0, 145.0, 30.0],
    [252.0, 250.0, 180.0],
];

/// Writes `rows` rows of `bands` values as PNG: time to the right, low bands at the bottom.
pub(crate) fn draw(
    path: &Path,
    values: &[f32],
    rows: usize,
    bands: usize,
) -> Result<(), Box<dyn Error>> {
    if rows == 0 {
        return Err("no rows to draw".into());
    }
    let low = values.iter().fold(f32::INFINITY, |least, &v| least.min(v));
    let high = values
        .iter()
        .fold(f32::NEG_INFINITY, |most, &v| most.max(v));
    let mut pixels = Vec::with_capacity(rows * bands * THICKNESS * 3);
    for band in (0..bands).rev() {
        for _ in 0..THICKNESS {
            for row in 0..rows {
                let value = values[row * bands + band];
                pixels.extend(colour((value - low) / (high - low).max(f32::MIN_POSITIVE)));
            }
        }
    }
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, rows as u32, (bands * THICKNESS) as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

/// The colour of a loudness from 0 to 1.
fn colour(loudness: f32) -> [u8; 3] {
    let place = loudness.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f32;
    let below = (place as usize).min(COLOURS.len() - 2);
    let part = place - below as f32;
    let (from, to) = (COLOURS[below], COLOURS[below + 1]);
    std::array::from_fn(|i| (from[i] + (to[i] - from[i]) * part) as u8)
}
