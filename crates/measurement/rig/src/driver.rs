//! A thread that submits reads, by a schedule or as fast as slots become free.

use crate::calls::{Read, Way, now_ns, sleep_until};
use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use terapage_figures::SplitMix;

/// Latencies above this count as equal, ns.
const LATENCY_MOST_NS: u64 = 60_000_000_000;

/// A thread that submits reads.
pub struct Driver {
    /// The way in which reads are submitted.
    pub way: Way,
    /// Blocks that can be read.
    places: u64,
    block: u64,
    numbers: SplitMix,
    free: Vec<usize>,
    /// The times when the read of each slot was due, and when it was submitted.
    due: Vec<(u64, u64)>,
    batch: Vec<Read>,
    ended: Vec<usize>,
    /// The lateness of reads, ns: from when each was due.
    pub latency: Histogram<u64>,
    /// Their time from when each was submitted, ns, as fio has it.
    pub from_submission: Histogram<u64>,
    /// Reads that have ended.
    pub ios: u64,
}

impl Driver {
    /// A driver that reads `block` bytes at `places` places, chosen by a seed, with `slots` slots
    /// for batches of `m`; latencies have this number of digits.
    ///
    /// # Errors
    /// There is no memory for the histogram.
    pub fn new(
        way: Way,
        (places, block): (u64, u64),
        seed: u64,
        (slots, m): (usize, usize),
        digits: u8,
    ) -> anyhow::Result<Driver> {
        let empty = Histogram::new_with_bounds(1, LATENCY_MOST_NS, digits).context("a histogram")?;
        Ok(Driver {
            way,
            places,
            block,
            numbers: SplitMix(seed),
            free: (0..slots).collect(),
            due: vec![(0, 0); slots],
            batch: Vec::with_capacity(m),
            ended: Vec::with_capacity(slots),
            latency: empty.clone(),
            from_submission: empty,
            ios: 0,
        })
    }

    /// Submits `m` reads that were due at `due`.
    ///
    /// # Errors
    /// A read fails.
    pub fn hand_in(&mut self, m: usize, due: u64) -> anyhow::Result<()> {
        self.batch.clear();
        let now = now_ns();
        for _ in 0..m {
            let Some(slot) = self.free.pop() else { bail!("no slot is free") };
            self.due[slot] = (due, now);
            let offset = self.numbers.below(self.places) * self.block;
            self.batch.push(Read { slot, offset });
        }
        self.way.submit(&self.batch)
    }

    /// Waits for completions, and notes how late they are.
    ///
    /// # Errors
    /// A read fails.
    pub fn reap(&mut self, least: usize, until: Option<u64>) -> anyhow::Result<()> {
        self.way.reap(least, until, &mut self.ended)?;
        let now = now_ns();
        for slot in self.ended.drain(..) {
            let (due, submitted) = self.due[slot];
            self.latency.saturating_record(now.saturating_sub(due).max(1));
            self.from_submission.saturating_record(now.saturating_sub(submitted).max(1));
            self.free.push(slot);
            self.ios += 1;
        }
        Ok(())
    }

    /// The number of reads in flight.
    fn in_flight(&self) -> usize {
        self.due.len() - self.free.len()
    }

    /// Batch `k` is due at `start + k * each`.
    ///
    /// # Errors
    /// A read fails.
    pub fn open_loop(&mut self, m: usize, each_ns: f64, batches: u64, start_ns: u64) -> anyhow::Result<()> {
        let mut next = 0;
        loop {
            let due = start_ns + (next as f64 * each_ns) as u64;
            let more = next < batches;
            if more && self.free.len() >= m && now_ns() >= due {
                self.hand_in(m, due)?;
                next += 1;
                // Reads that have completed meanwhile are noted now, without waiting, if the way
                // has reported them.
                if matches!(self.way, Way::Pread { .. } | Way::Sleep { .. }) {
                    self.reap(0, None)?;
                }
                continue;
            }
            let flying = self.in_flight() > 0;
            match (more, flying) {
                (false, false) => return Ok(()),
                (true, false) => sleep_until(due),
                (true, true) if self.free.len() >= m => self.reap(1, Some(due))?,
                (_, true) => self.reap(1, None)?,
            }
        }
    }

    /// As many as there are slots, until a time.
    ///
    /// # Errors
    /// A read fails.
    pub fn closed_loop(&mut self, m: usize, end_ns: u64) -> anyhow::Result<()> {
        loop {
            while self.free.len() >= m && now_ns() < end_ns {
                self.hand_in(m, now_ns())?;
                if matches!(self.way, Way::Pread { .. } | Way::Sleep { .. }) {
                    self.reap(0, None)?;
                }
            }
            if self.in_flight() == 0 {
                return Ok(());
            }
            self.reap(1, None)?;
        }
    }
}

/// One load without spinners, for the emulated machine; `after` is called after each batch.
///
/// # Errors
/// A read fails.
pub fn batches(
    way: Way,
    places: u64,
    block: u64,
    m: usize,
    count: usize,
    mut after: impl FnMut(),
) -> anyhow::Result<u64> {
    let mut driver = Driver::new(way, (places, block), 1, (m, m), 1)?;
    for _ in 0..count {
        driver.hand_in(m, 0)?;
        while driver.in_flight() > 0 {
            driver.reap(m, None)?;
        }
        after();
    }
    Ok(driver.ios)
}
