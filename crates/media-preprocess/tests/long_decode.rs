//! 250 files and 67,000 shortened ones against a live Pillow.
//!
//! `PREFILL_PYTHON=.venv/bin/python cargo test -p prefill-media-preprocess --release
//! --test long_decode -- --ignored`, with pillow 13.0.0 and numpy there.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use prefill_media_preprocess::image::{AlphaPolicy, DecodeOptions, decode};
use serde_json::Value;
use support::sha256;

#[test]
#[ignore = "needs a Python with Pillow, named by PREFILL_PYTHON"]
fn decoding_and_failing_like_pillow() {
    let python = std::env::var("PREFILL_PYTHON").expect("PREFILL_PYTHON");
    let folder = std::env::temp_dir().join(format!("prefill-decode-{}", std::process::id()));
    let status = Command::new(python)
        .arg("tests/reference/image/decode_cases.py")
        .arg(&folder)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let mut surprises = Vec::new();
    let mut tally: BTreeMap<(String, bool, Verdict), usize> = BTreeMap::new();
    for line in fs::read_to_string(folder.join("cases.jsonl"))
        .unwrap()
        .lines()
    {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["file"].as_str().unwrap();
        let bytes = fs::read(folder.join(name)).unwrap();
        let len = case["cut"].as_u64().map_or(bytes.len(), |cut| cut as usize);
        let missing = bytes.len() - len;
        let (_, kind) = name.rsplit_once('.').unwrap();
        let verdict = compare(&bytes[..len], &case);
        let allowed = match verdict {
            Verdict::Same => true,
            // zune-jpeg inside the TIFF decoder.
            Verdict::Differs => name.ends_with("_jpeg.tif"),
            // All pixels are there; Pillow asks for the end code too.
            Verdict::Lenient => kind == "gif" && missing <= 3,
            // Without end chunk and checksums, the last row's padding, the link to a next page;
            // fax Group 3, palettes.
            Verdict::Strict => {
                matches!(name, "group3.tif" | "palette.tif")
                    || (kind == "png" && missing <= 24)
                    || (kind == "bmp" && missing <= 3)
                    || (kind == "tif" && missing <= 4)
            }
        };
        if !allowed {
            surprises.push(format!("{verdict:?}: {name} less {missing} bytes"));
        }
        *tally
            .entry((kind.to_owned(), missing > 0, verdict))
            .or_default() += 1;
    }
    fs::remove_dir_all(&folder).unwrap();
    for ((kind, shortened, verdict), count) in &tally {
        println!("{kind}, shortened {shortened}, {verdict:?}: {count}");
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}

/// How we and Pillow compare on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The same pixels, or an error from both.
    Same,
    /// Other pixels.
    Differs,
    /// Only Pillow fails.
    Lenient,
    /// Only we fail.
    Strict,
}

fn compare(bytes: &[u8], case: &Value) -> Verdict {
    for (alpha, key) in [(AlphaPolicy::Drop, "rgb"), (AlphaPolicy::White, "white")] {
        let options = DecodeOptions::default().with_alpha(alpha);
        match (decode(bytes, &options), case[key].as_str()) {
            (Ok(image), Some(expected)) if sha256(image.data()) != expected => {
                return Verdict::Differs;
            }
            (Ok(_), None) => return Verdict::Lenient,
            (Err(_), Some(_)) => return Verdict::Strict,
            _ => {}
        }
    }
    Verdict::Same
}
