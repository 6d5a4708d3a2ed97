//! The Qwen models against mlx-vlm on the same libmlx and the same BLAS, bit for bit.
//!
//! mlx-vlm runs in Python: `PREFILL_REFERENCE_PYTHON` names an interpreter that has
//! `tests/reference/requirements.txt`. Run with `--run-ignored all` (nextest) or `--ignored`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod qwen_support;

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use prefill_engine::WorkingType;
use prefill_test_support::{Golden, StoredTensor, reference_dir};
use qwen_support::stored::values;
use qwen_support::{load, logits};

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

fn mlx_vlm(folder: &Path, model: &str, case: &str) -> Vec<f32> {
    let python = env::var_os("PREFILL_REFERENCE_PYTHON").unwrap();
    let out = folder.join("mlx-vlm.safetensors");
    let status = Command::new(python)
        .current_dir(reference_dir())
        .env("LD_PRELOAD", blas())
        .arg("mlx_vlm_bits.py")
        .arg(folder)
        .arg(reference_dir().join(format!("goldens/{model}/{case}.json")))
        .arg(&out)
        .status()
        .unwrap();
    assert!(status.success());
    values(&StoredTensor::read_file(&out).unwrap()[0])
}

fn check(model: &str, cases: &[&str]) {
    for case in cases {
        let golden = Golden::read(model, case).unwrap();
        let folder = golden.checkpoint().unwrap().build().unwrap();
        let mut loaded = load(folder.path(), &golden, WorkingType::AsStored);
        if model.starts_with("qwen3_5") {
            // The two divide longer chunks of the delta rule differently.
            loaded.model = loaded.model.with_prefill_chunk(NonZeroUsize::MIN);
        }
        let ours = logits(&loaded, &golden);
        let theirs = mlx_vlm(folder.path(), model, case);
        assert_eq!(ours.len(), theirs.len());
        let differ = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits();
        let count = ours.iter().zip(&theirs).filter(differ).count();
        assert_eq!(count, 0, "{model} {case}: of {} logits", ours.len());
    }
}

#[test]
#[ignore = "runs mlx-vlm in Python"]
fn qwen3_vl() {
    check(
        "qwen3_vl",
        &[
            "text",
            "longtext",
            "image_png",
            "three_images",
            "video_odd",
            "image_video",
        ],
    );
}

/// (mlx-vlm takes no picture beside a video here.)
#[test]
#[ignore = "runs mlx-vlm in Python"]
fn qwen3_vl_moe() {
    check(
        "qwen3_vl_moe",
        &["text", "longtext", "image_png", "three_images", "video_odd"],
    );
}

/// (mlx-vlm takes no picture beside a video here.)
#[test]
#[ignore = "runs mlx-vlm in Python"]
fn qwen3_5() {
    check(
        "qwen3_5",
        &[
            "ids_1",
            "ids_3",
            "text",
            "longtext",
            "three_images",
            "video_odd",
        ],
    );
}

/// (mlx-vlm takes no picture beside a video here.)
#[test]
#[ignore = "runs mlx-vlm in Python"]
fn qwen3_5_moe() {
    check("qwen3_5_moe", &["ids_2", "text", "image_png", "video_odd"]);
}
