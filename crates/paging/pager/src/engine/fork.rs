//! Fork: the child continues with the parent's memory and its own pager.
//!
//! First the forking thread tells the pager to take out of the program only blocks that must leave.
//! Then it parks the pager's thread, with nothing under way. Only faults of the forking thread are
//! still served, so that this thread and the C library can touch the memory that the child uses
//! before it has a pager. The slots in use are frozen for the child: the parent writes elsewhere
//! until every process that came from this fork has ended (each holds the writing end of a pipe).
//! The child finds the pager's whole state in its copy of memory, gives it new descriptors, a new
//! store and a new thread, and continues.

use super::table::{Region, State};
use super::{Engine, ReportedCondition, Ticks};
use crate::error::Error;
use crate::io::Poll;
use crate::mailbox::Mailbox;
use terapage_stats::{Counters, Shared};
use terapage_store::Store;
use terapage_sys::fd::Fd;
use terapage_sys::page_bytes;
use terapage_sys::thread;
use terapage_sys::userfaultfd::Fault;

impl Engine {
    /// Waits for all transfers to end. Then nothing changes until the requesting thread unparks the
    /// pager; only faults of the forking thread are served.
    pub(crate) fn stand_still(&mut self, forker: u32) {
        if let Err(error) = self.mover.read_events(16) {
            self.stop(&error.to_string());
        }
        self.see_to_removed();
        self.settle_all();
        let last = self.children.last().map(|&(id, _)| id);
        self.mailbox.park();
        // These lists are locals, not the engine's: a fork may copy the engine while this thread is
        // in the middle of a change.
        let (mut faults, mut others) = (Vec::with_capacity(16), Vec::with_capacity(16));
        while self.mailbox.is_parked() {
            let mut come = self.mover.program.wait(&self.mailbox.event);
            // Direct calls that remove pages wait: the tables do not change while they are copied.
            // Faults are read before the reports of these calls.
            if self.mover.program.has_faults() {
                come = come.and_then(|()| self.mover.read_fault(&mut faults));
            } else {
                thread::pause().ok();
            }
            if let Err(error) = come {
                self.stop(&error.to_string());
            }
            for fault in faults.drain(..) {
                if forker != 0 && fault.thread == forker {
                    self.serve_forker(fault);
                } else {
                    others.push(fault);
                }
            }
        }
        self.forks_ahead = self.forks_ahead.saturating_sub(1);
        self.queue.extend(others);
        self.faults_ready = true;
        if let Some((id, fd)) = self.children.last().filter(|&&(id, _)| Some(id) != last) {
            self.io.poll(Poll::Child(*id), fd.raw());
        }
    }

    /// Serves a fault, and ends all transfers under way before the faulting thread continues.
    fn serve_forker(&mut self, fault: Fault) {
        self.mover.be_quiet(true);
        self.fault(fault);
        let is_there = |state| matches!(state, State::Mapped | State::Loose);
        while self.table.block_at(fault.at).is_some_and(|block| !is_there(self.table.state(block))) {
            self.wait();
        }
        // The forking thread waits for its page, and copies nothing yet.
        let removed = self.mover.events.first_waiting().is_some();
        self.see_to_removed();
        self.settle_all();
        self.io.slots.freeze_more();
        // Other threads may wait for the blocks that came in.
        let of_region =
            |region: &Region| (self.table.address(region.first), region.blocks as usize * self.block);
        let regions = removed.then(|| self.table.regions().iter().map(of_region).collect::<Vec<_>>());
        self.mover.be_quiet(false);
        for (at, len) in regions.into_iter().flatten() {
            self.mover.program.wake(at, len).ok();
        }
        self.wake_page(fault.at);
    }

    /// Before the fork, while the pager's thread is parked: freezes the slots. Returns the end of
    /// the pipe that the child has to keep open.
    pub(crate) fn freeze(&mut self, (read, write): (Fd, Fd)) -> Result<Fd, Error> {
        let id = self.io.slots.freeze();
        self.children.push((id, read));
        self.io.share(id)?;
        // Slots may have come into use since: this thread's own faults are served, because its
        // stack may be paged.
        self.io.slots.freeze_more();
        Counters::add(&self.counters.forks, 1);
        Ok(write)
    }

    /// Every process that came from a fork has ended.
    pub(crate) fn child_ended(&mut self, id: u32) {
        self.children.retain(|&(child, _)| child != id);
        self.io.thaw(id);
        self.io.unshare(id);
    }

    /// In the child, in its only thread: gives the pager's state to this process.
    pub(crate) fn begin_child(
        &mut self,
        store: Box<dyn Store>,
        shared: &'static Shared,
        mailbox: &'static Mailbox,
        parent: &Fd,
    ) -> Result<(), Error> {
        use std::sync::atomic::Ordering::Relaxed;
        self.io.inherit()?;
        let counters = &shared.counters;
        self.table.usage.inherit(&shared.regions);
        self.mover = self.mover.reopen()?;
        self.assert_untouched()?;
        self.frames.pool.register(&self.mover)?;
        for region in self.table.regions() {
            self.register_paged(region)?;
        }
        self.follow.forget();
        self.frames.maker.forget();
        // The trace file and the thread that writes it belong to the parent.
        self.recorder = None;
        // So does what is learnt.
        self.learning = None;
        self.forks_ahead = 0;
        self.queue.clear();
        self.ahead.postponed.clear();
        self.faults_ready = false;
        self.requests_ready = false;
        self.ticks = Ticks::default();
        self.children.clear();
        let store = self.split_like(store)?;
        self.io.begin_child(store, parent.raw())?;
        let budget = if self.frames.lease.is_shared() { self.options.frames } else { self.frames.lease.goal };
        counters.budget_bytes.store((budget * self.block) as u64, Relaxed);
        counters.block_bytes.store(self.block as u64, Relaxed);
        counters.regions.store(self.table.regions().len() as u64, Relaxed);
        self.counters = counters;
        counters.lease_bytes.store((self.frames.lease.frames * self.block) as u64, Relaxed);
        self.inherit_lease();
        self.condition = ReportedCondition::new(&shared.condition);
        self.control = &shared.control;
        self.mailbox = mailbox;
        Ok(())
    }

    /// In the child: checks that no page came in before the child had a pager. Such a page would
    /// have zeros, or bytes that were written over zeros. Before Linux 6.7 the kernel cannot tell
    /// this fast enough for a fork.
    fn assert_untouched(&self) -> Result<(), Error> {
        for region in self.table.regions() {
            let start = self.table.address(region.first);
            let mut wrong = None;
            self.mover.each_present(start..start + region.blocks as usize * self.block, |range| {
                for at in range.step_by(page_bytes()) {
                    let block = region.first + ((at - start) / self.block) as u32;
                    if !matches!(self.table.state(block), State::Mapped | State::Loose) {
                        wrong.get_or_insert(at);
                    }
                }
            })?;
            if let Some(at) = wrong {
                return Err(Error::TouchedEarly { at });
            }
        }
        Ok(())
    }

    /// Registers the blocks of a region that are paged: usually all, in one call.
    fn register_paged(&self, region: &Region) -> Result<(), Error> {
        for (first, end) in self.table.parts(region.first, region.first + region.blocks, false) {
            let len = (end - first) as usize * self.block;
            self.mover.register(self.table.address(first), len)?;
        }
        Ok(())
    }
}
