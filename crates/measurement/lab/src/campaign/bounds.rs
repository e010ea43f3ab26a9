//! The time that a lab may take, and the bytes that it may write.

use anyhow::ensure;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terapage_config::Size;

/// Bounds of all runs together. Results from before a bound was reached are kept.
#[derive(Debug, Default)]
pub struct Bounds {
    /// The limit of time, and its beginning.
    time: Option<(Instant, Duration)>,
    /// Bytes written to the device by all runs.
    most_written: Option<u64>,
    written: AtomicU64,
    /// When no further cell of the experiment begins.
    cells: Option<Instant>,
}

impl Bounds {
    /// From now on.
    pub fn new(most_minutes: Option<u64>, most_written: Option<u64>) -> Bounds {
        let time = most_minutes.map(|minutes| (Instant::now(), Duration::from_secs(minutes * 60)));
        Bounds { time, most_written, ..Bounds::default() }
    }

    /// From `end` on, no further cell of an experiment begins, and the next experiment does.
    pub fn until(&mut self, end: Option<Instant>) {
        self.cells = end;
    }

    /// Whether no further cell of the experiment may begin.
    pub fn is_over(&self) -> bool {
        self.cells.is_some_and(|end| Instant::now() >= end)
    }

    /// This many more bytes were written.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
    }

    /// Whether another run may begin.
    ///
    /// # Errors
    /// A bound is reached; one line.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some((since, most)) = self.time {
            let minutes = most.as_secs() / 60;
            ensure!(since.elapsed() < most, "it has taken the {minutes} minutes of --most-minutes");
        }
        if let Some(most) = self.most_written {
            let written = self.written.load(Relaxed);
            ensure!(written < most, "{} are written, --most-written is {}", Size(written), Size(most));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Bounds;
    use std::time::{Duration, Instant};

    #[test]
    fn nothing_begins_beyond_a_bound() {
        let free = Bounds::default();
        free.wrote(u64::MAX / 2);
        assert!(free.check().is_ok());
        let (mut cells, now) = (Bounds::default(), Instant::now());
        assert!(!cells.is_over());
        cells.until(Some(now));
        assert!(cells.is_over() && cells.check().is_ok());
        cells.until(Some(now + Duration::from_secs(1000)));
        assert!(!cells.is_over());
        let error = Bounds::new(Some(0), None).check().expect_err("no time at all").to_string();
        assert!(error.contains("--most-minutes"), "{error}");
        let some = Bounds::new(Some(1000), Some(4096));
        some.wrote(4095);
        assert!(some.check().is_ok());
        some.wrote(1);
        let error = some.check().expect_err("all is written").to_string();
        assert!(error.contains("4 KiB are written, --most-written is 4 KiB"), "{error}");
    }
}
