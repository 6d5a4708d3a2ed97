//! What a file may ask for.

use std::time::Duration;

/// Bounds on what is allocated or computed because a file says so.
///
/// They are checked against the file's claims before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest `width * height`. By default 178,956,970, where Pillow raises
    /// `DecompressionBombError` (twice its `MAX_IMAGE_PIXELS`).
    pub max_pixels: u64,
    /// Most bytes that decoding may hold at once: the decoded pixels and the decoder's own
    /// planes. By default 1 GiB.
    pub max_decoded_bytes: u64,
    /// Longest time that one decode may take; checked as input is read. By default 30 s.
    pub max_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_decoded_bytes: 1 << 30,
            max_time: Duration::from_secs(30),
        }
    }
}
