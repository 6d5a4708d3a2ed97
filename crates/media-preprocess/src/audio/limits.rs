//! What an audio file may ask for.

use std::time::Duration;

use crate::error::{Error, Result};

/// The highest sampling rate that is taken: twice the highest in use (384 kHz).
pub(crate) const MAX_RATE: u32 = 768_000;

/// The most channels that are taken.
pub(crate) const MAX_CHANNELS: usize = 64;

/// Bounds on what decoding holds and how long it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most samples that may be held, after resampling. By default three hours at 16 kHz:
    /// 172,800,000 samples, 691 MB. What [`AudioStream`](super::AudioStream) hands over block by block isn't
    /// counted.
    pub max_samples: u64,
    /// Longest time that one decode may take, checked at every packet. By default ten minutes.
    pub max_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_samples: 3 * 3600 * 16_000,
            max_time: Duration::from_mins(10),
        }
    }
}

/// Refuses rates that can't be resampled.
pub(crate) fn check_rate(rate: u32) -> Result<()> {
    if rate == 0 || rate > MAX_RATE {
        return Err(Error::SampleRate {
            found: rate,
            limit: MAX_RATE,
        });
    }
    Ok(())
}

/// Refuses clips without channels, and with absurdly many.
pub(crate) fn check_channels(channels: usize) -> Result<()> {
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(Error::Channels {
            found: channels,
            limit: MAX_CHANNELS,
        });
    }
    Ok(())
}
