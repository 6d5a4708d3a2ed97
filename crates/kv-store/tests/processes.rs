//! Several processes on one folder, and processes that are killed.
//!
//! The test program starts itself again with a role in its environment. `KV_STORE_KILLS` sets
//! how many writers are killed (50 by default; the long mode is 1000), `KV_STORE_STRESS_SECONDS`
//! how long the stress test runs (3 by default).

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prefill_kv_store::{Batch, DType, Kind, Options, Record, Store, View};
use support::{check_noise, key, noise, options, put_noise, space};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

fn start(role: &str, folder: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("KV_STORE_ROLE", role)
        .env("KV_STORE_FOLDER", folder)
        .env("KV_STORE_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process that was started again does. By itself it is no test.
#[test]
#[ignore = "the other processes of these tests"]
fn child() {
    let (Ok(role), Ok(folder)) = (
        std::env::var("KV_STORE_ROLE"),
        std::env::var("KV_STORE_FOLDER"),
    ) else {
        return;
    };
    let seed = setting("KV_STORE_SEED", 0);
    match role.as_str() {
        "victim" => victim(Path::new(&folder), seed),
        "stress" => stress(Path::new(&folder), seed),
        other => panic!("no role {other}"),
    }
}

/// Puts, supersedes and removes records for ever, saying what is durable and what is given up.
fn victim(folder: &Path, seed: u64) {
    let store = Store::open(folder, options()).unwrap();
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    say("\nbegun\n".into());
    for n in seed * 1000.. {
        match n % 4 {
            3 => {
                // A tail that supersedes the one before it.
                say(format!("gone {}\n", n - 1));
                let data = noise(n, 70_000);
                let view = View::contiguous(&data, DType::U8, &[70_000]).unwrap();
                let mut batch = Batch::new();
                batch.push(Record::new(key(n), Kind::Rows).tensor("x", view));
                batch.remove(key(n - 1));
                store.put(&space(), &batch).unwrap();
            }
            _ => put_noise(&store, n, 30_000).unwrap(),
        }
        say(format!("kept {n}\n"));
        if n % 8 == 7 {
            say(format!("gone {}\n", n - 6));
            store.remove(&space(), &[key(n - 6)]).unwrap();
            store.collect().unwrap();
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_was_told_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let kills = setting("KV_STORE_KILLS", 50);
    let mut state = 88_172_645_463_325_252u64;
    let (mut kept, mut total) = (Vec::<u64>::new(), 0);
    for round in 1..=kills {
        let mut child = start("victim", folder.path(), round);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Most are killed while they write, some before they have begun.
        if round % 5 != 0 {
            while lines
                .next()
                .is_some_and(|line| !line.unwrap().starts_with("begun"))
            {}
        }
        std::thread::sleep(Duration::from_micros(state % 25_000));
        child.kill().unwrap();
        for line in lines.map_while(Result::ok) {
            match line.split_once(' ') {
                Some(("kept", n)) => kept.extend(n.parse::<u64>()),
                Some(("gone", n)) => kept.retain(|k| n.parse() != Ok(*k)),
                _ => {}
            }
        }
        child.wait().unwrap();
        let store = Store::open(folder.path(), options()).unwrap();
        for &n in &kept {
            assert!(check_noise(&store, n), "kill {round}: record {n} is lost");
        }
        let report = store.verify(&mut |_, _| true).unwrap();
        assert!(report.damaged.is_empty(), "kill {round}: {report:?}");
        // It is not wedged, and what the dead writer left is gone after one write.
        put_noise(&store, u64::MAX - round, 1000).unwrap();
        assert_eq!(store.stats().foreign_files, 0, "kill {round}");
        total += kept.len();
        if round % 10 == 0 {
            store.wipe_all().unwrap();
            kept.clear();
        }
    }
    assert!(total > 0, "no writer wrote anything");
}

const LIMIT: u64 = 3 << 20;

/// Puts, reads, removes and collects at random among keys that all processes share.
fn stress(folder: &Path, seed: u64) {
    let store = Store::open(
        folder,
        Options {
            limit: LIMIT,
            ..options()
        },
    )
    .unwrap();
    let until = Instant::now() + Duration::from_secs(setting("KV_STORE_STRESS_SECONDS", 3));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut puts, mut hits) = (0, 0);
    while Instant::now() < until {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let n = state % 64;
        match (state >> 32) % 16 {
            0..6 => {
                put_noise(&store, n, 20_000 + (n as usize) * 2500).unwrap();
                puts += 1;
            }
            6 => drop(store.remove(&space(), &[key(n)]).unwrap()),
            7 => drop(store.collect().unwrap()),
            _ => hits += u64::from(check_noise(&store, n)),
        }
    }
    let stats = store.stats();
    // Only what is not there may miss: nothing is torn by another process's writer.
    assert_eq!(stats.torn, 0, "{stats:?}");
    let summary = format!("\ndone {puts} {hits} {}\n", stats.evicted);
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
}

#[test]
fn two_processes_write_read_evict_and_collect() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), options()).unwrap());
    let children: Vec<Child> = (1..=2)
        .map(|seed| start("stress", folder.path(), seed))
        .collect();
    let reader = Store::open_read_only(folder.path(), options()).unwrap();
    let (mut running, mut samples, mut seen) = (children, 0, 0u64);
    let mut outputs = Vec::new();
    while !running.is_empty() {
        for n in 0..64 {
            seen += u64::from(check_noise(&reader, n));
        }
        let used = disk_usage(&folder.path().join("v1"));
        assert!(used <= LIMIT, "{used} bytes on disk");
        samples += 1;
        let (finished, rest): (Vec<_>, Vec<_>) = running
            .into_iter()
            .map(|mut child| (child.try_wait().unwrap(), child))
            .partition(|(status, _)| status.is_some());
        for (status, mut child) in finished {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
            assert!(status.unwrap().success(), "a process failed:\n{text}");
            outputs.push(text);
        }
        running = rest.into_iter().map(|(_, child)| child).collect();
    }
    assert!(samples > 10 && seen > 0);
    assert_eq!(reader.stats().torn, 0);
    for text in outputs {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("done "))
            .expect("a summary");
        let counts: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        assert!(
            counts.iter().all(|&n| n > 0),
            "puts, hits and evictions: {counts:?}"
        );
    }
    let store = Store::open(folder.path(), options()).unwrap();
    let report = store.verify(&mut |_, _| true).unwrap();
    assert!(report.is_sound() && report.sound > 0, "{report:?}");
    store.wipe_all().unwrap();
    assert_eq!(disk_usage(&folder.path().join("v1")), 0);
}

fn disk_usage(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    entries
        .filter_map(|path| Some(std::fs::symlink_metadata(path).ok()?.blocks() * 512))
        .sum()
}
