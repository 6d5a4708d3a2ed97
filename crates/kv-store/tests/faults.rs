//! Errors, crashes and power cuts at every call. `KV_STORE_CUTS` sets how many states of the disk
//! are tried for each call at which the power may fail: 6 by default.

#![allow(clippy::unwrap_used)]

mod support;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use prefill_kv_store::vfs::MemoryVfs;
use prefill_kv_store::{Batch, DType, Error, Kind, Options, Record, Result, Snapshot, Store, View};
use support::hooked::{Hook, Hooked, Op, after_power_cut};
use support::{check_noise, key, noise, options, put_noise, space};

const LEN: usize = 40_000;

/// What a step promises once it has returned, and what it gives up once it has begun.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64),
    Supersede(u64, u64),
    Remove(u64),
    Save(u64),
    Collect,
}

const STEPS: [Step; 9] = [
    Step::Put(1),
    Step::Put(2),
    Step::Supersede(2, 3),
    Step::Save(10),
    Step::Put(4),
    Step::Remove(1),
    Step::Save(11),
    Step::Collect,
    Step::Put(5),
];

fn snapshot_data(version: u64) -> [Vec<u8>; 2] {
    // The first tensor is the same in every version, the second is not.
    [noise(100, LEN), noise(version, LEN)]
}

fn run(store: &Store, step: Step) -> Result<()> {
    match step {
        Step::Put(n) => put_noise(store, n, LEN),
        Step::Supersede(old, new) => {
            let data = noise(new, LEN);
            let mut batch = Batch::new();
            let view = View::contiguous(&data, DType::U8, &[LEN])?;
            batch
                .push(Record::new(key(new), Kind::Rows).tensor("x", view))
                .remove(key(old));
            store.put(&space(), &batch).map(drop)
        }
        Step::Remove(n) => store.remove(&space(), &[key(n)]).map(drop),
        Step::Save(version) => {
            let [a, b] = snapshot_data(version);
            let a = View::contiguous(&a, DType::U8, &[LEN])?;
            let b = View::contiguous(&b, DType::U8, &[LEN])?;
            let snapshot = Snapshot::new("s").tensor("a", a).tensor("b", b);
            store.save(&space(), &snapshot).map(drop)
        }
        Step::Collect => store.collect().map(drop),
    }
}

/// What must be in the store after some steps are done and one may be under way.
#[derive(Clone, Debug, Default)]
struct Promise {
    present: Vec<u64>,
    snapshot: Option<u64>,
    saving: Option<u64>,
}

impl Promise {
    fn begin(&mut self, step: Step) {
        match step {
            Step::Supersede(n, _) | Step::Remove(n) => self.present.retain(|&p| p != n),
            Step::Save(version) => self.saving = Some(version),
            _ => {}
        }
    }
    fn done(&mut self, step: Step) {
        match step {
            Step::Put(n) | Step::Supersede(_, n) => self.present.push(n),
            Step::Save(version) => (self.snapshot, self.saving) = (Some(version), None),
            _ => {}
        }
    }
    /// Opens what is left and holds it to the promise; then it must work as if nothing had been.
    fn check(&self, vfs: MemoryVfs, context: &str) {
        let store = Store::with_vfs(Arc::new(vfs), options(), false).unwrap();
        for n in 1..=5 {
            let there = check_noise(&store, n);
            assert!(
                there || !self.present.contains(&n),
                "{context}: record {n} is lost"
            );
        }
        match store.load(&space(), "s") {
            Ok(loaded) => {
                let fits = [self.snapshot, self.saving].into_iter().flatten();
                let sound = fits.into_iter().any(|v| loaded.bytes == snapshot_data(v));
                assert!(sound, "{context}: a snapshot of nothing that was saved");
            }
            Err(e) => assert!(
                self.snapshot.is_none(),
                "{context}: the snapshot is lost: {e}"
            ),
        }
        for step in STEPS {
            run(&store, step).unwrap_or_else(|e| panic!("{context}: {step:?}: {e}"));
        }
        assert!(
            [3, 4, 5].iter().all(|&n| check_noise(&store, n)),
            "{context}"
        );
        store.collect().unwrap();
        let report = store.verify(&mut |_, _| true).unwrap();
        assert!(report.is_sound(), "{context}: {report:?}");
        // Three records, a snapshot and its two blocks: nothing is left behind.
        let stats = store.stats();
        assert_eq!((stats.records, stats.foreign_files), (6, 0), "{context}");
        assert!(
            stats.used_bytes < 5 * 49_152 + 8192,
            "{context}: {}",
            stats.used_bytes
        );
    }
}

/// Runs the steps with a hook; returns what is promised when a step fails, or at the end.
fn play(hook: Hook, longest_write: usize) -> (MemoryVfs, Promise, Option<Error>) {
    let inner = MemoryVfs::new();
    let vfs = Arc::new(Hooked {
        inner: inner.clone(),
        hook,
        longest_write,
    });
    let mut promise = Promise::default();
    let outcome = (|| {
        let store = Store::with_vfs(
            vfs,
            Options {
                threads: 1,
                ..options()
            },
            false,
        )?;
        for step in STEPS {
            promise.begin(step);
            run(&store, step)?;
            promise.done(step);
            // A read that fails is a miss, never a wrong answer.
            for n in 1..=5 {
                check_noise(&store, n);
            }
        }
        Ok(())
    })();
    (inner, promise, outcome.err())
}

fn count_calls() -> u64 {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let hook: Hook = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let (_, _, error) = play(hook, usize::MAX);
    assert!(error.is_none());
    calls.load(Ordering::Relaxed)
}

#[test]
fn any_call_may_fail_once() {
    let calls = count_calls();
    assert!(calls > 200, "{calls} calls");
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        for at in 0..calls {
            let counter = AtomicU64::new(0);
            let hook: Hook = Arc::new(move |_| {
                let here = counter.fetch_add(1, Ordering::Relaxed) == at;
                if here { Err(kind.into()) } else { Ok(()) }
            });
            let (vfs, promise, _) = play(hook, usize::MAX);
            promise.check(vfs, &format!("{kind} at call {at}"));
        }
    }
}

#[test]
fn a_process_may_die_at_any_call() {
    for at in 0..count_calls() {
        let counter = AtomicU64::new(0);
        let hook: Hook = Arc::new(move |_| {
            let alive = counter.fetch_add(1, Ordering::Relaxed) < at;
            if alive {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
        let (vfs, promise, error) = play(hook, usize::MAX);
        assert!(error.is_some() || at > 0);
        promise.check(vfs, &format!("dead from call {at} on"));
    }
}

#[test]
fn short_writes_are_completed() {
    let (vfs, promise, error) = play(Arc::new(|_| Ok(())), 1000);
    assert!(error.is_none());
    promise.check(vfs, "short writes");
}

#[test]
fn the_power_may_fail_at_any_call() {
    // The log, with the promise that held at each length of it.
    let log = Arc::new(Mutex::new(Vec::<Op>::new()));
    let logger = log.clone();
    let hook: Hook = Arc::new(move |op| {
        logger.lock().unwrap().push(op);
        Ok(())
    });
    let vfs = Arc::new(Hooked {
        inner: MemoryVfs::new(),
        hook,
        longest_write: 16_384,
    });
    let store = Store::with_vfs(
        vfs,
        Options {
            threads: 1,
            ..options()
        },
        false,
    )
    .unwrap();
    let mut promise = Promise::default();
    let mut promises = Vec::new();
    for step in STEPS {
        promise.begin(step);
        promises.push((log.lock().unwrap().len(), promise.clone()));
        run(&store, step).unwrap();
        promise.done(step);
        promises.push((log.lock().unwrap().len(), promise.clone()));
    }
    let log = log.lock().unwrap().clone();
    let mut state = 1u64;
    let variants = std::env::var("KV_STORE_CUTS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(6);
    for cut in 0..=log.len() {
        let held = promises.iter().rev().find(|(from, _)| *from <= cut);
        let promise = held.map(|(_, promise)| promise.clone()).unwrap_or_default();
        for variant in 0..variants {
            let mut keep = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                match variant {
                    0 => false,
                    1 => true,
                    _ => state % 100 < [10, 50, 90][variant % 3],
                }
            };
            let contents = after_power_cut(&log[..cut], &mut keep);
            let context = format!("power cut after call {cut}, variant {variant}");
            promise.check(MemoryVfs::with_contents(contents), &context);
        }
    }
}

#[test]
fn eviction_may_fail_at_any_call() {
    const LIMIT: u64 = 330_000;
    let tight = || Options {
        limit: LIMIT,
        threads: 1,
        ..options()
    };
    // Packs of two records, so that eviction rewrites manifests and punches holes.
    let put_two = |store: &Store, n: u64| {
        let data = [noise(n, LEN), noise(n + 1, LEN)];
        let mut batch = Batch::new();
        for (i, data) in (n..).zip(&data) {
            let view = View::contiguous(data, DType::U8, &[LEN])?;
            batch.push(Record::new(key(i), Kind::Rows).tensor("x", view));
        }
        store.put(&space(), &batch).map(drop)
    };
    let play = |hook: Hook| {
        let inner = MemoryVfs::new();
        let vfs = Arc::new(Hooked {
            inner: inner.clone(),
            hook,
            longest_write: usize::MAX,
        });
        if let Ok(store) = Store::with_vfs(vfs, tight(), false) {
            for n in (0..12).step_by(2) {
                // A failed put is given up; the store must go on with the next.
                let _ = put_two(&store, n);
                check_noise(&store, n / 2);
            }
        }
        inner
    };
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    play(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }));
    for at in 0..calls.load(Ordering::Relaxed) {
        for dead in [false, true] {
            let counter = AtomicU64::new(0);
            let inner = play(Arc::new(move |_| {
                let now = counter.fetch_add(1, Ordering::Relaxed);
                let fails = now == at || dead && now > at;
                if fails {
                    Err(io::ErrorKind::Other.into())
                } else {
                    Ok(())
                }
            }));
            let context = format!("call {at}, dead: {dead}");
            let store = Store::with_vfs(Arc::new(inner), tight(), false).unwrap();
            for n in 0..12 {
                check_noise(&store, n);
            }
            put_two(&store, 100).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(
                check_noise(&store, 100) && check_noise(&store, 101),
                "{context}"
            );
            let stats = store.stats();
            assert!(stats.used_bytes <= LIMIT, "{context}: {stats:?}");
            assert_eq!(stats.foreign_files, 0, "{context}");
            assert!(
                store.verify(&mut |_, _| true).unwrap().is_sound(),
                "{context}"
            );
        }
    }
}
