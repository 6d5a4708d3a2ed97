//! What the golden tests share.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use prefill_media_preprocess::image::resize::{Backend, Filter, ImageView, PassOrder, Resizer};
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
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
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
    synth_channels(width, height, 3, seed)
}

pub(crate) fn synth_channels(width: u32, height: u32, channels: u32, seed: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity((width * height * channels) as usize);
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
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

/// Repeats a resize of `tests/reference/image/resize_cases.py` and compares.
pub(crate) fn check_resize_case(case: &Value) {
    let number = |key: &str| case[key].as_u64().unwrap() as u32;
    let channels = match case["mode"].as_str().unwrap() {
        "L" => 1,
        "RGB" => 3,
        _ => 4,
    };
    let filter = match case["filter"].as_str().unwrap() {
        "nearest" => Filter::Nearest,
        "lanczos" => Filter::Lanczos,
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        "box" => Filter::Box,
        _ => Filter::Hamming,
    };
    let backend = match case["backend"].as_str().unwrap() {
        "torchvision" => Backend::Torchvision,
        _ => Backend::Pillow(PassOrder::V13),
    };
    let (w, h) = (number("w"), number("h"));
    let pixels = synth_channels(w, h, channels, number("seed"));
    let source = ImageView::new(w, h, channels as usize, &pixels).unwrap();
    let resizer = Resizer {
        filter,
        backend,
        ..Resizer::default()
    };
    let out = resizer
        .resize(source, number("out_w"), number("out_h"))
        .unwrap();
    assert_eq!(sha256(&out), case["sha256"], "{case}");
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
