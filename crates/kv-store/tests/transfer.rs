//! Export and import.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use prefill_kv_store::{DType, Error, Export, Key, Namespace, Snapshot, Store, View};
use support::{check_noise, key, noise, options, put_noise, space};

fn go_on(_: u64, _: u64) -> bool {
    true
}

fn exported_snapshot() -> (Vec<u8>, Vec<u8>) {
    let store = Store::in_memory(options()).unwrap();
    let data = noise(1, 600_000);
    let view = View::contiguous(&data, DType::Bf16, &[3, 1000, 100]).unwrap();
    let snapshot = Snapshot::new("s")
        .growing("x", view, 1, 256)
        .metadata(b"meta");
    store.save(&space(), &snapshot).unwrap();
    let mut file = Vec::new();
    let bytes = store
        .export(&space(), Export::Snapshot("s"), &mut file, &mut go_on)
        .unwrap();
    assert_eq!(bytes, file.len() as u64);
    (data, file)
}

on_every_store! {
    a_snapshot_travels
    records_travel
    damage_is_found
}

fn a_snapshot_travels(store: &Store) {
    let (data, file) = exported_snapshot();
    let other = Namespace::new("elsewhere").unwrap();
    for round in 0..2 {
        let report = store.import(&other, &mut &file[..], &mut go_on).unwrap();
        assert_eq!(
            (report.written, report.skipped),
            if round == 0 { (5, 0) } else { (1, 4) }
        );
        let loaded = store.load(&other, "s").unwrap();
        assert_eq!(
            (loaded.bytes, loaded.metadata),
            (vec![data.clone()], b"meta".to_vec())
        );
        assert_eq!(store.stats().records, 5);
    }
    assert!(store.load(&space(), "s").is_err());
}

fn records_travel(store: &Store) {
    for n in 0..3 {
        put_noise(store, n, 300_000).unwrap();
    }
    let keys: Vec<Key> = (0..3).map(key).collect();
    let mut file = Vec::new();
    store
        .export(&space(), Export::Records(&keys), &mut file, &mut go_on)
        .unwrap();
    let to = Store::in_memory(options()).unwrap();
    to.import(&space(), &mut &file[..], &mut go_on).unwrap();
    assert!((0..3).all(|n| check_noise(&to, n)));
    let absent = Export::Records(&[key(9)]);
    assert!(
        store
            .export(&space(), absent, &mut file, &mut go_on)
            .unwrap_err()
            .miss()
            .is_some()
    );
    let stopped = store.export(&space(), Export::Records(&keys), &mut file, &mut |_, _| {
        false
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
}

fn damage_is_found(store: &Store) {
    let (data, file) = exported_snapshot();
    let damaged = |at: usize, bit: u8| {
        let mut bytes = file.clone();
        bytes[at] ^= 1 << bit;
        bytes
    };
    let positions = (0..2048)
        .chain((2048..file.len()).step_by(4099))
        .chain([file.len() - 1]);
    for at in positions {
        let bytes = damaged(at, (at % 8) as u8);
        let error = store
            .import(&space(), &mut &bytes[..], &mut go_on)
            .unwrap_err();
        let found = matches!(
            error,
            Error::Format { .. } | Error::Version { .. } | Error::Limit { .. }
        );
        assert!(found, "byte {at}: {error}");
        assert!(store.load(&space(), "s").is_err());
    }
    for len in (0..file.len()).step_by(4999) {
        assert!(
            store
                .import(&space(), &mut &file[..len], &mut go_on)
                .is_err(),
            "{len} bytes"
        );
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(
        store
            .import(&space(), &mut &longer[..], &mut go_on)
            .is_err()
    );
    store.import(&space(), &mut &file[..], &mut go_on).unwrap();
    assert_eq!(store.load(&space(), "s").unwrap().bytes, [data]);
}
