//! Replays stored inputs through the fuzz targets on stable Rust: the corpus, the goldens, and
//! what a simple mutator makes of both.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod fuzz_targets;

use std::fs;
use std::path::Path;

/// Every file under a folder of `tests`.
fn files(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let files: Vec<_> = paths
        .iter()
        .filter(|path| path.is_file())
        .map(fs::read)
        .collect();
    assert!(!files.is_empty());
    files.into_iter().map(Result::unwrap).collect()
}

/// `rounds` broken copies of each file, some cut, some with bytes changed, moved or repeated.
fn mutated(files: &[Vec<u8>], rounds: u32, run: fn(&[u8])) {
    let mut state = 0x9e37_79b9_u32;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize
    };
    for file in files {
        for _ in 0..rounds {
            let mut bytes = file.clone();
            for _ in 0..=next() % 4 {
                if bytes.is_empty() {
                    break;
                }
                // Headers are where the decisions are.
                let at = if next() % 2 == 0 {
                    next() % bytes.len().min(64)
                } else {
                    next() % bytes.len()
                };
                match next() % 6 {
                    0 => bytes.truncate(at),
                    1 => bytes[at] ^= 1 << (next() % 8),
                    2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next() % 5],
                    3 => bytes.insert(at, next() as u8),
                    4 => drop(bytes.remove(at)),
                    _ => {
                        let end = (at + next() % 32).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            run(&bytes);
        }
    }
}

/// More rounds with `PREFILL_FUZZ_ROUNDS=1000`, say.
fn rounds(default: u32) -> u32 {
    std::env::var("PREFILL_FUZZ_ROUNDS").map_or(default, |rounds| rounds.parse().unwrap())
}

#[test]
fn decode() {
    for file in files("corpus/decode") {
        fuzz_targets::decode(&file);
    }
    mutated(&files("goldens/inputs"), rounds(25), fuzz_targets::decode);
}

#[test]
fn animation() {
    for file in files("corpus/animation") {
        fuzz_targets::animation(&file);
    }
    mutated(
        &files("goldens/animations"),
        rounds(25),
        fuzz_targets::animation,
    );
}

#[test]
fn audio() {
    for file in files("corpus/audio") {
        fuzz_targets::audio(&file);
    }
    mutated(
        &files("goldens/audio/formats"),
        rounds(25),
        fuzz_targets::audio,
    );
}

#[test]
fn config() {
    let files = files("corpus/config");
    for file in &files {
        fuzz_targets::config(file);
    }
    mutated(&files, rounds(300), fuzz_targets::config);
}

#[test]
fn resize() {
    let files = files("corpus/resize");
    for file in &files {
        fuzz_targets::resize(file);
    }
    mutated(&files, rounds(40), fuzz_targets::resize);
}
