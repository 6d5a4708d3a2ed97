//! Files that are damaged, foreign, newer or planted.

#![allow(clippy::unwrap_used)]

mod support;
mod targets;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use prefill_kv_store::vfs::MemoryVfs;
use prefill_kv_store::{DType, Error, Miss, Options, Snapshot, Store, View};
use support::{check_noise, key, noise, options, put_noise, space};

fn go_on(_: u64, _: u64) -> bool {
    true
}

fn small_store() -> BTreeMap<String, Vec<u8>> {
    let vfs = MemoryVfs::new();
    let store = Store::with_vfs(Arc::new(vfs.clone()), options(), false).unwrap();
    put_noise(&store, 1, 10_000).unwrap();
    let data = noise(2, 5000);
    let view = View::contiguous(&data, DType::U8, &[5000]).unwrap();
    store
        .save(&space(), &Snapshot::new("s").tensor("x", view))
        .unwrap();
    vfs.contents()
}

fn open(contents: &BTreeMap<String, Vec<u8>>) -> (MemoryVfs, Store) {
    let vfs = MemoryVfs::with_contents(contents.clone());
    let store = Store::with_vfs(Arc::new(vfs.clone()), options(), false).unwrap();
    (vfs, store)
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_serves_nothing_wrong() {
    let contents = small_store();
    assert!(open(&contents).1.verify(&mut go_on).unwrap().is_sound());
    for (name, bytes) in &contents {
        for at in 0..bytes.len() {
            let mut damaged = contents.clone();
            damaged.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            let (vfs, store) = open(&damaged);
            let context = || format!("{name}, byte {at}");
            // Never wrong bytes: what comes is right, the rest is a miss.
            let record = check_noise(&store, 1);
            let snapshot = match store.load(&space(), "s") {
                Ok(loaded) => loaded.bytes == [noise(2, 5000)],
                Err(error) => {
                    assert!(error.miss().is_some(), "{}", context());
                    false
                }
            };
            assert!(record != snapshot, "{}: exactly one is hit", context());
            let report = store.verify(&mut go_on).unwrap();
            assert!(!report.is_sound(), "{}: not found", context());
            // The next write heals it: fully where only data was hit.
            if at % 512 == 0 {
                put_noise(&store, 1, 10_000).unwrap();
                assert!(check_noise(&store, 1), "{}", context());
                if name.split_once('.').is_some_and(|(_, kind)| kind == "pack") {
                    let again = Store::with_vfs(Arc::new(vfs), options(), false).unwrap();
                    again.collect().unwrap();
                    let report = again.verify(&mut go_on).unwrap();
                    assert!(
                        report.damaged.len() <= usize::from(!snapshot),
                        "{}",
                        context()
                    );
                }
            }
        }
    }
}

#[test]
fn cut_and_missing_packs_are_misses_that_heal() {
    let folder = tempfile::tempdir().unwrap();
    for len in [None, Some(0), Some(5000), Some(16_383)] {
        let store = Store::open(folder.path(), options()).unwrap();
        store.wipe_all().unwrap();
        put_noise(&store, 1, 10_000).unwrap();
        let pack = std::fs::read_dir(folder.path().join("v1"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.extension().is_some_and(|e| e == "pack"))
            .unwrap();
        match len {
            None => std::fs::remove_file(pack).unwrap(),
            Some(len) => {
                std::fs::File::options()
                    .write(true)
                    .open(pack)
                    .unwrap()
                    .set_len(len)
                    .unwrap();
            }
        }
        // Found by the store that wrote it, and by one that opens it.
        let again = Store::open(folder.path(), options()).unwrap();
        let error = store.read(&space(), &key(1)).unwrap_err();
        assert_eq!(error.miss(), Some(Miss::Truncated), "{len:?}");
        assert!(!check_noise(&again, 1));
        assert_eq!((store.stats().torn, store.stats().quarantined), (1, 1));
        put_noise(&store, 1, 10_000).unwrap();
        assert_eq!(store.stats().quarantined, 0);
        assert!(check_noise(&store, 1) && check_noise(&again, 1));
        store.collect().unwrap();
        assert!(store.verify(&mut go_on).unwrap().is_sound());
        assert_eq!(store.stats().commits, 1);
    }
}

/// The manifest of the sample under a newer version's number.
fn newer(contents: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let mut newer = contents.clone();
    for (name, bytes) in &mut newer {
        if name.ends_with(".commit") {
            bytes[8] = 2;
        }
    }
    newer
}

#[test]
fn newer_manifests_keep_their_packs_and_fill_the_limit() {
    let contents = newer(&small_store());
    let (vfs, store) = open(&contents);
    assert_eq!((store.stats().records, store.stats().foreign_files), (0, 2));
    put_noise(&store, 1, 10_000).unwrap();
    store.wipe_all().unwrap();
    store.collect().unwrap();
    for (name, bytes) in &contents {
        assert_eq!(vfs.contents().get(name), Some(bytes), "{name} was touched");
    }
    let foreign = store.stats().foreign_bytes;
    assert_eq!(store.stats().used_bytes, foreign);
    let tight = Options {
        limit: foreign + 80_000,
        ..options()
    };
    let store = Store::with_vfs(Arc::new(vfs.clone()), tight, false).unwrap();
    let full = put_noise(&store, 1, 10_000).unwrap_err();
    assert!(
        matches!(full, Error::FullOfForeign { foreign: f, .. } if f == foreign),
        "{full}"
    );
    assert_eq!(store.remove_foreign().unwrap(), foreign);
    put_noise(&store, 1, 10_000).unwrap();
    assert!(check_noise(&store, 1));
    assert_eq!(store.stats().foreign_files, 0);
}

#[test]
fn blocks_outlive_a_snapshot_while_something_is_not_understood() {
    let mut contents = small_store();
    contents.insert("README".into(), b"hello".to_vec());
    let (vfs, store) = open(&contents);
    let before = store.stats().records;
    store.remove_snapshot(&space(), "s").unwrap();
    store.collect().unwrap();
    assert_eq!(store.stats().records, before - 1, "the block stays");
    assert_eq!(vfs.contents()["README"], b"hello");
    store.remove_foreign().unwrap();
    store.collect().unwrap();
    assert_eq!(
        store.stats().records,
        before - 2,
        "nobody can need it any more"
    );
}

#[test]
fn the_blocks_of_a_newer_snapshot_are_kept() {
    let mut contents = small_store();
    // A table of version 2, with a name of one byte, inside a manifest of version 1.
    let found = contents.values_mut().find_map(|bytes| {
        // Its name follows 24 bytes after the version.
        let is_table = |at: &usize| {
            let w = &bytes[*at..];
            w[..8] == [1, 0, 0, 0, 1, 0, 0, 0] && w[24..32] == *b"s\0\0\0\0\0\0\0"
        };
        let at = (0..bytes.len().saturating_sub(32)).find(is_table)?;
        bytes[at] = 2;
        targets::reseal(bytes);
        Some(())
    });
    assert!(found.is_some());
    let (vfs, store) = open(&contents);
    assert_eq!((store.stats().records, store.stats().foreign_files), (1, 1));
    store.collect().unwrap();
    put_noise(&store, 5, 1000).unwrap();
    for (name, bytes) in &contents {
        assert_eq!(vfs.contents().get(name), Some(bytes), "{name} was touched");
    }
}

#[test]
fn planted_links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("precious");
    std::fs::write(&target, b"precious").unwrap();
    // In place of the inner folder, and of the lock.
    let folder = tempfile::tempdir().unwrap();
    symlink(outside.path(), folder.path().join("v1")).unwrap();
    assert!(matches!(
        Store::open(folder.path(), options()),
        Err(Error::Io { .. })
    ));
    let folder = tempfile::tempdir().unwrap();
    symlink(&target, folder.path().join("lock")).unwrap();
    assert!(Store::open(folder.path(), options()).is_err());
    // In place of a pack and of a manifest.
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options()).unwrap();
    put_noise(&store, 1, 10_000).unwrap();
    for entry in std::fs::read_dir(folder.path().join("v1")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().unwrap() == "pack" {
            std::fs::remove_file(&path).unwrap();
            symlink(&target, &path).unwrap();
        }
    }
    let manifest = folder
        .path()
        .join("v1")
        .join(format!("{}.commit", "0".repeat(32)));
    symlink(&target, &manifest).unwrap();
    let again = Store::open(folder.path(), options()).unwrap();
    assert!(!check_noise(&again, 1) && !check_noise(&store, 1));
    put_noise(&again, 1, 10_000).unwrap();
    again.collect().unwrap();
    again.remove_foreign().unwrap();
    assert!(check_noise(&again, 1));
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
}

#[test]
fn everything_is_private_and_beneath_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let store = Store::open(&folder, options()).unwrap();
    put_noise(&store, 1, 10_000).unwrap();
    let data = noise(2, 100);
    let view = View::contiguous(&data, DType::U8, &[100]).unwrap();
    store
        .save(&space(), &Snapshot::new("../../x").tensor("../y", view))
        .unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("v1"))), (0o700, 0o700));
    assert_eq!(mode(&folder.join("lock")), 0o600);
    for entry in std::fs::read_dir(folder.join("v1")).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
    // A folder that was loosened is tightened when a writer opens it.
    std::fs::set_permissions(folder.join("v1"), PermissionsExt::from_mode(0o755)).unwrap();
    Store::open(&folder, options()).unwrap();
    assert_eq!(mode(&folder.join("v1")), 0o700);
}

#[test]
fn a_read_only_store_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    assert!(matches!(
        Store::open_read_only(&missing, options()),
        Err(Error::Io { .. })
    ));
    assert!(!missing.exists());
    let store = Store::open(folder.path(), options()).unwrap();
    put_noise(&store, 1, 10_000).unwrap();
    let reader = Store::open_read_only(folder.path(), options()).unwrap();
    assert!(check_noise(&reader, 1));
    assert!(matches!(put_noise(&reader, 2, 100), Err(Error::ReadOnly)));
    assert!(matches!(reader.collect(), Err(Error::ReadOnly)));
    assert!(matches!(reader.wipe_all(), Err(Error::ReadOnly)));
    // It sees what is written later.
    put_noise(&store, 2, 10_000).unwrap();
    assert!(check_noise(&reader, 2));
    store.remove(&space(), &[key(1)]).unwrap();
    assert_eq!(
        reader.read(&space(), &key(1)).unwrap_err().miss(),
        Some(Miss::Removed)
    );
    assert!(reader.verify(&mut go_on).unwrap().is_sound());
}
