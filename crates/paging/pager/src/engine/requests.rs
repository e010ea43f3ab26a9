//! Requests of the program, served between faults.

use super::Engine;
use super::table::State;
use crate::error::Error;
use crate::pins;
use crate::trace::Kind;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use terapage_policy::pace;
use terapage_stats::RegionCounters;
use terapage_store::EXTENT;
use terapage_sys::{memory, page_bytes};

/// The number of pages that are checked together when memory that is already in use becomes paged.
/// Chosen, not measured.
const ADOPTED_PAGES: usize = 1024;

impl Engine {
    pub(crate) fn serve_request(&mut self) {
        let mailbox = self.mailbox;
        if let Some(forker) = mailbox.serve(self) {
            self.stand_still(forker);
        }
    }

    /// The blocks at a range of addresses, if they belong to one region: the first, and the one
    /// after the last.
    pub(crate) fn blocks_of(&self, start: usize, len: usize) -> Result<(u32, u32), Error> {
        let first = self.table.block_at(start).ok_or(Error::NotPaged { start, len })?;
        let blocks = len / self.block;
        if blocks > (self.table.end_of(first) - first) as usize {
            return Err(Error::NotPaged { start, len });
        }
        Ok((first, first + blocks as u32))
    }

    /// Ends the trace, if there is one.
    pub(crate) fn finish_trace(&mut self) -> Result<(), Error> {
        if let Some(recorder) = self.recorder.take() {
            recorder.end();
        }
        Ok(())
    }

    /// Frees the memory that the stores hold elsewhere.
    pub(crate) fn close_stores(&mut self) -> Result<(), Error> {
        self.io.close_stores();
        self.closed = true;
        Ok(())
    }

    /// A fork is about to begin: until it is over, only blocks that must leave the program do.
    pub(crate) fn fork_is_near(&mut self) -> Result<(), Error> {
        self.forks_ahead += 1;
        Ok(())
    }

    /// Pages a range from now on, with its present bytes.
    pub(crate) fn add(
        &mut self,
        start: usize,
        len: usize,
        filled: usize,
        loose: &[(usize, usize)],
    ) -> Result<(), Error> {
        let first = self.table.add(start, len)?;
        self.counters.regions.fetch_add(1, Relaxed);
        if let Some(recorder) = &mut self.recorder {
            recorder.region(start, len, first);
        }
        let block = self.block;
        let block_of = |at: usize| first + ((at - start) / block) as u32;
        let filled = block_of(start + filled.next_multiple_of(block));
        let end = block_of(start + len);
        let loose = loose.iter().map(|&(from, to)| (block_of(from), block_of(to)));
        let untouched =
            filled..loose.clone().map(|(from, _)| from).find(|&from| from >= filled).unwrap_or(end);
        self.table.reserved = untouched.end;
        loose.for_each(|(from, to)| self.note_loose(from, to));
        for (at, to) in self.table.parts(first, end, false) {
            // This comes before the range is registered: afterwards this thread would have to read
            // the report of the call.
            self.forget(at.max(untouched.start), to.min(untouched.end))?;
            // After the range is registered, only this thread makes pages appear in it.
            self.mover.register(self.table.address(at), (to - at) as usize * block)?;
            self.adopt(at, to.min(untouched.start))?;
            self.adopt(at.max(untouched.end), to)?;
        }
        Ok(())
    }

    /// Drops pages of blocks that were never touched: the kernel makes some with a huge page that
    /// begins before these blocks. Such a page would not count in the budget, and would stay when
    /// its block becomes zero again.
    fn forget(&self, first: u32, end: u32) -> Result<(), Error> {
        if first < end {
            let (at, len) = (self.table.address(first), (end - first) as usize * self.block);
            // From here on no huge page brings any.
            memory::advise(at, len, memory::MADV_NOHUGEPAGE);
            // SAFETY: nobody has touched these blocks.
            unsafe { memory::discard(at, len) }?;
        }
        Ok(())
    }

    /// Notes the present pages, and completes blocks that have only some of their pages. This may
    /// multiply the number of pages, so frames beyond the limit are returned on the way.
    pub(crate) fn adopt(&mut self, first: u32, end: u32) -> Result<(), Error> {
        if first >= end {
            return Ok(());
        }
        let (from, block) = (self.table.address(first), self.block);
        let mut parts: Vec<(u32, u32)> = Vec::new();
        let is_listed = self.mover.each_present(from..from + (end - first) as usize * block, |there| {
            let at = first + ((there.start - from) / block) as u32;
            let to = first + (there.end - from).div_ceil(block) as u32;
            match parts.last_mut() {
                Some(last) if last.1 >= at => last.1 = to.max(last.1),
                _ => parts.push((at, to)),
            }
        })?;
        if !is_listed {
            return self.adopt_all(first, end);
        }
        parts.into_iter().try_for_each(|(first, end)| self.adopt_all(first, end))
    }

    /// Like [`adopt`](Self::adopt), but inspects each page.
    fn adopt_all(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let pages = self.block / page_bytes();
        let mut there = vec![false; pages.max(ADOPTED_PAGES)];
        let step = (there.len() / pages) as u32;
        for part in (first..end).step_by(step as usize) {
            let count = step.min(end - part);
            let (there, from) = (&mut there[..count as usize * pages], self.table.address(part));
            // Memory that was only read has the kernel's zero page, which does not belong to this
            // process, and not every fork copies it.
            self.mover.shared(from, there)?;
            for (page, _) in there.iter().enumerate().filter(|(_, shared)| **shared) {
                // SAFETY: the page is present, and the program may write to it.
                unsafe { memory::make_exclusive(from + page * page_bytes()) };
            }
            self.mover.present(from, there)?;
            for block in part..part + count {
                let there = &there[(block - part) as usize * pages..][..pages];
                if there.iter().all(|there| !there) {
                    continue;
                }
                let at = self.table.address(block);
                for (page, _) in there.iter().enumerate().filter(|(_, there)| !**there) {
                    let done = self.mover.fresh(at + page * page_bytes(), page_bytes());
                    self.or_stop(done);
                }
                self.table.set_state(block, State::Mapped);
                self.frames.count += 1;
                self.policy.insert(block);
                self.record(Kind::Present, [block]);
            }
            self.shrink()?;
        }
        Ok(())
    }

    /// The blocks read as zeros from now on.
    pub(crate) fn discard(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        if let Some(recorder) = &mut self.recorder {
            recorder.discard(first, end - first);
        }
        for (from, to) in self.table.parts(first, end, true) {
            // SAFETY: the program has asked for it.
            unsafe { memory::discard(self.table.address(from), (to - from) as usize * self.block) }?;
        }
        self.make_zero(first, end)
    }

    /// The paged blocks of the range, none of which is on its way, read as zeros from now on.
    pub(crate) fn make_zero(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let mut from = first;
        while let Some(block) = self.table.next_touched(from, end) {
            from = block + 1;
            match self.table.state(block) {
                State::Mapped => {
                    let most = pins::PAGES_MOST / (self.block / page_bytes());
                    let mapped = |block: &u32| self.table.state(*block) == State::Mapped;
                    let run = (block..end).take(most).take_while(mapped).count() as u32;
                    from = block + self.make_mapped_zero(block..block + run)?;
                    continue;
                }
                State::Soft => {
                    let place = self.table.get(block).place;
                    self.frames.pool.put_free(place);
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                State::Watched => {
                    let place = self.table.get(block).place;
                    self.frames.pool.put_free(place);
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                State::Stored => {
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                State::Zero | State::Loose | State::Reading | State::Writing => {}
            }
            self.table.get_mut(block).flags = 0;
            self.table.set_state(block, State::Zero);
        }
        Ok(())
    }

    /// Makes blocks zero that are in the program, or only the first of them if any is pinned.
    /// Returns how many.
    fn make_mapped_zero(&mut self, blocks: Range<u32>) -> Result<u32, Error> {
        let len = blocks.len() as u32;
        let (at, bytes) = (self.table.address(blocks.start), blocks.len() * self.block);
        let pins = self.mover.pins();
        if pins.is_none_or(|pins| pins.take(at, bytes)) {
            for block in blocks.clone() {
                self.policy.remove(block);
                self.drop_slot(block);
                self.table.set_state(block, State::Zero);
            }
            self.frames.count -= blocks.len();
            let dropped = self.drop_mapped(blocks);
            pins.inspect(|pins| pins.taken());
            return dropped.map(|()| len);
        }
        if len > 1 {
            return self.make_mapped_zero(blocks.start..blocks.start + 1);
        }
        // A call of the program uses the block, and could not wait for its pages. So they stay,
        // with the bytes of fresh memory.
        for page in (at..at + bytes).step_by(page_bytes()) {
            if self.mover.page_present(page) {
                // SAFETY: the page is present, only this thread takes it away, and the program asks
                // for its bytes to be dropped.
                unsafe { memory::bytes(page, page_bytes()) }.fill(0);
            }
        }
        Ok(1)
    }

    /// Releases blocks: they get all their bytes and belong to the kernel again, because the
    /// program locks, protects or replaces part of them. If the kernel cannot split more mappings
    /// (ENOMEM), they are paged as before.
    pub(crate) fn release(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        let mut from = first;
        while let Some(block) = self.table.next_touched(from, end) {
            from = block + 1;
            if matches!(self.table.state(block), State::Zero | State::Loose) {
                continue;
            }
            self.bring_back(block);
            self.frames.count -= usize::from(self.table.state(block) == State::Mapped);
            self.policy.remove(block);
            self.drop_slot(block);
            self.table.get_mut(block).flags = 0;
            self.table.set_state(block, State::Zero);
        }
        self.note_loose(first, end);
        let (at, len) = (self.table.address(first), (end - first) as usize * self.block);
        let unregistered = self.mover.program.unregister(at, len);
        if unregistered.is_err() {
            // The call may have had effect in part, and blocks that were touched there since have
            // come in without the pager.
            self.restore(first, end)?;
        }
        self.mover.program.wake(at, len).ok();
        Ok(unregistered?)
    }

    /// Lists the addresses of paged blocks that are not known to be zero, with neighbours joined.
    pub(crate) fn touched(&self, first: u32, end: u32) -> Vec<(usize, usize)> {
        let mut parts: Vec<(usize, usize)> = Vec::new();
        let mut from = first;
        while let Some(block) = self.table.next_touched(from, end) {
            from = block + 1;
            if matches!(self.table.state(block), State::Zero | State::Loose) {
                continue;
            }
            let at = self.table.address(block);
            match parts.last_mut() {
                Some((_, to)) if *to == at => *to += self.block,
                _ => parts.push((at, at + self.block)),
            }
        }
        parts
    }

    /// Puts a block that has bytes into the program, wherever the bytes are.
    pub(super) fn bring_back(&mut self, block: u32) {
        loop {
            match self.table.state(block) {
                State::Stored => {
                    let place = self.place();
                    self.read(&[block], &[place], 0);
                    self.table.get_mut(block).flags |= super::table::WANTED;
                    self.settle(block, block + 1);
                }
                State::Soft => {
                    self.install(&[block]);
                }
                State::Watched => self.install(&[block]),
                // The block left again, to make room for another block of the range.
                State::Reading | State::Writing => self.settle(block, block + 1),
                State::Mapped | State::Zero | State::Loose => return,
            }
        }
    }

    /// Notes that the blocks are Loose from now on.
    pub(super) fn note_loose(&mut self, first: u32, end: u32) {
        let more = self.table.parts(first, end.min(self.table.reserved), false);
        self.counters.released_bytes.fetch_add(self.bytes_of(&more), Relaxed);
        self.table.loose.insert(first as usize, end as usize);
    }

    fn bytes_of(&self, parts: &[(u32, u32)]) -> u64 {
        parts.iter().map(|&(from, to)| u64::from(to - from) * self.block as u64).sum()
    }

    /// Pages released blocks again, which are plain memory, with their present bytes. Other blocks
    /// of the range stay as they are.
    pub(crate) fn restore(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let less = self.table.parts(first, end.min(self.table.reserved), true);
        self.counters.released_bytes.fetch_sub(self.bytes_of(&less), Relaxed);
        for (from, to) in self.table.parts(first, end, true) {
            // After the range is registered, only this thread makes pages appear in it.
            let (at, len) = (self.table.address(from), (to - from) as usize * self.block);
            self.mover.events.stays(at, at + len);
            self.mover.register(at, len)?;
            self.table.loose.remove(from as usize, to as usize);
            self.adopt(from, to)?;
        }
        Ok(())
    }

    /// Names blocks as a region, and counts them for that region.
    pub(crate) fn name(&mut self, region: usize, first: u32, end: u32, name: &str) {
        let before = self.table.usage.of(first);
        let (start, len) = (self.table.address(first), (end - first) as usize * self.block);
        self.table.usage.name(region, first..end, start, len, name);
        self.count_again(first, end, before);
    }

    /// Moves the end of a region.
    pub(crate) fn rename(&mut self, region: usize, first: u32, end: u32) {
        let named = self.table.usage.of(first);
        let Some((old, around)) = self.table.usage.set_end(region, end) else { return };
        self.count_again(old, end, around);
        self.count_again(end, old, named);
    }

    /// Moves the counts of blocks from `before` to this region.
    fn count_again(&mut self, mut first: u32, end: u32, before: &RegionCounters) {
        while let Some(block) = self.table.next_touched(first, end) {
            self.table.usage.moved(block, self.table.state(block), before);
            first = block + 1;
        }
    }

    /// Reads blocks that will be touched soon.
    pub(crate) fn will_need(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let most = pace::most_read(self.frames.limit) as u32;
        let per_read = (EXTENT / self.block) as u32;
        let end = end.min(first.saturating_add(most));
        for part in (first..end).step_by(per_read as usize) {
            let stored = |block: &u32| self.table.state(*block) == State::Stored;
            let blocks: Vec<u32> = (part..end.min(part + per_read)).filter(stored).collect();
            let mut places = Vec::with_capacity(blocks.len());
            while places.len() < blocks.len() {
                let Some(place) = self.place_at_once() else { break };
                places.push(place);
            }
            self.read(&blocks[..places.len()], &places, 0);
            self.balance();
        }
        Ok(())
    }
}
