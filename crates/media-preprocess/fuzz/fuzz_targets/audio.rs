#![no_main]

#[path = "../../tests/fuzz_targets/mod.rs"]
#[allow(dead_code)]
mod targets;

// A panic that the crate catches, of a decoder that isn't ours, is an error and not a crash; the
// hook of libfuzzer-sys would abort. One that isn't caught still aborts.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| ())),
    |data: &[u8]| targets::audio(data)
);
