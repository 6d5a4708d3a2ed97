//! Tells the crate whether the JPEG decoder was built with SIMD.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(mozjpeg_simd)");
    // mozjpeg-sys publishes its include folders to those who depend on it; the
    // configuration that it compiled with is in one of them. It drops SIMD, with no more
    // than a warning, where nasm is missing on x86.
    let Some(include) = std::env::var_os("DEP_JPEG_INCLUDE") else {
        return;
    };
    let simd = std::env::split_paths(&include).any(|folder| has_simd(&folder.join("jconfig.h")));
    if simd {
        println!("cargo::rustc-cfg=mozjpeg_simd");
    }
}

fn has_simd(header: &Path) -> bool {
    std::fs::read_to_string(header).is_ok_and(|text| {
        text.lines()
            .any(|line| line.split_whitespace().eq(["#define", "WITH_SIMD", "1"]))
    })
}
