//! Files that lie, end early, or are not what they seem: each gives an error that names the
//! fact, or what Pillow would give.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(clippy::big_endian_bytes, reason = "PNG and JPEG are big endian")]

mod support;

use std::time::{Duration, Instant};

use prefill_media_preprocess::Error;
use prefill_media_preprocess::image::{
    DecodeOptions, Format, Gemma4ImageProcessor, Limits, QwenImageProcessor, RgbImage, decode,
};
use prefill_media_preprocess::video::{Animation, FrameSource};
use serde_json::json;
use support::{golden, input, synth};

fn try_decode(bytes: &[u8]) -> Result<RgbImage, Error> {
    decode(bytes, &DecodeOptions::default())
}

/// A file with its declared width and height replaced.
fn with_size(name: &str, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = input(name);
    match name.rsplit('.').next().unwrap() {
        "png" => {
            bytes[16..20].copy_from_slice(&width.to_be_bytes());
            bytes[20..24].copy_from_slice(&height.to_be_bytes());
            let crc = crc32(&bytes[12..29]);
            bytes[29..33].copy_from_slice(&crc.to_be_bytes());
        }
        "jpg" => {
            let frame = bytes
                .windows(2)
                .position(|w| matches!(w, [0xff, 0xc0 | 0xc2]))
                .unwrap();
            bytes[frame + 5..frame + 7].copy_from_slice(&(height as u16).to_be_bytes());
            bytes[frame + 7..frame + 9].copy_from_slice(&(width as u16).to_be_bytes());
        }
        "gif" => {
            bytes[6..8].copy_from_slice(&(width as u16).to_le_bytes());
            bytes[8..10].copy_from_slice(&(height as u16).to_le_bytes());
        }
        "bmp" => {
            bytes[18..22].copy_from_slice(&width.to_le_bytes());
            bytes[22..26].copy_from_slice(&height.to_le_bytes());
        }
        other => panic!("no sizes for {other}"),
    }
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

#[test]
fn bombs_are_refused_before_anything_is_allocated() {
    let start = Instant::now();
    for (name, width, height) in [
        ("l.png", 2_000_000_000, 2_000_000_000),
        ("p.png", 60_000, 60_000),
        ("j420.jpg", 65_500, 65_500),
        ("j420_prog.jpg", 65_500, 65_500),
        ("p.gif", 65_535, 65_535),
        ("rgb.bmp", 100_000, 100_000),
    ] {
        let error = try_decode(&with_size(name, width, height)).unwrap_err();
        let named = matches!(&error, Error::Limit { found, limit, .. } if found > limit);
        assert!(named, "{name}: {error}");
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn limits_are_those_configured() {
    let small = Limits {
        max_pixels: 64 * 48 - 1,
        ..Limits::default()
    };
    let options = DecodeOptions::default().with_limits(small);
    for name in [
        "rgba.png",
        "lossless.webp",
        "p.gif",
        "rgb.bmp",
        "rgb.tif",
        "anim.png",
    ] {
        let error = decode(&input(name), &options).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Limit {
                    what: "pixels",
                    found: 3072,
                    limit: 3071
                }
            ),
            "{name}: {error}"
        );
    }
    assert!(
        Animation::new(input("anim.gif"), small)
            .unwrap()
            .frame(0)
            .is_err()
    );
    let bytes = Limits {
        max_decoded_bytes: 20_000,
        ..Limits::default()
    };
    let error = decode(
        &input("j420.jpg"),
        &DecodeOptions::default().with_limits(bytes),
    );
    assert!(matches!(
        error,
        Err(Error::Limit {
            what: "decoded bytes",
            ..
        })
    ));
    let hasty = Limits {
        max_time: Duration::ZERO,
        ..Limits::default()
    };
    assert!(matches!(
        Animation::new(input("anim.png"), hasty),
        Err(Error::TimeLimit { .. })
    ));
    let options = DecodeOptions::default().with_limits(hasty);
    for name in [
        "rgba.png",
        "lossless.webp",
        "p.gif",
        "rgb.bmp",
        "rgb.tif",
        "j420.jpg",
    ] {
        let error = decode(&input(name), &options).unwrap_err();
        assert!(matches!(error, Error::TimeLimit { .. }), "{name}: {error}");
    }
}

#[test]
fn images_without_pixels_are_named() {
    for name in ["l.png", "j420.jpg", "rgb.bmp"] {
        for (width, height) in [(0, 48), (64, 0), (0, 0)] {
            let error = try_decode(&with_size(name, width, height)).unwrap_err();
            let named = matches!(error, Error::EmptyImage { .. } | Error::Malformed { .. });
            assert!(named, "{name} {width}x{height}: {error}");
        }
    }
    assert!(matches!(
        RgbImage::new(0, 1, vec![]),
        Err(Error::EmptyImage {
            width: 0,
            height: 1
        })
    ));
    let short = RgbImage::new(2, 2, vec![0; 11]).unwrap_err();
    assert!(
        matches!(
            short,
            Error::BufferLength {
                expected: 12,
                found: 11,
                ..
            }
        ),
        "{short}"
    );
}

/// Every golden file, cut at every byte: an error, or the whole picture where only what
/// follows it is missing. (Compared with Pillow cut by cut in the long mode.)
#[test]
fn truncated_files_are_errors() {
    let goldens = golden("decoded.json");
    for name in goldens["files"].as_object().unwrap().keys() {
        let bytes = input(name);
        let whole = try_decode(&bytes).unwrap();
        // All of the small ones, a sample of the rest.
        let step = (bytes.len() / 2000).max(1);
        for cut in (0..bytes.len())
            .step_by(step)
            .chain(bytes.len() - 20..bytes.len())
        {
            if let Ok(image) = try_decode(&bytes[..cut]) {
                assert_eq!(image.data().len(), whole.data().len(), "{name} at {cut}");
                let tail = bytes.len() - cut;
                // What may follow the pixels: end markers, padding, further frames, and, in
                // TIFF, tags that nothing here depends on.
                let animated = name.starts_with("anim");
                assert!(
                    image == whole && (animated || tail < 200),
                    "{name} less {tail}"
                );
            }
        }
    }
}

#[test]
fn flipped_bytes_never_panic_and_never_change_the_size_quietly() {
    let goldens = golden("decoded.json");
    for (seed, name) in goldens["files"].as_object().unwrap().keys().enumerate() {
        let bytes = input(name);
        let mut state = seed as u32 + 1;
        for _ in 0..40 {
            let mut broken = bytes.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = state as usize % broken.len();
                broken[at] ^= (state >> 24) as u8 | 1;
            }
            let limits = Limits {
                max_pixels: 1 << 22,
                ..Limits::default()
            };
            let _ = decode(&broken, &DecodeOptions::default().with_limits(limits));
            let _ = Animation::new(broken, limits).map(|mut video| video.frame(1));
        }
    }
}

#[test]
fn contents_decide_not_names() {
    // A polyglot is what its first bytes say; what follows the end is not looked at.
    let mut polyglot = input("rgba.png");
    let plain = try_decode(&polyglot).unwrap();
    polyglot.extend(input("j420.jpg"));
    assert_eq!(try_decode(&polyglot).unwrap(), plain);
    let mut polyglot = input("j444.jpg");
    let plain = try_decode(&polyglot).unwrap();
    polyglot.extend(b"PK\x03\x04 and a ZIP archive");
    assert_eq!(try_decode(&polyglot).unwrap(), plain);

    for bytes in [
        &b""[..],
        b"\xff",
        b"GIF",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7",
    ] {
        let error = try_decode(bytes).unwrap_err();
        assert!(matches!(&error, Error::UnknownFormat { head } if bytes.starts_with(head)));
    }
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    let error = try_decode(heic).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unsupported {
                format: Format::Heic,
                ..
            }
        ),
        "{error}"
    );
    let avif = b"\0\0\0\x18ftypavif\0\0\0\0mif1avif";
    assert!(matches!(
        try_decode(avif),
        Err(Error::Unsupported {
            format: Format::Avif,
            ..
        })
    ));
}

/// 1xN, Nx1, 3 pixels high, with the sizes of transformers 5.24.0: mlx-vlm 0.6.15 fails on them or takes them for channels.
#[test]
fn thin_images_follow_the_rule() {
    let gemma = Gemma4ImageProcessor::default();
    let config = json!({"min_pixels": 65_536, "max_pixels": 16_777_216, "patch_size": 16});
    let qwen = QwenImageProcessor::from_json(&config).unwrap();
    for (w, h, gemma_size, qwen_size) in [
        (1, 500, Some((48, 13_440)), None),
        (500, 1, Some((13_440, 48)), None),
        (700, 3, Some((12_240, 48)), None),
        (1, 1, Some((768, 768)), Some((256, 256))),
        (200, 1, Some((11_328, 48)), Some((3648, 32))),
        (201, 1, Some((11_376, 48)), None),
    ] {
        let image = RgbImage::new(w, h, synth(w, h, 1)).unwrap();
        assert_eq!(gemma.target_size(w, h).ok(), gemma_size, "{w}x{h}");
        let prepared = gemma.prepare(&image).unwrap();
        assert_eq!(
            (prepared.width() as u32, prepared.height() as u32),
            gemma_size.unwrap()
        );
        match qwen.prepare(&image) {
            Ok(prepared) => {
                let [_, rows, columns] = prepared.grid_thw;
                assert_eq!(
                    Some((columns as u32 * 16, rows as u32 * 16)),
                    qwen_size,
                    "{w}x{h}"
                );
            }
            Err(error) => assert!(qwen_size.is_none(), "{w}x{h}: {error}"),
        }
    }
}
