//! The fuzz targets as plain functions: `tests/fuzz.rs` replays them on stable Rust, `fuzz/`
//! runs them under cargo-fuzz.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use prefill_kv_store::vfs::MemoryVfs;
use prefill_kv_store::{DType, Key, Kind, Namespace, Options, Record, Snapshot, Store, View};

/// The manifest and the pack of the sample have this id.
pub const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn options() -> Options {
    Options {
        free_floor: 0,
        threads: 1,
        limit: 64 << 20,
        repeat_limit: 1 << 20,
        ..Default::default()
    }
}

pub fn space() -> Namespace {
    Namespace::new("fuzz").unwrap()
}

fn files(manifest: &[u8], pack: &[u8]) -> MemoryVfs {
    MemoryVfs::with_contents(BTreeMap::from([
        (format!("{ID}.commit"), manifest.to_vec()),
        (format!("{ID}.pack"), pack.to_vec()),
    ]))
}

/// A store with a record and a snapshot in it, as it lies in its folder.
pub fn sample() -> MemoryVfs {
    let vfs = MemoryVfs::new();
    let store = Store::with_vfs(Arc::new(vfs.clone()), options(), false).unwrap();
    let data: Vec<u8> = (0..600u32).map(|n| (n % 251) as u8).collect();
    let view = View::contiguous(&data, DType::Bf16, &[3, 25, 4]).unwrap();
    let mut batch = prefill_kv_store::Batch::new();
    let record = Record::new(Key::new([1; 32]), Kind::Rows).parent(Key::new([2; 32]));
    batch.push(record.tensor("k", view.clone()).metadata(b"meta").cost(2.0));
    store.put(&space(), &batch).unwrap();
    let snapshot = Snapshot::new("s")
        .growing("k", view.clone(), 1, 8)
        .tensor("x", view);
    store.save(&space(), &snapshot.metadata(b"tokens")).unwrap();
    vfs
}

/// Does everything that reads with a store over these files, then writes, collects and wipes.
/// Whatever the files are, nothing may panic, and only what has its hash may come back.
fn use_everything(vfs: MemoryVfs) {
    let store = Store::with_vfs(Arc::new(vfs), options(), false).unwrap();
    for listed in store.list() {
        let space = Namespace::new(&listed.record.namespace).unwrap();
        let _ = store.read(&space, &listed.record.key);
        if let Some(snapshot) = listed.snapshot {
            let _ = store.load(&space, &snapshot.name);
            let mut out = Vec::new();
            let what = prefill_kv_store::Export::Snapshot(&snapshot.name);
            let _ = store.export(&space, what, &mut out, &mut |_, _| true);
        }
    }
    store.verify(&mut |_, _| true).unwrap();
    let data = [7; 100];
    let view = View::contiguous(&data, DType::U8, &[100]).unwrap();
    let saved = store.save(&space(), &Snapshot::new("after").tensor("x", view));
    if saved.is_ok() {
        assert_eq!(
            store.load(&space(), "after").unwrap().bytes,
            [data.to_vec()]
        );
    }
    store.collect().unwrap();
    store.wipe_all().unwrap();
    store.remove_foreign().unwrap();
    assert_eq!(store.stats().used_bytes, 0);
}

/// A manifest of arbitrary bytes, as they are and with its checksum put right, over a pack of
/// zeros that is long enough for most.
pub fn manifest(bytes: &[u8]) {
    let pack = vec![0; 64 << 10];
    use_everything(files(bytes, &pack));
    let mut sealed = bytes.to_vec();
    reseal(&mut sealed);
    use_everything(files(&sealed, &pack));
}

/// A pack of arbitrary bytes, under the manifest of the sample.
pub fn pack(bytes: &[u8]) {
    let contents = sample().contents();
    // The snapshot's: names are random, and each run must see the same.
    let (name, good) = contents
        .iter()
        .filter(|(name, _)| name.get(32..) == Some(".pack"))
        .max_by_key(|(_, pack)| pack.len())
        .unwrap();
    let manifest = contents[&name.replace(".pack", ".commit")].clone();
    let id = name.strip_suffix(".pack").unwrap();
    let vfs = MemoryVfs::with_contents(BTreeMap::from([
        (format!("{id}.commit"), manifest),
        (format!("{id}.pack"), bytes.to_vec()),
    ]));
    let store = Store::with_vfs(Arc::new(vfs.clone()), options(), false).unwrap();
    let sound = bytes.get(..good.len()) == Some(good);
    let read = store
        .list()
        .iter()
        .all(|l| store.read(&space(), &l.record.key).is_ok());
    assert!(!store.list().is_empty() || bytes.len() < good.len() || !sound);
    if !sound && !store.list().is_empty() {
        assert!(!read, "other bytes were served");
    }
    use_everything(vfs);
}

/// An export of arbitrary bytes, as they are and with the checksum of its manifest put right.
pub fn export(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if let Some(len) = bytes.get(16..24) {
        let len = u64::from_le_bytes(len.try_into().unwrap());
        let end = 32u64.saturating_add(len).min(bytes.len() as u64) as usize;
        reseal(&mut sealed[32.min(end)..end]);
    }
    for bytes in [bytes, &sealed] {
        let store = Store::in_memory(options()).unwrap();
        let mut input = bytes;
        let imported = store.import(&space(), &mut input, &mut |_, _| true);
        if imported.is_ok() {
            assert!(store.verify(&mut |_, _| true).unwrap().is_sound());
        }
        for listed in store.list() {
            if let Some(snapshot) = listed.snapshot {
                // Only whole snapshots are let in; their shapes may still not fit their blocks.
                let _ = store.load(&space(), &snapshot.name);
            }
        }
    }
}

/// Puts the checksum of a manifest right (docs/format.md, section 2).
pub fn reseal(manifest: &mut [u8]) {
    if manifest.len() >= 128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&manifest[..96]).update(&manifest[128..]);
        let sum = hasher.finalize();
        manifest[96..128].copy_from_slice(sum.as_bytes());
    }
}
