//! The store against its peers: `cargo run --release -- FOLDER [PYTHON] [--only NAME]`.
//!
//! FOLDER is made, filled and removed; it decides which disk is measured. PYTHON is an
//! interpreter with mlx-lm. Every comparison alternates its subjects for ten rounds in one
//! process and reports medians and the median of the rounds' ratios.

mod bounds;
mod mlx;
mod ours;
mod peers;
mod seeds;
mod timing;

use std::path::PathBuf;

use timing::Table;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let only = args.iter().position(|a| a == "--only").map(|i| {
        args.remove(i);
        args.remove(i)
    });
    let mut args = args.into_iter();
    let folder = PathBuf::from(args.next().expect("usage: FOLDER [PYTHON] [--only NAME]"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut python = args.next().map(|python| mlx::Mlx::start(&python));
    let wanted = |name: &str| only.as_deref().is_none_or(|o| name.contains(o));
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(10);
    let cases = [("write-470MiB", 4096), ("write-300-tokens", 300)];
    for (name, tokens) in cases {
        if wanted(name) {
            writes(name, tokens, rounds, &folder, &mut python);
        }
    }
    if wanted("read") {
        reads(rounds, &folder, &mut python);
    }
    if wanted("reput") {
        reput(rounds, &folder);
    }
    if wanted("turn") {
        turn(&folder);
    }
    if wanted("many") {
        many(&folder);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn writes(
    name: &str,
    tokens: usize,
    rounds: usize,
    folder: &std::path::Path,
    python: &mut Option<mlx::Mlx>,
) {
    let cache = ours::Cache::new(tokens);
    let mut table = Table::new(name, cache.bytes());
    for round in 0..rounds {
        let at = |kind: &str| folder.join(format!("{kind}-{round}"));
        let subjects: Vec<(&str, Box<dyn FnOnce() + '_>)> = vec![
            (
                "seeds",
                Box::new(|| seeds::write(&at("seeds"), &cache, round)),
            ),
            (
                "ours, put, 1 thread",
                Box::new(|| ours::put(&at("put1"), &cache, 1)),
            ),
            (
                "ours, put, 2 threads",
                Box::new(|| ours::put(&at("put2"), &cache, 2)),
            ),
            (
                "ours, save, 2 threads",
                Box::new(|| ours::save(&at("save2"), &cache, 2)),
            ),
            (
                "foyer insert, close, syncfs",
                Box::new(|| peers::foyer_write(&at("foyer"), &cache)),
            ),
            (
                "cacache write, syncfs",
                Box::new(|| peers::cacache_write(&at("cacache"), &cache)),
            ),
            (
                "plain write + fdatasync",
                Box::new(|| bounds::write(&at("plain"), &cache)),
            ),
        ];
        let n = subjects.len();
        let mut subjects: Vec<_> = subjects.into_iter().map(Some).collect();
        for i in 0..n {
            let (label, run) = subjects[(i + round) % n].take().unwrap();
            timing::warm_pages(folder, cache.bytes());
            table.time(label, run);
        }
        if let Some(python) = python {
            timing::warm_pages(folder, cache.bytes());
            let seconds = python.save(&at("mlx").with_extension("safetensors"), tokens);
            table.record("mlx-lm save + fsync", seconds, None);
        }
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap()
            } else {
                std::fs::remove_file(path).unwrap()
            }
        }
    }
    table.print(&["seeds", "mlx-lm save + fsync"]);
}

fn reads(rounds: usize, folder: &std::path::Path, python: &mut Option<mlx::Mlx>) {
    let cache = ours::Cache::new(4096);
    let mut table = Table::new(
        "read-470MiB, warm, verified, into memory that is reused",
        cache.bytes(),
    );
    let at = |kind: &str| folder.join(kind);
    seeds::write(&at("seeds"), &cache, 0);
    ours::put(&at("put"), &cache, 2);
    peers::foyer_write(&at("foyer"), &cache);
    peers::cacache_write(&at("cacache"), &cache);
    if let Some(python) = python {
        python.save(&at("mlx.safetensors"), 4096);
    }
    let mut memory = vec![1u8; cache.capacity_bytes()];
    let readers = [
        ours::Reader::new(&at("put"), &cache, 1),
        ours::Reader::new(&at("put"), &cache, 2),
    ];
    for round in 0..rounds {
        let order = [0, 1, 2, 3, 4, 5, 6];
        for i in 0..order.len() {
            match (i + round) % order.len() {
                0 => table.time("seeds", || seeds::read(&at("seeds"), &cache, &mut memory)),
                1 => table.time("ours, 1 thread", || readers[0].read(&mut memory)),
                2 => table.time("ours, 2 threads", || readers[1].read(&mut memory)),
                3 => table.time("foyer get after reopen", || {
                    peers::foyer_read(&at("foyer"), &cache)
                }),
                4 => table.time("cacache read", || {
                    peers::cacache_read(&at("cacache"), &cache)
                }),
                5 => table.time("BLAKE3 alone, 1 thread", || bounds::hash(&cache)),
                _ => table.time("memcpy", || cache.memcpy(&mut memory)),
            }
        }
        if let Some(python) = python {
            let seconds = python.load(&at("mlx.safetensors"));
            table.record("mlx-lm load + eval", seconds, None);
        }
    }
    readers[0].read(&mut memory);
    cache.check(&memory);
    table.print(&["seeds", "mlx-lm load + eval"]);
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::create_dir_all(folder).unwrap();
}

fn reput(rounds: usize, folder: &std::path::Path) {
    let cache = ours::Cache::new(4096);
    let mut table = Table::new("re-put of known keys", cache.bytes());
    for round in 0..rounds {
        let path = folder.join(format!("reput-{round}"));
        timing::warm_pages(folder, cache.bytes());
        table.time("first put", || ours::put(&path, &cache, 2));
        let store = ours::open(&path, 2);
        table.time("second put", || ours::put_in(&store, &cache));
    }
    table.print(&["first put"]);
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::create_dir_all(folder).unwrap();
}

fn turn(folder: &std::path::Path) {
    println!("\n## continued turns: bytes written over bytes of the new tokens");
    ours::turns(&folder.join("turns"));
}

fn many(folder: &std::path::Path) {
    println!("\n## a store of many blocks");
    for (blocks, batch) in [(10_000, 32), (100_000, 32), (10_000, 1)] {
        ours::many(
            &folder.join(format!("many-{blocks}-{batch}")),
            blocks,
            batch,
        );
    }
}
