//! The Qwen models against mlx-vlm on the same libmlx and the same BLAS, bit for bit.
//!
//! mlx-vlm runs in Python: `PREFILL_REFERENCE_PYTHON` names an interpreter that has
//! `tests/reference/requirements.txt`. Run with `--run-ignored all` (nextest) or `--ignored`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod bits_support;
mod parity_support;

use std::num::NonZeroUsize;

use parity_support::{load, logits};
use prefill_engine::WorkingType;
use prefill_test_support::Golden;

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
        let theirs = bits_support::logits("mlx_vlm_bits.py", folder.path(), model, case);
        bits_support::check(&format!("{model} {case}"), &ours, &theirs);
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
