//! The stored corpus of the fuzz targets in `fuzz/`, replayed on any toolchain. A file's name
//! says what must come of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::path::Path;

use prefill_engine::fuzzing;

#[test]
fn safetensors_header() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/safetensors_header");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let sound = fuzzing::safetensors_header(&bytes);
        assert_eq!(sound, name.starts_with("sound-"), "{name}");
        // Whatever is cut off or changed may be refused, but never more than that.
        for cut in 0..bytes.len() {
            let _ = fuzzing::safetensors_header(&bytes[..cut]);
            let mut changed = bytes.clone();
            changed[cut] ^= 0x20;
            let _ = fuzzing::safetensors_header(&changed);
        }
        replayed += 1;
    }
    assert!(replayed >= 10);
}
