//! Replays the fuzz targets over a small corpus (`tests/corpus`) and over mutations of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod targets;

use std::fs;
use std::path::Path;

fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(kind);
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs a target over its corpus, and over changed, cut and joined copies of it.
fn replay(kind: &str, target: fn(&[u8]), rounds: usize) {
    let corpus = corpus(kind);
    assert!(corpus.len() >= 4);
    for bytes in &corpus {
        target(bytes);
    }
    // Xorshift, from the same seed always.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..rounds {
        let mut bytes = corpus[random(corpus.len())].clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at),
                1 => {
                    let other = &corpus[random(corpus.len())];
                    let from = random(other.len());
                    let to = (from + random(40)).min(other.len());
                    bytes
                        .splice(at..at, other[from..to].iter().copied())
                        .for_each(drop);
                }
                2 => {
                    let to = (at + random(12)).min(bytes.len());
                    bytes.drain(at..to);
                }
                3 if at < bytes.len() => {
                    let byte = b"{}[]%<>\"\\|:,0"[random(13)];
                    bytes[at] = byte;
                }
                _ => {
                    let other = &corpus[random(corpus.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[random(other.len())..]);
                }
            }
        }
        target(&bytes);
    }
}

#[test]
fn messages() {
    replay("messages", targets::messages, 4000);
}

#[test]
fn templates() {
    replay("template", targets::template, 4000);
}

#[test]
fn answers() {
    replay("answer", targets::answer, 4000);
}
