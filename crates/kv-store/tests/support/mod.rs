//! What several test programs share.
#![allow(dead_code, unreachable_pub)]

/// Runs a test on each kind of store.
#[allow(unused_macros)]
macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod disk {
            $(#[test] fn $name() {
                let folder = tempfile::tempdir().unwrap();
                super::$name(&prefill_kv_store::Store::open(folder.path(), super::support::options()).unwrap());
            })*
        }
        mod memory {
            $(#[test] fn $name() {
                super::$name(&prefill_kv_store::Store::in_memory(super::support::options()).unwrap());
            })*
        }
    };
}

pub mod hooked;

use prefill_kv_store::{Batch, DType, Key, Kind, Layout, Namespace, Options, Record, Store, View};

pub fn options() -> Options {
    Options {
        free_floor: 0,
        threads: 2,
        ..Default::default()
    }
}

pub fn space() -> Namespace {
    Namespace::new("test").unwrap()
}

pub fn key(n: u64) -> Key {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Key::new(bytes)
}

/// Bytes that depend on the seed and do not repeat.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Puts one record of `len` bytes of noise that its key determines.
pub fn put_noise(store: &Store, n: u64, len: usize) -> prefill_kv_store::Result<()> {
    let data = noise(n, len);
    let view = View::new(&data, DType::U8, Layout::contiguous(&[len])?)?;
    let mut batch = Batch::new();
    batch.push(Record::new(key(n), Kind::Rows).tensor("x", view).cost(1.0));
    store.put(&space(), &batch).map(drop)
}

/// Reads a record of noise and checks it; whether it was there.
pub fn check_noise(store: &Store, n: u64) -> bool {
    match store.read(&space(), &key(n)) {
        Ok(record) => {
            let bytes = record.tensor(0).unwrap().to_vec();
            assert_eq!(bytes, noise(n, bytes.len()), "record {n} has wrong bytes");
            true
        }
        Err(error) => {
            assert!(error.miss().is_some(), "{error}");
            false
        }
    }
}
