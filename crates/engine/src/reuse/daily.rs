//! How much is written in a day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes written on one day.
#[derive(Debug)]
pub(super) struct Today {
    day: u64,
    bytes: u64,
    limit: u64,
}

impl Today {
    /// With what was written today by an earlier process.
    pub(super) fn new(bytes: u64, limit: u64) -> Self {
        Self {
            day: day(),
            bytes,
            limit,
        }
    }

    /// Above half of the day's bytes only what was used again is written, above all nothing.
    pub(super) fn admits(&mut self, bytes: u64, uses: u32) -> bool {
        self.turn();
        let after = self.bytes.saturating_add(bytes);
        after <= self.limit / 2 || (after <= self.limit && uses > 1)
    }

    pub(super) fn count(&mut self, bytes: u64) {
        self.turn();
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn turn(&mut self) {
        let day = day();
        if day != self.day {
            (self.day, self.bytes) = (day, 0);
        }
    }
}

/// Days since 1970-01-01 UTC.
pub(super) fn day() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs() / 86_400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_a_day_are_bounded() {
        let mut today = Today::new(0, 100);
        assert!(today.admits(50, 1));
        assert!(!today.admits(51, 1) && today.admits(51, 2));
        today.count(60);
        assert!(!today.admits(1, 1) && today.admits(40, 2) && !today.admits(41, 2));
        // Another day.
        today.day -= 1;
        assert!(today.admits(50, 1));
        assert_eq!(today.bytes, 0);
    }
}
