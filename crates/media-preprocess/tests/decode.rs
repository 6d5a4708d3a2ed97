//! Decoding against `exif_transpose` and `convert('RGB')` of Pillow 13.0.0.

mod support;

use prefill_media_preprocess::image::{AlphaPolicy, DecodeOptions, decode};
use support::{golden, input, sha256};

#[test]
fn every_golden_file_decodes_to_pillows_bytes() {
    let goldens = golden("decoded.json");
    let mut checked = 0;
    for (name, expected) in goldens["files"].as_object().unwrap() {
        if !(name.ends_with(".png") || name.ends_with(".jpg")) {
            continue;
        }
        let bytes = input(name);
        let image = decode(&bytes, &DecodeOptions::default()).unwrap();
        let size = serde_json::json!([image.width(), image.height()]);
        assert_eq!(size, expected["size"], "{name}");
        assert_eq!(sha256(image.data()), expected["sha256_rgb"], "{name}");
        if let Some(white) = expected["sha256_rgb_white_composite"].as_str() {
            let options = DecodeOptions::default().with_alpha(AlphaPolicy::White);
            let image = decode(&bytes, &options).unwrap();
            assert_eq!(sha256(image.data()), white, "{name} on white");
        }
        checked += 1;
    }
    assert!(checked >= 30, "only {checked} files");
}
