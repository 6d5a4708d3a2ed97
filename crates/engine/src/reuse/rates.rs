//! How fast things have been, to choose between reading and computing.

use std::time::Duration;

/// How much one measurement counts against those before it.
const WEIGHT: f64 = 0.3;

/// Units a second, as a moving average.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate(Option<f64>);

impl Rate {
    pub(crate) fn note(&mut self, units: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        if units == 0 || seconds <= 0.0 {
            return;
        }
        let found = units as f64 / seconds;
        self.0 = Some(match self.0 {
            Some(before) => before + WEIGHT * (found - before),
            None => found,
        });
    }

    /// Seconds that so many units take, if that was ever measured.
    pub(crate) fn seconds(self, units: u64) -> Option<f64> {
        Some(units as f64 / self.0?)
    }
}

/// What was measured so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    /// Bytes read from disk, verified.
    pub read: Rate,
    /// Tokens of prefill.
    pub prefill: Rate,
    /// Soft tokens of a tower.
    pub encode: Rate,
    /// How often reading was found not worth while since the last time.
    refusals: u32,
}

/// Of so many times that reading seems too slow, it is tried once: disks get faster again.
const TRIED_OF: u32 = 16;

impl Rates {
    /// Whether reading so many bytes takes no longer than computing so many `units` at that
    /// rate. What was never measured is tried.
    pub(crate) fn is_worth_reading(&mut self, bytes: u64, units: u64, computing: Rate) -> bool {
        match (self.read.seconds(bytes), computing.seconds(units)) {
            (Some(reading), Some(computing)) if reading > computing => {
                self.refusals = (self.refusals + 1) % TRIED_OF;
                self.refusals == 0
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quicker_way_is_taken() {
        let mut rates = Rates::default();
        assert!(rates.is_worth_reading(u64::MAX, 1, rates.prefill));
        rates.read.note(1000, Duration::from_secs(1));
        rates.prefill.note(10, Duration::from_secs(1));
        assert!(rates.is_worth_reading(1000, 10, rates.prefill));
        for _ in 1..TRIED_OF {
            assert!(!rates.is_worth_reading(1001, 10, rates.prefill));
        }
        assert!(
            rates.is_worth_reading(1001, 10, rates.prefill),
            "once in a while"
        );
        assert!(!rates.is_worth_reading(1001, 10, rates.prefill));
        // Later measurements count.
        for _ in 0..20 {
            rates.read.note(10_000, Duration::from_secs(1));
        }
        assert!(rates.is_worth_reading(9_000, 10, rates.prefill));
        // One that measured nothing does not.
        rates.prefill.note(0, Duration::from_secs(9));
        rates.prefill.note(5, Duration::ZERO);
        assert!(rates.is_worth_reading(9_000, 10, rates.prefill));
    }
}
