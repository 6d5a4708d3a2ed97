//! `strftime_now`: Python's `datetime.now().strftime(format)`.

use std::cell::Cell;
use std::time::SystemTime;

use jiff::fmt::strtime;
use jiff::{Timestamp, Zoned};
use minijinja::{Error, ErrorKind};

thread_local! {
    /// The time of the render that this thread makes.
    static NOW: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// Sets the time until the guard is dropped.
pub(super) fn set(now: SystemTime) -> impl Drop {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            NOW.set(None);
        }
    }
    NOW.set(Some(now));
    Guard
}

/// The time in the local zone, or in UTC where that is not known.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    let refused = |error: jiff::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = NOW.get().unwrap_or_else(SystemTime::now);
    let now = Timestamp::try_from(now).map_err(refused)?;
    text(format, &now.to_zoned(jiff::tz::TimeZone::system())).map_err(refused)
}

fn text(format: &str, now: &Zoned) -> Result<String, jiff::Error> {
    strtime::format(format, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_python_writes_them() {
        let now: Zoned = "2024-07-03T05:06:07.089+02:00[Europe/Berlin]"
            .parse()
            .unwrap_or_else(|_| {
                // Without a database of time zones.
                "2024-07-03T05:06:07.089+02:00[+02:00]".parse().unwrap()
            });
        for (format, expected) in [
            ("%d %b %Y", "03 Jul 2024"),
            ("%B %-d, %Y", "July 3, 2024"),
            ("%Y-%m-%d", "2024-07-03"),
            ("%A %H:%M:%S %p", "Wednesday 05:06:07 AM"),
            ("%j %y %I %a %%", "185 24 05 Wed %"),
        ] {
            assert_eq!(text(format, &now).unwrap(), expected);
        }
    }
}
