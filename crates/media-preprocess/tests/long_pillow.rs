//! 2,000 random resizes against a live Pillow and torchvision.
//!
//! `PREFILL_PYTHON=.venv/bin/python cargo test -p prefill-media-preprocess --release
//! --test long_pillow -- --ignored`, with pillow 13.0.0, numpy, torch and torchvision there.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
#[ignore = "needs a Python with Pillow and torchvision, named by PREFILL_PYTHON"]
fn two_thousand_random_resizes() {
    let python = std::env::var("PREFILL_PYTHON").expect("PREFILL_PYTHON");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut child = Command::new(python)
        .arg("tests/reference/image/resize_cases.py")
        .args(["2000", "2", "1200"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut checked = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        support::check_resize_case(&serde_json::from_str(&line.unwrap()).unwrap());
        checked += 1;
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(checked, 2000);
}
