//! An event count, at which threads sleep until there is work for them.
//!
//! A thread [reads](EventCount::read) the count before it looks for work, and sleeps only if the
//! count is still the same. So no event is lost if the thread that makes work notifies afterwards.

use crate::sync::{Word, wait, wait_ms, wake};
use std::sync::atomic::Ordering::SeqCst;

/// A count of events, which can end once.
pub(crate) struct EventCount {
    /// The threads sleep on the count.
    count: Word,
    ended: Word,
}

impl EventCount {
    pub fn new() -> EventCount {
        EventCount { count: Word::new(0), ended: Word::new(0) }
    }

    /// The number of events so far. `None` if the count has ended: then the thread must end, too.
    pub fn read(&self) -> Option<u32> {
        let count = self.count.load(SeqCst);
        (self.ended.load(SeqCst) == 0).then_some(count)
    }

    /// Sleeps unless there was an event since the thread has read `count`. May return early.
    pub fn wait(&self, count: u32) {
        wait(&self.count, count);
    }

    /// Like [`wait`](Self::wait), for `ms` milliseconds at most.
    pub fn wait_ms(&self, count: u32, ms: u64) {
        wait_ms(&self.count, count, ms);
    }

    /// Counts an event: wakes all threads that sleep, and those that have read the count and are
    /// about to sleep.
    pub fn notify(&self) {
        self.count.fetch_add(1, SeqCst);
        wake(&self.count);
    }

    /// Ends the count: no thread sleeps at it any longer.
    pub fn end(&self) {
        self.ended.store(1, SeqCst);
        self.notify();
    }
}
