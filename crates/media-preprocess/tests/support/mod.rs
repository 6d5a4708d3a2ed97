//! What the golden tests share.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::PathBuf;

use prefill_media_preprocess::image::{DecodeOptions, RgbImage, decode};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) fn golden_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name)
}

pub(crate) fn golden(name: &str) -> Value {
    serde_json::from_slice(&fs::read(golden_path(name)).unwrap()).unwrap()
}

pub(crate) fn input(name: &str) -> Vec<u8> {
    fs::read(golden_path("inputs").join(name)).unwrap()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

pub(crate) fn sha256_f32(values: &[f32]) -> String {
    sha256(
        &values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<_>>(),
    )
}

pub(crate) fn sha256_i32(values: &[i32]) -> String {
    sha256(
        &values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<_>>(),
    )
}

/// The synthetic image of the golden generator: a hash of position, channel and seed.
pub(crate) fn synth(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..height {
        for x in 0..width {
            for c in 0..3_u32 {
                let mut v = x
                    .wrapping_mul(2_654_435_761)
                    .wrapping_add(y.wrapping_mul(2_246_822_519))
                    .wrapping_add(c.wrapping_mul(3_266_489_917))
                    .wrapping_add(seed.wrapping_mul(668_265_263));
                v ^= v >> 15;
                v = v.wrapping_mul(2_246_822_519);
                v ^= v >> 13;
                v = v.wrapping_mul(3_266_489_917);
                v ^= v >> 16;
                out.push(v as u8);
            }
        }
    }
    out
}

/// An image by the goldens' names: `synth:WxH:SEED` or a file of `inputs`.
pub(crate) fn image(name: &str) -> RgbImage {
    match name.strip_prefix("synth:") {
        Some(spec) => {
            let (size, seed) = spec.split_once(':').unwrap();
            let (w, h) = size.split_once('x').unwrap();
            let (w, h) = (w.parse().unwrap(), h.parse().unwrap());
            RgbImage::new(w, h, synth(w, h, seed.parse().unwrap())).unwrap()
        }
        None => decode(&input(name), &DecodeOptions::default()).unwrap(),
    }
}
