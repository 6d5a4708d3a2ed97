//! Replays the fuzz targets over a small corpus and over mutations of it.

#![allow(clippy::unwrap_used)]

mod targets;

use prefill_kv_store::{Export, Options, Store};

/// The sample's files of one kind, and what a fuzzer once found (`tests/corpus`).
fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(kind);
    let stored = std::fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<Vec<u8>> = stored
        .map(|e| std::fs::read(e.unwrap().path()).unwrap())
        .collect();
    let vfs = targets::sample();
    let suffix = format!(".{kind}");
    let contents = vfs.contents();
    all.extend(
        contents
            .iter()
            .filter(|(n, _)| n.ends_with(&suffix))
            .map(|(_, b)| b.clone()),
    );
    if kind == "export" {
        let store = Store::with_vfs(std::sync::Arc::new(vfs), Options::default(), false).unwrap();
        let mut file = Vec::new();
        let what = Export::Snapshot("s");
        store
            .export(&targets::space(), what, &mut file, &mut |_, _| true)
            .unwrap();
        all.push(file);
    }
    assert!(!all.is_empty());
    all
}

/// The corpus as files, for cargo-fuzz to begin with.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn seeds() {
    for (kind, target) in [
        ("commit", "manifest"),
        ("pack", "pack"),
        ("export", "export"),
    ] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (n, bytes) in corpus(kind).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{n}")), bytes).unwrap();
        }
    }
}

/// Runs a target over a corpus, and over changed, cut and joined copies of it.
fn replay(kind: &str, target: fn(&[u8]), rounds: usize) {
    let corpus = corpus(kind);
    for bytes in &corpus {
        target(bytes);
    }
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..rounds {
        let mut bytes = corpus[random(corpus.len())].clone();
        for _ in 0..=random(4) {
            let at = random(bytes.len().min(4096));
            match random(6) {
                0 => bytes.truncate(at),
                1 => bytes.splice(at..at, [0, 0, 0, 0]).for_each(drop),
                2 if at + 8 <= bytes.len() => {
                    let value = [0, 1, u64::MAX, 1 << 31, 1 << 62, 255][random(6)];
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                3 => {
                    let other = &corpus[random(corpus.len())];
                    let from = random(other.len());
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
                _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                _ => {}
            }
        }
        target(&bytes);
    }
}

#[test]
fn manifests() {
    replay("commit", targets::manifest, 3000);
}

#[test]
fn packs() {
    replay("pack", targets::pack, 500);
}

#[test]
fn exports() {
    replay("export", targets::export, 3000);
}
