//! Pixels and samples from a scene's numbers, in integer arithmetic, and the files of both.
//!
//! The twin of `tools/demo-checkpoint/drawing.py`: both give the same pixels and samples.

use std::f64::consts::TAU;

use crate::counter::{GAMMA, mix64};
use crate::scene::{Clip, Outline, Picture, SAMPLE_RATE};

/// The unit vectors to a star's five points, times 1024.
const POINTS: [(i64, i64); 5] = [
    (0, -1024),
    (974, -316),
    (602, 828),
    (-602, 828),
    (-974, -316),
];
/// How far a star's lines lie from its centre: 1024 cos 72 degrees. A pentagram is what lies on
/// the inner side of four or five of its five lines.
const LINE: i64 = 316;
/// Samples in which a beep fades in and out: 8 ms.
const FADE: i64 = 128;
/// Steps of a period of the sine.
const PERIOD: usize = 1024;

/// Whether a shape of radius r round the origin covers a point; y grows downwards.
fn covers(shape: usize, x: i64, y: i64, r: i64) -> bool {
    let (across, down) = (x.abs(), y.abs());
    match shape {
        0 => x * x + y * y < r * r,
        1 => 20 * across.max(down) < 17 * r,
        2 => 5 * y < 4 * r && 36 * across < 19 * (y + r),
        3 => {
            let inner = |&&(px, py): &&(i64, i64)| x * px + y * py < LINE * r;
            POINTS.iter().filter(inner).count() >= 4
        }
        _ => {
            (10 * across < 3 * r && 20 * down < 19 * r)
                || (10 * down < 3 * r && 20 * across < 19 * r)
        }
    }
}

/// Two random bytes whose sum is triangular round 0, times `strength` / 128.
fn noise(bits: u64, strength: i64) -> i64 {
    let byte = |shift: u32| (bits >> shift & 255) as i64;
    ((byte(0) + byte(8) - 255) * strength) >> 7
}

impl Picture {
    /// In pixels.
    #[must_use]
    pub fn width(&self) -> usize {
        48 * self.columns
    }

    /// In pixels.
    #[must_use]
    pub fn height(&self) -> usize {
        48 * self.rows
    }

    /// RGB, row by row: `3 width height` bytes.
    #[must_use]
    pub fn pixels(&self) -> Vec<u8> {
        let (tile_width, tile_height) = (16 * self.columns, 16 * self.rows);
        let mut tiles: [Option<(usize, &Outline)>; 9] = [None; 9];
        for (thing, outline) in self.things.iter().zip(&self.outlines) {
            tiles[thing.place] = Some((thing.shape, outline));
        }
        let mut pixels = Vec::with_capacity(3 * self.width() * self.height());
        let mut key = self.noise_key;
        for row in 0..self.height() {
            for column in 0..self.width() {
                let tile = tiles[3 * (row / tile_height) + column / tile_width];
                let x = 16 * (column % tile_width) as i64 + 8;
                let y = 16 * (row % tile_height) as i64 + 8;
                let rgb = match tile {
                    Some((shape, o)) if covers(shape, x - o.x, y - o.y, o.radius) => o.rgb,
                    _ => self.background,
                };
                key = key.wrapping_add(GAMMA);
                let bits = mix64(key);
                for (channel, value) in rgb.into_iter().enumerate() {
                    let value = value + noise(bits >> (16 * channel), self.noise);
                    pixels.push(value.clamp(0, 255) as u8);
                }
            }
        }
        pixels
    }

    /// The picture as a PNG file.
    ///
    /// # Panics
    /// Never: memory takes what is written, and the sizes agree.
    #[must_use]
    pub fn png(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width() as u32, self.height() as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&self.pixels()));
        written.expect("memory takes what is written, and the sizes agree");
        file
    }
}

impl Clip {
    /// 16-bit samples, [`SAMPLE_RATE`] a second.
    #[must_use]
    pub fn waveform(&self) -> Vec<i16> {
        let sine: Vec<i64> = (0..PERIOD)
            .map(|step| (32767.0 * (TAU * step as f64 / PERIOD as f64).sin()).round() as i64)
            .collect();
        let mut wave = vec![0; self.samples as usize];
        for beep in &self.beeps {
            let step = (beep.hertz << 32) / i64::from(SAMPLE_RATE);
            let after = wave.iter_mut().skip(beep.start as usize);
            for (i, value) in (0..beep.length).zip(after) {
                let fade = (i + 1).min(beep.length - i).min(FADE);
                let phase = ((i * step) & 0xFFFF_FFFF) >> 22;
                *value += (sine[phase as usize] * fade * beep.amplitude) >> 15;
            }
        }
        let mut key = self.noise_key;
        let noisy = wave.into_iter().map(|value: i64| {
            key = key.wrapping_add(GAMMA);
            let value = value + noise(mix64(key), self.noise);
            value.clamp(i16::MIN.into(), i16::MAX.into()) as i16
        });
        noisy.collect()
    }

    /// The clip as a WAV file: one channel of 16-bit samples.
    #[must_use]
    pub fn wav(&self) -> Vec<u8> {
        let samples = self.waveform();
        let bytes = 2 * samples.len() as u32;
        let mut file = Vec::with_capacity(44 + bytes as usize);
        file.extend(b"RIFF");
        file.extend((36 + bytes).to_le_bytes());
        file.extend(b"WAVEfmt ");
        file.extend(16_u32.to_le_bytes());
        // PCM, one channel.
        file.extend([1_u16, 1].iter().flat_map(|value| value.to_le_bytes()));
        // Samples and bytes a second.
        let rates = [SAMPLE_RATE, 2 * SAMPLE_RATE];
        file.extend(rates.iter().flat_map(|value| value.to_le_bytes()));
        // Bytes and bits a sample.
        file.extend([2_u16, 16].iter().flat_map(|value| value.to_le_bytes()));
        file.extend(b"data");
        file.extend(bytes.to_le_bytes());
        file.extend(samples.iter().flat_map(|value| value.to_le_bytes()));
        file
    }
}
