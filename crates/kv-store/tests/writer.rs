//! The writer thread.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use prefill_kv_store::{
    DType, Job, Kind, Layout, OwnedTensor, OwnedWrite, Store, Submitted, WhenFull, Writer,
    WriterOptions,
};
use support::{check_noise, key, noise, options, space};

fn job(n: u64, len: usize) -> Job<Vec<u8>> {
    let tensor = OwnedTensor {
        name: "x".into(),
        dtype: DType::U8,
        layout: Layout::contiguous(&[len]).unwrap(),
        owner: noise(n, len),
    };
    let record = OwnedWrite {
        key: key(n),
        kind: Kind::Rows,
        parent: None,
        cost: 1.0,
        tensors: vec![tensor],
        metadata: vec![],
    };
    Job {
        namespace: space(),
        records: vec![record],
        removals: vec![],
    }
}

#[test]
fn owners_come_back_in_order() {
    let store = Store::in_memory(options()).unwrap();
    let (writer, acks) = Writer::spawn(store.clone(), WriterOptions::default()).unwrap();
    for n in 0..20 {
        assert!(matches!(writer.submit(job(n, 10_000)).unwrap(), Submitted::Queued(t) if t == n));
    }
    writer.flush();
    assert!(!writer.is_pending(&space(), &key(19)));
    for n in 0..20 {
        let ack = acks.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!((ack.ticket, ack.owners), (n, vec![noise(n, 10_000)]));
        assert_eq!(ack.result.unwrap().written, 1);
        assert!(check_noise(&store, n));
    }
    let stats = writer.stats();
    assert_eq!(
        (stats.written_jobs, stats.queued_bytes, stats.dropped_jobs),
        (20, 0, 0)
    );
}

/// A store whose folder another writer holds until the guard is dropped.
fn held() -> (Store, Box<dyn Send>) {
    use prefill_kv_store::vfs::{MemoryVfs, Vfs};
    let vfs = MemoryVfs::new();
    let guard = vfs.try_lock().unwrap().unwrap();
    (
        Store::with_vfs(Arc::new(vfs), options(), false).unwrap(),
        guard,
    )
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (store, guard) = held();
    let options = WriterOptions {
        queue_bytes: 25_000,
        when_full: WhenFull::Drop,
    };
    let (writer, acks) = Writer::spawn(store.clone(), options).unwrap();
    let mut dropped = Vec::new();
    for n in 0..5 {
        if let Submitted::Dropped(job) = writer.submit(job(n, 10_000)).unwrap() {
            dropped.push(job.records[0].key);
        }
    }
    assert_eq!(dropped, [key(2), key(3), key(4)]);
    assert!(writer.is_pending(&space(), &key(1)) && !writer.is_pending(&space(), &key(2)));
    drop(guard);
    writer.flush();
    let stats = writer.stats();
    assert_eq!(
        (stats.dropped_jobs, stats.dropped_bytes, stats.written_jobs),
        (3, 30_000, 2)
    );
    assert!(stats.peak_queued_bytes <= 25_000);
    drop(writer);
    assert_eq!(acks.iter().count(), 2);
}

#[test]
fn a_full_queue_blocks_until_there_is_room() {
    let (store, guard) = held();
    let options = WriterOptions {
        queue_bytes: 25_000,
        when_full: WhenFull::Block,
    };
    let (writer, acks) = Writer::spawn(store.clone(), options).unwrap();
    let submitter = std::thread::spawn(move || {
        for n in 0..5 {
            assert!(matches!(
                writer.submit(job(n, 10_000)).unwrap(),
                Submitted::Queued(_)
            ));
            assert!(writer.stats().queued_bytes <= 25_000);
        }
        // A job above the limit goes through by itself.
        assert!(matches!(
            writer.submit(job(9, 90_000)).unwrap(),
            Submitted::Queued(_)
        ));
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!submitter.is_finished());
    drop(guard);
    submitter.join().unwrap();
    assert_eq!(acks.iter().count(), 6);
    assert!([0, 1, 2, 3, 4, 9].iter().all(|&n| check_noise(&store, n)));
}

#[test]
fn a_writer_that_never_ends_is_reported() {
    use prefill_kv_store::vfs::{MemoryVfs, Vfs};
    use prefill_kv_store::{Error, Options};
    let vfs = MemoryVfs::new();
    let guard = vfs.try_lock().unwrap().unwrap();
    let lock_timeout = Duration::from_millis(50);
    let options = Options {
        lock_timeout,
        ..options()
    };
    let store = Store::with_vfs(Arc::new(vfs), options, false).unwrap();
    let error = support::put_noise(&store, 1, 1000).unwrap_err();
    assert!(
        matches!(error, Error::Busy { waited } if waited >= lock_timeout),
        "{error}"
    );
    drop(guard);
    support::put_noise(&store, 1, 1000).unwrap();
}

#[test]
fn dropping_the_writer_writes_what_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), options()).unwrap();
    let (writer, acks) = Writer::spawn(store, WriterOptions::default()).unwrap();
    drop(acks);
    for n in 0..10 {
        writer.submit(job(n, 100_000)).unwrap();
    }
    drop(writer);
    let store = Store::open_read_only(folder.path(), options()).unwrap();
    assert!((0..10).all(|n| check_noise(&store, n)));
}

#[test]
fn a_layout_outside_its_owner_is_refused() {
    let store = Store::in_memory(options()).unwrap();
    let (writer, _acks) = Writer::spawn(store, WriterOptions::default()).unwrap();
    let mut bad = job(1, 100);
    bad.records[0].tensors[0].owner.pop();
    assert!(matches!(
        writer.submit(bad),
        Err(prefill_kv_store::Error::OutOfBounds { .. })
    ));
}
