#![no_main]

#[path = "../../tests/fuzz_targets/mod.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::config(data));
