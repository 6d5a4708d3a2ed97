//! What every store does, on disk and in memory.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use prefill_kv_store::{
    Batch, DType, Error, Key, Kind, Layout, Miss, Namespace, Placement, Record, Store, View,
};
use support::{check_noise, key, noise, put_noise, space};

on_every_store! {
    records_come_back_as_they_were
    known_keys_are_skipped_unread
    a_chain_is_found_as_far_as_it_goes
    namespaces_do_not_see_each_other
    bad_batches_are_refused_whole
    rows_are_scattered_into_other_strides
    transposed_tensors_are_packed
    bad_placements_write_nothing
    empty_and_scalar_tensors
    superseded_records_go
}

fn records_come_back_as_they_were(store: &Store) {
    let data = noise(1, 700_000);
    let view = View::contiguous(&data[..600_000], DType::Bf16, &[3, 1000, 100]).unwrap();
    let odd = View::contiguous(&data[600_000..600_007], DType::U8, &[7]).unwrap();
    let mut batch = Batch::new();
    let record = Record::new(key(2), Kind::State)
        .parent(key(1))
        .cost(2.5)
        .metadata(b"delta");
    batch.push(record.tensor("a", view).tensor("b", odd));
    let report = store.put(&space(), &batch).unwrap();
    assert_eq!((report.written, report.skipped), (1, 0));
    assert!(report.bytes_written > 600_007);

    let record = store.read(&space(), &key(2)).unwrap();
    let info = record.info();
    assert_eq!(
        (info.kind, info.parent, info.cost),
        (Kind::State, Some(key(1)), 2.5)
    );
    assert_eq!(
        (info.metadata.as_slice(), info.namespace.as_str()),
        (&b"delta"[..], "test")
    );
    assert_eq!(record.tensor(0).unwrap().to_vec(), &data[..600_000]);
    assert_eq!(record.tensor(0).unwrap().shape(), [3, 1000, 100]);
    assert_eq!(record.named("b").unwrap().to_vec(), &data[600_000..600_007]);
    assert!(record.tensor(2).is_err() && record.named("c").is_none());
    assert_eq!(store.info(&space(), &key(2)).unwrap(), *info);
    let stats = store.stats();
    assert_eq!(
        (stats.records, stats.hits, stats.records_written),
        (1, 1, 1)
    );
}

fn known_keys_are_skipped_unread(store: &Store) {
    put_noise(store, 1, 100_000).unwrap();
    let before = store.stats();
    // Other bytes under the same key: what a key stands for can't change, and is not looked at.
    let other = vec![0; 100_000];
    let mut batch = Batch::new();
    let view = View::contiguous(&other, DType::U8, &[100_000]).unwrap();
    batch.push(Record::new(key(1), Kind::Rows).tensor("x", view));
    let report = store.put(&space(), &batch).unwrap();
    assert_eq!(
        (report.written, report.skipped, report.bytes_written),
        (0, 1, 0)
    );
    assert_eq!(store.stats().used_bytes, before.used_bytes);
    assert!(check_noise(store, 1));
}

fn a_chain_is_found_as_far_as_it_goes(store: &Store) {
    for n in [0, 1, 2, 4] {
        put_noise(store, n, 1000).unwrap();
    }
    let keys: Vec<Key> = (0..6).map(key).collect();
    assert_eq!(store.longest_prefix(&space(), &keys), 3);
    assert_eq!(store.longest_prefix(&space(), &keys[4..]), 1);
    assert_eq!(store.longest_prefix(&space(), &[]), 0);
    assert!(store.contains(&space(), &key(4)) && !store.contains(&space(), &key(5)));
    let miss = store.read(&space(), &key(5)).unwrap_err();
    assert_eq!(miss.miss(), Some(Miss::Absent));
    assert_eq!(store.stats().misses_for(Miss::Absent), 1);
}

fn namespaces_do_not_see_each_other(store: &Store) {
    put_noise(store, 1, 1000).unwrap();
    let other = Namespace::new("../../etc").unwrap();
    assert!(!store.contains(&other, &key(1)));
    let mut batch = Batch::new();
    batch.push(Record::new(key(1), Kind::Features).metadata(b"theirs"));
    assert_eq!(store.put(&other, &batch).unwrap().written, 1);
    assert_eq!(
        store.read(&other, &key(1)).unwrap().info().metadata,
        b"theirs"
    );
    assert!(check_noise(store, 1));
}

fn bad_batches_are_refused_whole(store: &Store) {
    let refused = |records: Vec<Record<'_>>| {
        let mut batch = Batch::new();
        batch.push(Record::new(key(9), Kind::Rows));
        for record in records {
            batch.push(record);
        }
        let error = store.put(&space(), &batch).unwrap_err();
        assert!(!store.contains(&space(), &key(9)));
        error
    };
    let plain = |n| Record::new(key(n), Kind::Rows);
    assert!(
        matches!(refused(vec![plain(1), plain(1)]), Error::Duplicate { key: k } if k == key(1))
    );
    for cost in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(matches!(
            refused(vec![plain(1).cost(cost)]),
            Error::Invalid { .. }
        ));
    }
    let content = Record::new(key(1), Kind::Content);
    assert!(matches!(refused(vec![content]), Error::Invalid { .. }));
    let metadata = vec![0; (16 << 20) + 1];
    assert!(matches!(
        refused(vec![plain(1).metadata(&metadata)]),
        Error::Limit { .. }
    ));
    let name = "n".repeat(1025);
    let view = View::contiguous(&[], DType::U8, &[0]).unwrap();
    assert!(matches!(
        refused(vec![plain(1).tensor(&name, view)]),
        Error::Limit { .. }
    ));
}

fn rows_are_scattered_into_other_strides(store: &Store) {
    // Two blocks of [4 heads, 64 rows, 128] bf16, to be rows 0..64 and 64..128 of a cache with
    // room for 200 rows, and the same with 8-row blocks, whose runs are short.
    for rows in [64usize, 8, 1] {
        let shape = [4, rows, 128];
        let bytes = 4 * rows * 128 * 2;
        let blocks = [noise(1, bytes), noise(2, bytes)];
        let mut batch = Batch::new();
        for (i, block) in blocks.iter().enumerate() {
            let view = View::contiguous(block, DType::Bf16, &shape).unwrap();
            let id = key((rows * 10 + i) as u64);
            batch.push(
                Record::new(id, Kind::Rows)
                    .tensor("k", view.clone())
                    .tensor("v", view),
            );
        }
        store.put(&space(), &batch).unwrap();
        let cache = Layout::contiguous(&[4, 200, 128]).unwrap();
        let (mut k, mut v) = (vec![7; 4 * 200 * 128 * 2], vec![7; 4 * 200 * 128 * 2]);
        let mut placements = Vec::new();
        for i in 0..2 {
            for tensor in 0..2 {
                placements.push(Placement {
                    key: key((rows * 10 + i) as u64),
                    tensor,
                    buffer: tensor,
                    layout: cache.narrow(1, i * rows, rows).unwrap(),
                });
            }
        }
        let report = store
            .read_into(&space(), &placements, &mut [&mut k, &mut v])
            .unwrap();
        assert_eq!(report.records, 2);
        for cached in [&k, &v] {
            for (i, block) in blocks.iter().enumerate() {
                let layout = cache.narrow(1, i * rows, rows).unwrap();
                assert_eq!(
                    View::new(cached, DType::Bf16, layout).unwrap().to_vec(),
                    *block
                );
            }
            let rest = cache.narrow(1, 2 * rows, 200 - 2 * rows).unwrap();
            let rest = View::new(cached, DType::Bf16, rest).unwrap().to_vec();
            assert!(
                rest.iter().all(|&b| b == 7),
                "rows beyond the blocks were touched"
            );
        }
    }
}

fn transposed_tensors_are_packed(store: &Store) {
    let data = noise(3, 300 * 200 * 4);
    let layout = Layout::contiguous(&[300, 200])
        .unwrap()
        .permute(&[1, 0])
        .unwrap();
    let view = View::new(&data, DType::F32, layout.clone()).unwrap();
    let mut batch = Batch::new();
    batch.push(Record::new(key(1), Kind::State).tensor("t", view.clone()));
    let report = store.put(&space(), &batch).unwrap();
    assert_eq!(report.bytes_copied, 300 * 200 * 4);
    assert!(report.peak_scratch_bytes <= 2 * (256 << 10));
    assert_eq!(
        store
            .read(&space(), &key(1))
            .unwrap()
            .tensor(0)
            .unwrap()
            .to_vec(),
        view.to_vec()
    );
    // And back into memory that is transposed again.
    let mut back = vec![0; data.len()];
    let placement = Placement {
        key: key(1),
        tensor: 0,
        buffer: 0,
        layout,
    };
    store
        .read_into(&space(), &[placement], &mut [&mut back])
        .unwrap();
    assert_eq!(back, data);
}

fn bad_placements_write_nothing(store: &Store) {
    put_noise(store, 1, 1000).unwrap();
    let fails = |tensor, buffer, layout: Layout| {
        let mut bytes = vec![7; 1500];
        let placement = Placement {
            key: key(1),
            tensor,
            buffer,
            layout,
        };
        let twice = [placement.clone(), placement];
        let n = if tensor == 0 && buffer == 0 { 2 } else { 1 };
        let result = store.read_into(&space(), &twice[..n], &mut [&mut bytes]);
        assert!(bytes.iter().all(|&b| b == 7));
        result.unwrap_err()
    };
    let dense = |n: usize| Layout::contiguous(&[n]).unwrap();
    assert!(matches!(fails(0, 0, dense(1000)), Error::Overlap { .. }));
    assert!(matches!(
        fails(1, 0, dense(1000)),
        Error::Index { what: "tensor", .. }
    ));
    assert!(matches!(
        fails(0, 1, dense(1000)),
        Error::Index { what: "buffer", .. }
    ));
    assert!(matches!(fails(0, 0, dense(999)), Error::Shape { .. }));
    let outside = Layout::new(&[1000], &[2], 0).unwrap();
    assert!(matches!(fails(0, 0, outside), Error::OutOfBounds { .. }));
    let broadcast = Layout::new(&[1000], &[0], 0).unwrap();
    assert!(matches!(fails(0, 0, broadcast), Error::Overlap { .. }));
}

fn empty_and_scalar_tensors(store: &Store) {
    let data = noise(4, 64);
    let mut batch = Batch::new();
    let record = Record::new(key(1), Kind::State)
        .tensor(
            "none",
            View::contiguous(&[], DType::F32, &[2, 0, 5]).unwrap(),
        )
        .tensor("one", View::contiguous(&data, DType::F32, &[]).unwrap())
        .tensor("none", View::contiguous(&[], DType::U8, &[0]).unwrap());
    batch.push(record).push(Record::new(key(2), Kind::State));
    let empty = Record::new(key(3), Kind::State);
    batch.push(empty.tensor("none", View::contiguous(&[], DType::F32, &[0]).unwrap()));
    store.put(&space(), &batch).unwrap();
    let record = store.read(&space(), &key(1)).unwrap();
    assert_eq!(record.tensor(0).unwrap().shape(), [2, 0, 5]);
    assert_eq!(record.tensor(1).unwrap().to_vec(), &data[..4]);
    assert_eq!(record.tensor(2).unwrap().byte_len(), 0);
    assert!(store.read(&space(), &key(2)).unwrap().tensor(0).is_err());
    assert_eq!(
        store
            .read(&space(), &key(3))
            .unwrap()
            .tensor(0)
            .unwrap()
            .shape(),
        [0]
    );
}

fn superseded_records_go(store: &Store) {
    put_noise(store, 1, 50_000).unwrap();
    let before = store.stats().used_bytes;
    let data = noise(2, 50_000);
    let mut batch = Batch::new();
    let view = View::contiguous(&data, DType::U8, &[50_000]).unwrap();
    batch.push(Record::new(key(2), Kind::Rows).tensor("x", view));
    batch.remove(key(1)).remove(key(77));
    store.put(&space(), &batch).unwrap();
    assert!(!check_noise(store, 1));
    assert!(check_noise(store, 2));
    assert_eq!(
        store.stats().used_bytes,
        before,
        "the tail's bytes are free again"
    );
}
