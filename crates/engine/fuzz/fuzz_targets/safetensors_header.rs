//! Any bytes as a safetensors file: an error or a sound header, never a panic or an
//! allocation beyond the file's size.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = prefill_engine::fuzzing::safetensors_header(file);
});
