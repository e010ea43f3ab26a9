//! A bell: threads sleep at it until it rings.
//!
//! A thread [listens](Bell::listen) before it looks for work, and sleeps only if the bell has not
//! rung since. So no ring is lost if the thread that makes work rings afterwards.

use crate::sync::{Word, wait, wait_ms, wake};
use std::sync::atomic::Ordering::SeqCst;

/// A bell that can ring often and end once.
pub(crate) struct Bell {
    /// Counts rings; the threads sleep on it.
    rings: Word,
    ended: Word,
}

impl Bell {
    pub fn new() -> Bell {
        Bell { rings: Word::new(0), ended: Word::new(0) }
    }

    /// The number of rings so far. `None` if the bell has ended: then the thread must end, too.
    pub fn listen(&self) -> Option<u32> {
        let heard = self.rings.load(SeqCst);
        (self.ended.load(SeqCst) == 0).then_some(heard)
    }

    /// Sleeps unless the bell has rung since `heard`. May return early.
    pub fn wait(&self, heard: u32) {
        wait(&self.rings, heard);
    }

    /// Like [`wait`](Self::wait), for `ms` milliseconds at most.
    pub fn wait_ms(&self, heard: u32, ms: u64) {
        wait_ms(&self.rings, heard, ms);
    }

    /// Wakes all threads that sleep, and those that have listened and are about to sleep.
    pub fn ring(&self) {
        self.rings.fetch_add(1, SeqCst);
        wake(&self.rings);
    }

    /// Ends the bell: no thread sleeps at it any longer.
    pub fn end(&self) {
        self.ended.store(1, SeqCst);
        self.ring();
    }
}
