//! The end of the engine while the program goes on, once all its memory belongs to the kernel.

use super::Engine;
use crate::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use terapage_sys::memory;

/// What the pager's thread does once the engine is gone.
pub(crate) type Over = Box<dyn FnOnce() + Send>;

impl Engine {
    /// While a release is asked for, lets the library do a part of it. Returns whether there is
    /// more to do now.
    pub(crate) fn see_to_release(&mut self) -> bool {
        let Some(releases) = self.options.releases.filter(|_| self.control.goes_on()) else { return false };
        let (mailbox, control) = (self.mailbox, self.control);
        let more = mailbox.lend(self, || releases(control));
        if more {
            // Nothing sleeps now, so the kernel may not have told of requests yet.
            self.io.enter(0);
        }
        more
    }

    /// Ends the engine, if all blocks are released. The pager's thread then calls `over`.
    pub(crate) fn end(&mut self, over: Over) -> Result<(), Error> {
        for region in self.table.regions() {
            let paged = self.table.parts(region.first, region.first + region.blocks, false);
            if let Some(&(first, end)) = paged.first() {
                let (start, len) = (self.table.address(first), (end - first) as usize * self.block);
                return Err(Error::NotPaged { start, len });
            }
        }
        self.settle_all();
        // Threads whose faults were read, but not served, look again.
        for fault in std::mem::take(&mut self.queue) {
            self.wake_page(fault.at);
        }
        self.over = Some(over);
        Ok(())
    }

    /// Returns what the engine has: its thread is about to end.
    pub(crate) fn close(mut self: Box<Self>) {
        self.io.close_stores();
        self.frames.maker.take(0);
        let counters = self.counters;
        let (at, len) = self.frames.pool.whole();
        drop(self);
        // Only now, since a call that removes pages of a registered range is reported, and nobody
        // would read that. SAFETY: with the engine, the pool has lost its only user.
        unsafe { memory::unmap(at as *mut u8, len) }.ok();
        for counter in [
            &counters.resident_bytes,
            &counters.books_bytes,
            &counters.store_bytes,
            &counters.lease_bytes,
            &counters.job,
            &counters.job_processes,
            &counters.region_bytes,
            &counters.released_bytes,
            &counters.regions,
        ] {
            counter.store(0, Relaxed);
        }
        counters.released.store(1, Relaxed);
    }
}
