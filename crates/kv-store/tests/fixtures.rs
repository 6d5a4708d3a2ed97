//! Stores of every released version of the format are read for ever after.
//!
//! `cargo test -p prefill-kv-store --test fixtures -- --ignored` writes the present version's
//! fixture anew, which is only right before its release.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use prefill_kv_store::{Batch, DType, Kind, Layout, Record, Snapshot, Store, View};
use support::{check_noise, key, noise, options, put_noise, space};

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{version}"))
}

fn transposed(data: &[u8]) -> View<'_> {
    let layout = Layout::contiguous(&[20, 30])
        .unwrap()
        .permute(&[1, 0])
        .unwrap();
    View::new(data, DType::F32, layout).unwrap()
}

#[test]
#[ignore = "writes the fixture"]
fn write() {
    let store = Store::open(fixture(1), options()).unwrap();
    put_noise(&store, 1, 1000).unwrap();
    let data = noise(2, 2400);
    let mut batch = Batch::new();
    let record = Record::new(key(2), Kind::State)
        .parent(key(1))
        .cost(2.5)
        .metadata(b"delta");
    let none = View::contiguous(&[], DType::U8, &[0, 3]).unwrap();
    batch.push(record.tensor("t", transposed(&data)).tensor("none", none));
    batch.push(Record::new(key(3), Kind::Window).tensor("x", transposed(&data)));
    store.put(&space(), &batch).unwrap();
    let growing = View::contiguous(&data, DType::Bf16, &[1, 2, 60, 10]).unwrap();
    let snapshot = Snapshot::new("s")
        .metadata(b"ids")
        .growing("k", growing, 2, 32);
    store
        .save(&space(), &snapshot.tensor("state", transposed(&data)))
        .unwrap();
    // A second generation, and a hole in its pack.
    store.remove(&space(), &[key(3)]).unwrap();
}

#[test]
fn version_1_is_read() {
    // A copy, since opening takes a lock and may tidy up.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("v1")).unwrap();
    for part in ["lock", "v1"] {
        let from = fixture(1).join(part);
        let files = if from.is_dir() {
            std::fs::read_dir(from)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect()
        } else {
            vec![from]
        };
        for file in files {
            let to = folder.path().join(file.strip_prefix(fixture(1)).unwrap());
            std::fs::copy(file, to).unwrap();
        }
    }
    let reader = Store::open_read_only(folder.path(), options()).unwrap();
    let writer = Store::open(folder.path(), options()).unwrap();
    for store in [reader, writer] {
        assert!(check_noise(&store, 1) && !check_noise(&store, 3));
        let data = noise(2, 2400);
        let record = store.read(&space(), &key(2)).unwrap();
        assert_eq!(
            record.tensor(0).unwrap().to_vec(),
            transposed(&data).to_vec()
        );
        assert_eq!(record.named("none").unwrap().shape(), [0, 3]);
        let info = record.info();
        assert_eq!(
            (info.kind, info.parent, info.cost),
            (Kind::State, Some(key(1)), 2.5)
        );
        assert_eq!(info.metadata, b"delta");
        let loaded = store.load(&space(), "s").unwrap();
        assert_eq!(loaded.bytes, [data.clone(), transposed(&data).to_vec()]);
        assert_eq!(loaded.metadata, b"ids");
        assert!(store.verify(&mut |_, _| true).unwrap().is_sound());
    }
}
