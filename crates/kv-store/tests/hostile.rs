//! Files whose checksums and hashes are right, made to claim far more than they hold.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use prefill_kv_store::{
    Batch, DType, Error, Export, Kind, Layout, Options, Record, Snapshot, Store, View,
};
use support::{check_noise, key, noise, options, put_noise, space};

const ROW: usize = 1 << 20;
/// The head of the sample's table with its name, and the head of its group.
const GROUP: usize = 32;
const BLOCKS: usize = GROUP + 24;
const BLOCK: usize = 48;
/// Each tensor of the sample's table: rank 2, a name of one byte.
const TENSOR: usize = 40;

fn go_on(_: u64, _: u64) -> bool {
    true
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn set(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Puts an export together as docs/format.md, sections 2 and 6, have it.
fn export_of(mut manifest: Vec<u8>, pack: &[u8]) -> Vec<u8> {
    let body = manifest.len() as u64 - 128;
    set(&mut manifest, 80, body);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&manifest[..96]).update(&manifest[128..]);
    manifest[96..128].copy_from_slice(hasher.finalize().as_bytes());
    let mut file = b"\x89PFKVX\r\n\x01\0\0\0\0\0\0\0".to_vec();
    file.extend((manifest.len() as u64).to_le_bytes());
    let at = (32 + manifest.len()).next_multiple_of(16 << 10);
    file.extend((at as u64).to_le_bytes());
    file.extend(manifest);
    file.resize(at, 0);
    file.extend(pack);
    file
}

fn split(file: &[u8]) -> (Vec<u8>, &[u8]) {
    let (len, pack) = (u64_at(file, 16) as usize, u64_at(file, 24) as usize);
    (file[32..32 + len].to_vec(), &file[pack..])
}

/// A snapshot whose table was changed.
fn forged(store: &Store, tensors: usize, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut file = Vec::new();
    let what = Export::Snapshot("s");
    store.export(&space(), what, &mut file, &mut go_on).unwrap();
    let (mut manifest, pack) = split(&file);
    // The snapshot's record is the last, and ends with its table.
    let at = manifest.len() - (BLOCKS + 2 * BLOCK + tensors * TENSOR);
    let table = change(&manifest[at..]);
    manifest.truncate(at);
    manifest[at - 8..at - 4].copy_from_slice(&(table.len() as u32).to_le_bytes());
    manifest.extend(table);
    export_of(manifest, pack)
}

/// A table that names the first block of another `n` times.
fn repeated(table: &[u8], n: u64) -> Vec<u8> {
    let mut out = table[..BLOCKS].to_vec();
    set(&mut out, GROUP, n);
    set(&mut out, GROUP + 16, n);
    for first in 0..n {
        out.extend(&table[BLOCKS..BLOCKS + BLOCK]);
        let at = out.len() - 16;
        set(&mut out, at, first);
    }
    for tensor in table[BLOCKS + 2 * BLOCK..].chunks(TENSOR) {
        out.extend(tensor);
        let at = out.len() - TENSOR + 16;
        set(&mut out, at, n);
    }
    out
}

/// One tensor of two equal rows, one to a block.
fn two_equal_rows() -> (Vec<u8>, Store) {
    let row = noise(1, ROW);
    let store = Store::in_memory(options()).unwrap();
    let twice = Layout::new(&[2, ROW], &[0, 1], 0).unwrap();
    let view = View::new(&row, DType::U8, twice).unwrap();
    let snapshot = Snapshot::new("s").growing("x", view, 0, 1);
    assert_eq!(store.save(&space(), &snapshot).unwrap().written, 1 + 1);
    (row, store)
}

fn imported(file: &[u8], options: Options) -> Store {
    let store = Store::in_memory(options).unwrap();
    store.import(&space(), &mut &*file, &mut go_on).unwrap();
    store
}

#[test]
fn a_block_that_is_named_many_times_is_bounded() {
    let (row, store) = two_equal_rows();
    let hostile = forged(&store, 1, |table| repeated(table, 300_000));
    assert!(hostile.len() < 16 << 20);
    let store = imported(&hostile, options());
    let (bytes, limit) = (300_000 << 20, (4 << 30) + (1 << 20));
    let check = |error| {
        assert!(
            matches!(error, Error::Limit { found, limit: l, .. } if (found, l) == (bytes, limit)),
            "{error}"
        );
    };
    check(store.load(&space(), "s").unwrap_err());
    let layout = Layout::contiguous(&[300_000, ROW]).unwrap();
    let into = store.load_into(&space(), "s", &[(0, layout)], &mut [&mut []]);
    check(into.unwrap_err());

    // The limit is exact, and what is within it loads.
    let narrow = Options {
        repeat_limit: 9 << 20,
        ..options()
    };
    for n in [10, 11] {
        let file = forged(&two_equal_rows().1, 1, |table| repeated(table, n));
        let loaded = imported(&file, narrow.clone()).load(&space(), "s");
        match loaded {
            Ok(loaded) => assert_eq!((n, &loaded.bytes[0]), (10, &row.repeat(10))),
            Err(Error::Limit { found, limit, .. }) => {
                assert_eq!((n, found, limit), (11, 11 << 20, 10 << 20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_does_not_repeat_needs_no_allowance() {
    let none = Options {
        repeat_limit: 0,
        ..options()
    };
    let store = Store::in_memory(none).unwrap();
    let data = noise(1, 2 * 200 * 32);
    let mut snapshot = Snapshot::new("s");
    for part in data.chunks(2 * 32) {
        let view = View::contiguous(part, DType::U8, &[2, 32]).unwrap();
        snapshot = snapshot.growing("x", view, 0, 1);
    }
    store.save(&space(), &snapshot).unwrap();
    assert_eq!(store.load(&space(), "s").unwrap().bytes.concat(), data);
}

#[test]
fn what_repeats_within_an_honest_snapshot_loads() {
    let store = Store::in_memory(options()).unwrap();
    let zeros = vec![0; 64 << 20];
    let view = View::contiguous(&zeros, DType::U8, &[64, ROW]).unwrap();
    let snapshot = Snapshot::new("s").tensor("x", view);
    assert_eq!(store.save(&space(), &snapshot).unwrap().written, 1 + 1);
    assert!(store.load(&space(), "s").unwrap().bytes == [zeros]);
}

#[test]
fn many_empty_tensors_in_many_blocks_are_bounded() {
    let store = Store::in_memory(options()).unwrap();
    let one = View::contiguous(&[7, 7], DType::U8, &[2, 1]).unwrap();
    let empty = View::contiguous(&[], DType::U8, &[2, 0]).unwrap();
    let mut snapshot = Snapshot::new("s").growing("x", one, 0, 1);
    for _ in 1..1000 {
        snapshot = snapshot.growing("e", empty.clone(), 0, 1);
    }
    store.save(&space(), &snapshot).unwrap();
    assert_eq!(store.load(&space(), "s").unwrap().bytes[0], [7, 7]);
    let file = forged(&store, 1000, |table| repeated(table, 300_000));
    let error = imported(&file, options()).load(&space(), "s").unwrap_err();
    let limit = (4 << 30) / 512 + (16 << 10) / 64;
    assert!(
        matches!(error, Error::Limit { found: 300_000_000, limit: l, .. } if l == limit),
        "{error}"
    );
}

#[test]
fn a_table_that_its_blocks_do_not_bear_out_is_refused() {
    type Change<'c> = &'c dyn Fn(&mut Vec<u8>);
    let (_, store) = two_equal_rows();
    let tensor = BLOCKS + 2 * BLOCK;
    let changes: [Change<'_>; 4] = [
        // bool, f64, a shorter row, and no blocks.
        &|table| table[tensor] = 0,
        &|table| table[tensor] = 11,
        &|table| set(table, tensor + 24, ROW as u64 - 1),
        &|table| {
            table.drain(BLOCKS..tensor);
            set(table, GROUP + 16, 0);
        },
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let file = forged(&store, 1, |table| {
            let mut table = table.to_vec();
            change(&mut table);
            table
        });
        let error = imported(&file, options()).load(&space(), "s").unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "change {n}: {error}");
    }
}

#[test]
fn a_snapshot_that_claims_everything_blocks_no_eviction() {
    let (_, store) = two_equal_rows();
    let file = forged(&store, 1, |table| {
        let mut table = table.to_vec();
        set(&mut table, BLOCKS + 2 * BLOCK + 24, 1 << 63);
        table
    });
    let limit = 4 << 20;
    let store = Store::in_memory(Options { limit, ..options() }).unwrap();
    for n in 0..5 {
        put_noise(&store, n, 300_000).unwrap();
    }
    store.import(&space(), &mut &file[..], &mut go_on).unwrap();
    for n in 5..40 {
        put_noise(&store, n, 300_000).unwrap();
    }
    assert!(check_noise(&store, 39));
    assert!((0..5).all(|n| !check_noise(&store, n)));
    assert!(store.snapshot_info(&space(), "s").is_err());
}

#[test]
fn padding_that_is_not_zero_is_not_imported() {
    let store = Store::in_memory(options()).unwrap();
    put_noise(&store, 1, 100).unwrap();
    let mut file = Vec::new();
    let what = [key(1)];
    store
        .export(&space(), Export::Records(&what), &mut file, &mut go_on)
        .unwrap();
    let (mut manifest, pack) = split(&file);
    let mut pack = pack.to_vec();
    pack[100] = 1;
    // The record is the last and has no metadata: the manifest ends with the hash of its piece.
    let at = manifest.len() - 32;
    manifest[at..].copy_from_slice(blake3::hash(&pack).as_bytes());
    let file = export_of(manifest, &pack);
    let store = Store::in_memory(options()).unwrap();
    let error = store.import(&space(), &mut &file[..], &mut go_on);
    let what = "zero bytes between tensors";
    assert!(matches!(error, Err(Error::Format { what: w, .. }) if w == what));
}

#[test]
fn records_that_look_alike_are_described_once() {
    let store = Store::in_memory(options()).unwrap();
    let empty = View::contiguous(&[], DType::U8, &[0]).unwrap();
    let mut batch = Batch::new();
    for n in 0..50 {
        let record = Record::new(key(n), Kind::State);
        batch.push((0..2000).fold(record, |r, _| r.tensor("e", empty.clone())));
    }
    store.put(&space(), &batch).unwrap();
    let keys: Vec<_> = (0..50).map(key).collect();
    let mut file = Vec::new();
    store
        .export(&space(), Export::Records(&keys), &mut file, &mut go_on)
        .unwrap();
    let listed = imported(&file, options()).list();
    assert_eq!((listed.len(), listed[0].record.tensors.len()), (50, 2000));
    assert!(
        listed
            .iter()
            .all(|l| Arc::ptr_eq(&l.record.tensors, &listed[0].record.tensors))
    );
}
