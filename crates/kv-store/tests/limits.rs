//! The byte limit, eviction, and what is kept from it.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use prefill_kv_store::{Batch, DType, Error, Export, Kind, Options, Record, Snapshot, Store, View};
use support::{check_noise, key, noise, options, put_noise, space};

const LEN: usize = 100_000;

fn limited(limit: u64) -> Options {
    Options { limit, ..options() }
}

fn put_chain(store: &Store, n: u64, parent: Option<u64>) -> prefill_kv_store::Result<()> {
    let data = noise(n, LEN);
    let view = View::contiguous(&data, DType::U8, &[LEN])?;
    let mut record = Record::new(key(n), Kind::Rows).tensor("x", view).cost(1.0);
    record.parent = parent.map(key);
    let mut batch = Batch::new();
    batch.push(record);
    store.put(&space(), &batch).map(drop)
}

/// The bytes of all files in a folder, as the file system counts them.
fn disk_usage(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    entries
        .filter_map(|path| Some((std::fs::symlink_metadata(&path).ok()?, path)))
        .map(|(m, path)| {
            if m.is_dir() {
                disk_usage(&path)
            } else {
                m.blocks() * 512
            }
        })
        .sum()
}

#[test]
fn the_limit_holds_and_the_ledger_is_what_the_disk_says() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), limited(1 << 20)).unwrap();
    for n in 0..40 {
        put_noise(&store, n, LEN).unwrap();
        let on_disk = disk_usage(folder.path());
        assert!(on_disk <= 1 << 20, "{on_disk} bytes after {n}");
        // The lock file is the only one that the ledger leaves out.
        assert!(on_disk - store.stats().used_bytes <= 4096);
    }
    assert!(check_noise(&store, 39) && !check_noise(&store, 0));
    assert!(
        (20..=35).contains(&store.stats().evicted),
        "{:?}",
        store.stats()
    );
    let again = Store::open(folder.path(), limited(1 << 20)).unwrap();
    assert_eq!(again.stats().used_bytes, store.stats().used_bytes);
}

// Elsewhere a pack can't be punched, and is freed from its end or as a whole.
#[cfg(target_os = "linux")]
#[test]
fn a_smaller_limit_evicts_at_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options()).unwrap();
    let mut batch = Batch::new();
    let data: Vec<Vec<u8>> = (0..10).map(|n| noise(n, LEN)).collect();
    for (n, data) in data.iter().enumerate() {
        let view = View::contiguous(data, DType::U8, &[LEN]).unwrap();
        batch.push(
            Record::new(key(n as u64), Kind::Rows)
                .tensor("x", view)
                .cost(1.0),
        );
    }
    // One pack: its records go one by one, by holes and by cutting it.
    store.put(&space(), &batch).unwrap();
    let store = Store::open(folder.path(), limited(700_000)).unwrap();
    put_noise(&store, 20, LEN).unwrap();
    assert!(disk_usage(folder.path()) <= 700_000);
    let left = (0..10).filter(|&n| check_noise(&store, n)).count();
    assert!((2..=5).contains(&left), "{left} left");
    assert!(check_noise(&store, 20));
    assert!(store.verify(&mut |_, _| true).unwrap().is_sound());
}

on_every_store! {
    what_can_never_fit_is_refused
}

fn what_can_never_fit_is_refused(_: &Store) {
    let store = Store::in_memory(limited(300_000)).unwrap();
    put_noise(&store, 1, LEN).unwrap();
    let error = put_noise(&store, 2, 400_000).unwrap_err();
    assert!(matches!(error, Error::Full { needed, available } if needed > available));
    assert!(check_noise(&store, 1), "nothing is evicted in vain");
}

#[test]
fn parents_outlive_their_children() {
    let store = Store::in_memory(limited(1 << 20)).unwrap();
    // A chain whose root is the oldest, then unrelated records.
    put_chain(&store, 0, None).unwrap();
    for n in 1..6 {
        put_chain(&store, n, Some(n - 1)).unwrap();
    }
    for n in 100..130 {
        put_chain(&store, n, None).unwrap();
        let chain: Vec<bool> = (0..6).map(|n| check_noise(&store, n)).collect();
        let present = chain.iter().take_while(|&&c| c).count();
        assert!(
            chain[present..].iter().all(|c| !c),
            "an ancestor went first: {chain:?}"
        );
    }
}

#[test]
fn what_is_used_stays() {
    let store = Store::in_memory(limited(1 << 20)).unwrap();
    for n in 0..50 {
        put_noise(&store, n, LEN).unwrap();
        assert!(
            check_noise(&store, 0),
            "the record that is read all the time was evicted"
        );
    }
}

#[test]
fn snapshots_go_whole_and_shared_blocks_stay() {
    let store = Store::in_memory(limited(1 << 20)).unwrap();
    let shared = noise(1000, LEN);
    for n in 0..30u64 {
        let own = noise(n, LEN);
        let view = |data| View::contiguous(data, DType::U8, &[LEN]).unwrap();
        let name = format!("s{n}");
        let snapshot = Snapshot::new(&name)
            .tensor("a", view(&shared))
            .tensor("b", view(&own));
        store.save(&space(), &snapshot).unwrap();
        assert_eq!(
            store.load(&space(), &name).unwrap().bytes,
            [shared.clone(), own]
        );
    }
    let stats = store.stats();
    assert!(stats.evicted > 10 && stats.used_bytes <= 1 << 20);
    // Each snapshot that is left is whole, and nothing else is there.
    let left = (0..30)
        .filter(|n| store.load(&space(), &format!("s{n}")).is_ok())
        .count() as u64;
    assert_eq!(store.stats().records, 2 * left + 1);
}

#[test]
fn what_is_pinned_stays() {
    let store = Store::in_memory(limited(1 << 20)).unwrap();
    for n in 0..3 {
        put_chain(&store, n, n.checked_sub(1)).unwrap();
    }
    let keys = [key(0), key(1), key(2), key(3)];
    let pinned = store.pin(&space(), &keys);
    assert_eq!((pinned.len(), pinned.is_empty()), (3, false));
    assert!(store.pin(&space(), &keys[3..]).is_empty());
    for n in 10..40 {
        put_noise(&store, n, LEN).unwrap();
    }
    assert_eq!(store.longest_prefix(&space(), &keys), 3);
    // There is room for this and little else.
    let large = put_noise(&store, 50, 880_000);
    assert!(matches!(large, Err(Error::Full { .. })));
    drop(pinned);
    put_noise(&store, 50, 880_000).unwrap();
    assert_eq!(store.longest_prefix(&space(), &keys), 0);
}

#[test]
fn a_pack_that_is_read_is_shrunk_later() {
    use prefill_kv_store::vfs::{MemoryVfs, Vfs};
    let vfs = MemoryVfs::new();
    let shared = std::sync::Arc::new(vfs.clone());
    let store = Store::with_vfs(shared, limited(480_000), false).unwrap();
    let data = [noise(1, LEN), noise(2, LEN)];
    let mut batch = Batch::new();
    for (n, data) in (1..).zip(&data) {
        let view = View::contiguous(data, DType::U8, &[LEN]).unwrap();
        batch.push(Record::new(key(n), Kind::Rows).tensor("x", view));
    }
    store.put(&space(), &batch).unwrap();
    let used = store.stats().used_bytes;
    let pack = vfs
        .list()
        .unwrap()
        .into_iter()
        .find(|n| n.len() == 37)
        .unwrap();
    // Somebody reads the pack, perhaps in another process.
    let reading = vfs.open(&pack, false).unwrap();
    assert!(reading.try_lock(false).unwrap());
    store.remove(&space(), &[key(1)]).unwrap();
    assert!(!check_noise(&store, 1) && check_noise(&store, 2));
    assert_eq!(store.stats().deferred, 1);
    assert!(
        store.stats().used_bytes + 1000 > used,
        "its bytes are still there, and counted"
    );
    drop(reading);
    // The next writer that needs the room takes it before it evicts anything.
    put_noise(&store, 3, LEN).unwrap();
    put_noise(&store, 4, LEN).unwrap();
    assert!([2, 3, 4].iter().all(|&n| check_noise(&store, n)));
    assert_eq!(store.stats().evicted, 0);
}

#[test]
fn the_free_floor_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let floor = Options {
        free_floor: u64::MAX / 2,
        ..options()
    };
    let store = Store::open(folder.path(), floor).unwrap();
    assert!(matches!(
        put_noise(&store, 1, LEN),
        Err(Error::Full { available: 0, .. })
    ));
    assert_eq!(disk_usage(folder.path()) / 8192, 0);
}

#[test]
fn an_import_obeys_the_limit() {
    let from = Store::in_memory(options()).unwrap();
    let data = noise(1, 20 * LEN);
    let view = View::contiguous(&data, DType::U8, &[20, LEN]).unwrap();
    from.save(&space(), &Snapshot::new("s").growing("x", view, 0, 1))
        .unwrap();
    let mut file = Vec::new();
    from.export(&space(), Export::Snapshot("s"), &mut file, &mut |_, _| true)
        .unwrap();
    let to = Store::in_memory(limited(1 << 20)).unwrap();
    put_noise(&to, 1, LEN).unwrap();
    assert!(
        to.import(&space(), &mut &file[..], &mut |_, _| true)
            .is_err()
    );
    assert!(to.stats().used_bytes <= 1 << 20);
}
