//! Many threads on clones of one store.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use prefill_kv_store::{Options, Store};
use support::{check_noise, key, options, put_noise, space};

#[test]
fn readers_that_refresh_do_not_undo_what_a_writer_does() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 2 << 20;
    let store = Store::open(folder.path(), Options { limit, ..options() }).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    // Keys that are never there make the store look at the folder.
                    check_noise(&store, 1_000_000 + n);
                    check_noise(&store, n % 150);
                    n += 1;
                }
            });
        }
        for n in 0..150 {
            put_noise(&store, n, 30_000).unwrap();
            assert!(check_noise(&store, n), "record {n} was just written");
            if n % 7 == 0 {
                store.remove(&space(), &[key(n)]).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    assert_eq!((stats.torn, stats.foreign_files), (0, 0), "{stats:?}");
    assert!(stats.used_bytes <= limit && stats.evicted > 0);
    let again = Store::open(folder.path(), options()).unwrap();
    let (now, then) = (again.stats(), store.stats());
    assert_eq!(
        (now.records, now.used_bytes),
        (then.records, then.used_bytes)
    );
    assert!(again.verify(&mut |_, _| true).unwrap().is_sound());
}
