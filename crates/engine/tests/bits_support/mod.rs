//! Runs a reference in Python with the BLAS of this process, for comparisons bit for bit.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use prefill_test_support::{StoredTensor, reference_dir};

/// The BLAS that this process has loaded, for another process to use instead of its own.
fn blas() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let path = paths.find(|path| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.contains("blas"))
    });
    path.unwrap().to_owned()
}

/// The logits that `script` writes for a golden and the checkpoint in `folder`.
pub(crate) fn logits(script: &str, folder: &Path, model: &str, case: &str) -> Vec<f32> {
    let python = env::var_os("PREFILL_REFERENCE_PYTHON").unwrap();
    let out = folder.join("reference.safetensors");
    let status = Command::new(python)
        .current_dir(reference_dir())
        .env("LD_PRELOAD", blas())
        .arg(script)
        .arg(folder)
        .arg(reference_dir().join(format!("goldens/{model}/{case}.json")))
        .arg(&out)
        .status()
        .unwrap();
    assert!(status.success());
    let bytes = &StoredTensor::read_file(&out).unwrap()[0].bytes;
    let values = bytes.chunks(4);
    values
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

/// That two runs gave the same bits.
pub(crate) fn check(name: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    let differ = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits();
    let count = ours.iter().zip(theirs).filter(differ).count();
    assert_eq!(count, 0, "{name}: of {} logits", ours.len());
}
