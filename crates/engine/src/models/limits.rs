//! What the checks of every family's configuration share.

use crate::{Error, Result};

/// No published model comes near these limits; with them every product of sizes that the
/// models form stays inside an `i32`.
pub(super) const LARGEST_SIZE: i32 = 1 << 20;
const MOST_LAYERS: usize = 1 << 10;
pub(super) const MOST_HEADS: i32 = 1 << 10;

/// An error about a key.
pub(super) fn unsupported(key: &'static str, fact: &str) -> Error {
    Error::Config {
        key,
        fact: fact.to_owned(),
    }
}

pub(super) fn check_range(key: &'static str, size: i32, largest: i32) -> Result<()> {
    if !(1..=largest).contains(&size) {
        let fact = format!("{size} is not in 1..={largest}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}

pub(super) fn check_layers(key: &'static str, layers: usize) -> Result<()> {
    if !(1..=MOST_LAYERS).contains(&layers) {
        let fact = format!("{layers} is not in 1..={MOST_LAYERS}");
        return Err(Error::Config { key, fact });
    }
    Ok(())
}
