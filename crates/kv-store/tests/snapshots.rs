//! Snapshots and growing tensors, on disk and in memory.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use prefill_kv_store::{DType, Layout, Miss, Snapshot, Store, View};
use support::{noise, space};

on_every_store! {
    a_snapshot_comes_back
    equal_content_is_written_once
    a_grown_snapshot_adds_only_its_new_blocks
    a_continued_snapshot_reads_nothing_old
    a_continuation_of_nothing_is_whole
    replacing_and_removing_free_their_blocks
    a_strided_cache_loads_into_another
}

const ROW: usize = 2 * 16 * 2;

/// K and V of `rows` rows of a cache that has room for 1000: [1, 2, rows, 16] bf16.
fn cache<'a>(k: &'a [u8], v: &'a [u8], rows: usize) -> [View<'a>; 2] {
    let layout = Layout::contiguous(&[1, 2, 1000, 16])
        .unwrap()
        .narrow(2, 0, rows)
        .unwrap();
    [k, v].map(|bytes| View::new(bytes, DType::Bf16, layout.clone()).unwrap())
}

fn turn<'a>(name: &'a str, [k, v]: &[View<'a>; 2]) -> Snapshot<'a> {
    Snapshot::new(name)
        .growing("k", k.clone(), 2, 64)
        .growing("v", v.clone(), 2, 64)
}

fn caches() -> (Vec<u8>, Vec<u8>) {
    (noise(1, 1000 * ROW), noise(2, 1000 * ROW))
}

fn a_snapshot_comes_back(store: &Store) {
    let big = noise(1, 5 << 20);
    let state = View::contiguous(&big, DType::F32, &[1, 5, 512, 512]).unwrap();
    let scalar = View::contiguous(&big[..8], DType::I64, &[]).unwrap();
    let none = View::contiguous(&[], DType::F16, &[3, 0]).unwrap();
    let flipped = Layout::contiguous(&[512, 512])
        .unwrap()
        .permute(&[1, 0])
        .unwrap();
    let flipped = View::new(&big, DType::U8, flipped).unwrap();
    let snapshot = Snapshot::new("a/../b")
        .metadata(b"ids")
        .tensor("state", state)
        .tensor("n", scalar)
        .tensor("none", none)
        .tensor("t", flipped.clone());
    store.save(&space(), &snapshot).unwrap();
    let loaded = store.load(&space(), "a/../b").unwrap();
    assert_eq!(loaded.metadata, b"ids");
    assert_eq!(
        loaded.bytes,
        [big.clone(), big[..8].to_vec(), vec![], flipped.to_vec()]
    );
    assert_eq!(loaded.tensors[2].shape, [3, 0]);
    assert_eq!(loaded.tensors[1].dtype, DType::I64);
    let info = store.snapshot_info(&space(), "a/../b").unwrap();
    assert_eq!((info.tensors, info.blocks), (loaded.tensors, 5 + 1 + 1));
    assert_eq!(
        store.load(&space(), "c").unwrap_err().miss(),
        Some(Miss::Absent)
    );
}

fn equal_content_is_written_once(store: &Store) {
    let data = noise(1, 3 << 20);
    let view = View::contiguous(&data, DType::U8, &[3, 1 << 20]).unwrap();
    let first = store
        .save(&space(), &Snapshot::new("a").tensor("x", view.clone()))
        .unwrap();
    assert_eq!((first.written, first.reused), (4, 0));
    let second = store
        .save(&space(), &Snapshot::new("b").tensor("y", view))
        .unwrap();
    assert_eq!((second.written, second.reused), (1, 3));
    assert!(second.bytes_written < 4096);
    let zeros = vec![0; 4 << 20];
    let view = View::contiguous(&zeros, DType::U8, &[4, 1 << 20]).unwrap();
    let third = store
        .save(&space(), &Snapshot::new("c").tensor("z", view))
        .unwrap();
    assert_eq!((third.written, third.reused), (2, 3));
    assert_eq!(store.load(&space(), "c").unwrap().bytes, [zeros]);
    assert_eq!(store.load(&space(), "b").unwrap().bytes, [data]);
}

fn a_grown_snapshot_adds_only_its_new_blocks(store: &Store) {
    let (k, v) = caches();
    let first = store
        .save(&space(), &turn("1", &cache(&k, &v, 300)))
        .unwrap();
    assert_eq!((first.written, first.reused), (5 + 1, 0));
    let second = store
        .save(&space(), &turn("2", &cache(&k, &v, 450)))
        .unwrap();
    // Four whole blocks are found again; the fifth has more rows now.
    assert_eq!((second.written, second.reused), (4 + 1, 4));
    for (name, rows) in [("1", 300), ("2", 450)] {
        let loaded = store.load(&space(), name).unwrap();
        assert_eq!(loaded.bytes, cache(&k, &v, rows).map(|view| view.to_vec()));
    }
}

fn a_continued_snapshot_reads_nothing_old(store: &Store) {
    let (k, v) = caches();
    store
        .save(&space(), &turn("1", &cache(&k, &v, 300)))
        .unwrap();
    // That the old rows are not looked at shows when they are something else.
    let (mut other_k, other_v) = (k.clone(), v.clone());
    other_k[..64].fill(0);
    let views = cache(&other_k, &other_v, 450);
    let report = store
        .save(&space(), &turn("2", &views).continues("1", 300))
        .unwrap();
    // Rows 300 to 320, 320 to 384, 384 to 448 and 448 to 450.
    assert_eq!((report.written, report.reused), (4 + 1, 0));
    let loaded = store.load(&space(), "2").unwrap();
    assert_eq!(loaded.bytes, cache(&k, &v, 450).map(|view| view.to_vec()));
    // Only what lies in the rows stated is taken over: whole blocks up to row 256.
    let report = store
        .save(
            &space(),
            &turn("3", &cache(&k, &v, 400)).continues("2", 310),
        )
        .unwrap();
    assert_eq!(report.written + report.reused, 3 + 1);
    assert_eq!(
        store.load(&space(), "3").unwrap().bytes,
        cache(&k, &v, 400).map(|v| v.to_vec())
    );
}

fn a_continuation_of_nothing_is_whole(store: &Store) {
    let (k, v) = caches();
    let views = cache(&k, &v, 100);
    let report = store
        .save(&space(), &turn("2", &views).continues("1", 64))
        .unwrap();
    assert_eq!(report.written, 2 + 1);
    // Of another dtype: nothing of it fits.
    let half = Layout::contiguous(&[1, 2, 100, 16]).unwrap();
    let view = View::new(&k, DType::F16, half).unwrap();
    let other = Snapshot::new("3")
        .growing("k", view.clone(), 2, 64)
        .growing("v", view, 2, 64);
    let report = store.save(&space(), &other.continues("2", 100)).unwrap();
    assert_eq!(report.written, 2 + 1);
}

fn replacing_and_removing_free_their_blocks(store: &Store) {
    let (k, v) = caches();
    store
        .save(&space(), &turn("1", &cache(&k, &v, 300)))
        .unwrap();
    let one = store.stats();
    store
        .save(&space(), &turn("2", &cache(&k, &v, 450)))
        .unwrap();
    store
        .save(&space(), &turn("2", &cache(&v, &k, 450)))
        .unwrap();
    // The old "2" is gone with its four own blocks; its eight new blocks are there.
    assert_eq!(store.stats().records, one.records + 8 + 1);
    store.remove_snapshot(&space(), "2").unwrap();
    let stats = store.stats();
    assert_eq!(
        (stats.records, stats.used_bytes),
        (one.records, one.used_bytes)
    );
    let bytes = store.load(&space(), "1").unwrap().bytes;
    assert_eq!(bytes, cache(&k, &v, 300).map(|view| view.to_vec()));
    store.remove_snapshot(&space(), "1").unwrap();
    assert_eq!((store.stats().records, store.stats().used_bytes), (0, 0));
}

fn a_strided_cache_loads_into_another(store: &Store) {
    let (k, v) = caches();
    store
        .save(&space(), &turn("1", &cache(&k, &v, 300)))
        .unwrap();
    // K and V into one buffer of room for 512 rows, K first.
    let room = Layout::contiguous(&[2, 2, 512, 16])
        .unwrap()
        .narrow(2, 0, 300)
        .unwrap();
    let targets: Vec<(usize, Layout)> =
        (0..2).map(|i| (0, room.narrow(0, i, 1).unwrap())).collect();
    let mut bytes = vec![9; 2 * 512 * ROW];
    store
        .load_into(&space(), "1", &targets, &mut [&mut bytes])
        .unwrap();
    for (view, (_, layout)) in cache(&k, &v, 300).iter().zip(targets) {
        let loaded = View::new(&bytes, DType::Bf16, layout).unwrap();
        assert_eq!(loaded.to_vec(), view.to_vec());
    }
}
