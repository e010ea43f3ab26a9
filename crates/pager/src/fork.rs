//! Fork: the child goes on from what memory was, with a pager of its own.
//!
//! The thread that forks parks the pager's thread with nothing on its way. What the store holds
//! is frozen for the child: the parent writes elsewhere until every process that came of
//! this fork has ended (they hold the writing end of a pipe). The child
//! finds the pager's whole state in its copy of memory, gives it descriptors, a store and a thread of its own, and
//! goes on.

use crate::carriers::Carriers;
use crate::engine::{CHILDREN, Engine};
use crate::slots::Slots;
use crate::table::State;
use crate::{Error, Mailbox};
use std::sync::Arc;
use terapage_stats::{Counters, Shared};
use terapage_store::{EXTENT, Store};
use terapage_sys::fd::Fd;

impl Engine {
    /// Before the fork, the thread parked: freezes the store; gives what the child has to hold.
    pub(crate) fn freeze(&mut self) -> Result<Fd, Error> {
        let (read, write) = Fd::pipe()?;
        let id = self.slots.freeze();
        self.children.push((id, read));
        Counters::add(&self.counters.forks, 1);
        Ok(write)
    }

    /// All that came of a fork has ended.
    pub(crate) fn child_ended(&mut self, tag: u64) {
        let id = (CHILDREN - tag) as u32;
        self.children.retain(|&(child, _)| child != id);
        self.slots.thaw(id);
    }

    /// In the child, the only thread: makes the state this process's own.
    pub(crate) fn begin_child(
        &mut self,
        store: Box<dyn Store>,
        shared: &'static Shared,
        mailbox: &'static Mailbox,
    ) -> Result<(), Error> {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &shared.counters;
        self.table.usage.inherit(&shared.regions);
        self.mover = Arc::new(self.mover.reopen()?);
        self.pool.register(&self.mover)?;
        let ranges: Vec<_> =
            self.table.regions().iter().map(|region| (region.first, region.blocks)).collect();
        for &(first, blocks) in &ranges {
            self.register_paged(first, first + blocks)?;
        }
        self.ring = None;
        self.carriers = Carriers::default();
        self.maker.forget();
        self.awake.forget();
        // The thread that writes the trace, and the file, are the parent's.
        self.recorder = None;
        self.queue.clear();
        self.postponed.clear();
        self.faults_ready = false;
        self.requests_ready = false;
        self.children.clear();
        if self.stores.len() >= usize::from(u8::MAX) {
            return Err(Error::TooManyForks);
        }
        self.own = self.stores.len() as u8;
        self.stores.push(store);
        self.slots = Slots::new((EXTENT / self.block) as u32);
        self.slots.grown(self.stores[usize::from(self.own_origin())].slots());
        counters.budget_bytes.store((self.options.frames * self.block) as u64, Relaxed);
        counters.block_bytes.store(self.block as u64, Relaxed);
        counters.regions.store(ranges.len() as u64, Relaxed);
        self.counters = counters;
        self.mailbox = mailbox;
        Ok(())
    }

    /// Registers the blocks that are paged, which may be all: the usual case is one call.
    fn register_paged(&mut self, first: u32, end: u32) -> Result<(), Error> {
        if self.counters.released_bytes.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            let len = (end - first) as usize * self.block;
            return Ok(self.mover.register(self.table.address(first), len)?);
        }
        let mut block = first;
        while block < end {
            let loose = self.table.state(block) == State::Loose;
            let run =
                (block..end).take_while(|&block| (self.table.state(block) == State::Loose) == loose).count();
            if !loose {
                self.mover.register(self.table.address(block), run * self.block)?;
            }
            block += run as u32;
        }
        Ok(())
    }
}
