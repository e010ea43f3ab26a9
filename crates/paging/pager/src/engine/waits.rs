//! The time for which threads wait for faults.
//!
//! The kernel does not say when a thread has faulted. A thread faults after it was woken, and while
//! the pager works it does not read the fault at once. So the wait for a fault begins at the last
//! time before it: when faults were read or a thread was woken, or, if the pager had nothing to do,
//! when it woke up. Two times are not counted: the time that a fault needs to wake the pager, and
//! the time until the thread runs again. Nor, if several threads fault, does the time count that
//! one waits before another one is woken.

use super::Engine;
use std::sync::atomic::Ordering::Relaxed;
use terapage_stats::Counters;

/// The most faults on blocks that are on their way. Chosen, not measured.
const LATE_MOST: usize = 1024;

/// The data about present waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Faults that have not been read came after this time, ns.
    since_ns: u64,
    /// Faults that were read last came after this time, ns.
    read_ns: u64,
    /// Threads that wait for blocks on their way: the block, and the start of the wait, ns.
    late: Vec<(u32, u64)>,
    /// Waits that were not yet counted, ns.
    minor_ns: u64,
    major_ns: u64,
}

impl Waits {
    /// The pager had nothing to do until now.
    pub fn idle(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// Faults were read now.
    pub fn faults_read(&mut self, now_ns: u64) {
        self.read_ns = if self.since_ns == 0 { now_ns } else { self.since_ns };
        self.since_ns = now_ns;
    }

    /// The start of the wait of the faults that were read last, ns.
    pub fn began_ns(&self) -> u64 {
        self.read_ns
    }

    /// A thread waits for a block that is on its way.
    pub fn late(&mut self, block: u32) {
        if self.late.len() < LATE_MOST {
            self.late.push((block, self.read_ns));
        }
    }

    /// A thread has waited for its page from `began_ns` to now.
    fn end(&mut self, began_ns: u64, now_ns: u64, major: bool) {
        let sum = if major { &mut self.major_ns } else { &mut self.minor_ns };
        *sum += now_ns.saturating_sub(began_ns);
        self.since_ns = now_ns;
    }

    /// The threads that wait for these blocks wait no longer.
    fn come(&mut self, blocks: &[u32], now_ns: u64, major: bool) {
        let mut at = 0;
        while let Some(&(block, began_ns)) = self.late.get(at) {
            if blocks.contains(&block) {
                self.late.swap_remove(at);
                self.end(began_ns, now_ns, major);
            } else {
                at += 1;
            }
        }
    }

    /// Takes the whole microseconds to be counted: major, minor.
    fn take_us(&mut self) -> [u64; 2] {
        [&mut self.major_ns, &mut self.minor_ns].map(|sum| {
            let us = *sum / 1000;
            *sum %= 1000;
            us
        })
    }
}

impl Engine {
    /// A thread that touched a block without bytes in the store has its page.
    pub(crate) fn minor_wait_ends(&mut self) {
        let now_ns = self.now();
        self.waits.end(self.waits.read_ns, now_ns, false);
    }

    /// A thread that has waited for a read since `began_ns` has its page.
    pub(crate) fn major_wait_ends(&mut self, began_ns: u64, now_ns: u64) {
        self.waits.end(began_ns, now_ns, true);
    }

    /// Threads that waited for blocks on their way have them: from the store, or because the blocks
    /// had not left.
    pub(crate) fn late_waits_end(&mut self, blocks: &[u32], major: bool) {
        if !self.waits.late.is_empty() {
            let now_ns = self.now();
            self.waits.come(blocks, now_ns, major);
        }
    }

    /// Counts the time of all waits, also of those for requests.
    pub(crate) fn count_waits(&mut self) {
        let [major_us, minor_us] = self.waits.take_us();
        Counters::add(&self.counters.major_wait_us, major_us);
        Counters::add(&self.counters.minor_wait_us, minor_us);
        let [asked, waited_ns] = self.mailbox.asked();
        self.counters.requests.store(asked, Relaxed);
        self.counters.request_wait_us.store(waited_ns / 1000, Relaxed);
        if !self.trials.are_off() {
            let [together, apart] = self.trials.splitting.trials();
            self.counters.trials_together.store(together, Relaxed);
            self.counters.trials_apart.store(apart, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Waits;

    #[test]
    fn a_fault_counts_from_when_it_may_have_come() {
        let mut waits = Waits::default();
        waits.idle(10_000);
        waits.faults_read(11_000);
        waits.end(waits.began_ns(), 15_000, false);
        assert_eq!(waits.take_us(), [0, 5]);
        // The pager has continued to work: the thread, woken at 15, has faulted since.
        waits.faults_read(40_000);
        waits.end(waits.began_ns(), 47_500, true);
        assert_eq!(waits.take_us(), [32, 0]);
        waits.idle(100_000);
        waits.faults_read(100_000);
        waits.end(waits.began_ns(), 100_500, true);
        assert_eq!(waits.take_us(), [1, 0], "the rests add up");
    }

    #[test]
    fn who_waits_for_a_block_on_its_way_counts_once() {
        let mut waits = Waits::default();
        waits.faults_read(1_000);
        (7..10).for_each(|block| waits.late(block));
        waits.come(&[8, 20], 4_000, true);
        assert_eq!(waits.take_us(), [3, 0]);
        waits.come(&[7, 8, 9], 5_000, false);
        assert_eq!(waits.take_us(), [0, 8]);
    }
}
