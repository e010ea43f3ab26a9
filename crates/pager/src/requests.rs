//! What the program asks of the pager, served between faults.

use crate::bounce::Bounce;
use crate::engine::Engine;
use crate::recorder::Kind;
use crate::table::State;
use crate::{Error, Request};
use std::sync::atomic::Ordering::Relaxed;
use terapage_sys::{PAGE, memory};

/// Frames that there are always.
const FRAMES_MIN: usize = 8;

impl Engine {
    pub(crate) fn serve_request(&mut self) {
        let Some(request) = self.mailbox.take() else { return };
        if let Request::Park { thread } = request {
            self.stand_still(thread);
            return;
        }
        let answer = match request {
            Request::Add { start, len, held, loose } => {
                // SAFETY: the asker waits for the answer, and the slice is its own.
                self.add(start, len, held, unsafe { &*loose })
            }
            Request::Discard { start, len } => self.each_part(start, len, Self::discard),
            Request::Release { start, len } => self.each_part(start, len, Self::release),
            Request::Restore { start, len } => self.each_part(start, len, Self::restore),
            Request::WillNeed { start, len } => self.each_part(start, len, Self::will_need),
            Request::Order { start, len, random } => self.each_part(start, len, |engine, first, end| {
                engine.set_random(first, end, random);
                Ok(())
            }),
            Request::DoneWith { start, len } => self.each_part(start, len, Self::done_with),
            Request::MapFile { start, len, part } => {
                self.each_part(start, len, |engine, first, end| engine.map_file(first, end, part))
            }
            Request::UnmapFile { start, len } => self.each_part(start, len, Self::unmap_file),
            Request::Changed { start, len, marks } => self.each_part(start, len, |engine, first, end| {
                // SAFETY: the asker lends one mark for each block until the answer.
                let marks = unsafe { std::slice::from_raw_parts_mut(marks, (end - first) as usize) };
                engine.changed(first, end, marks)
            }),
            Request::Written { start, len, hashes } => self.each_part(start, len, |engine, first, end| {
                // SAFETY: the asker lends one hash for each block until the answer.
                let hashes = unsafe { std::slice::from_raw_parts(hashes, (end - first) as usize) };
                engine.written(first, end, hashes)
            }),
            Request::Name { region, start, len, held, name } => {
                self.each_part(start, len, |engine, first, end| {
                    // SAFETY: the asker waits for the answer, and the text is its own.
                    engine.name(region, first, end, held, unsafe { &*name });
                    Ok(())
                })
            }
            Request::Rename { region, start, len, held } => {
                self.each_part(start, len, |engine, first, end| {
                    engine.rename(region, first, end, held);
                    Ok(())
                })
            }
            Request::Unname { region } => {
                self.table.usage.unname(region);
                Ok(())
            }
            Request::FinishTrace => {
                if let Some(recorder) = self.recorder.take() {
                    recorder.end();
                }
                Ok(())
            }
            Request::Hold => {
                self.holds += 1;
                Ok(())
            }
            Request::Park { .. } => Ok(()),
        };
        self.mailbox.answer(answer);
    }

    /// Serves a range of addresses, which must be one of paged blocks.
    fn each_part(
        &mut self,
        start: usize,
        len: usize,
        serve: impl FnOnce(&mut Self, u32, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let first = self.table.block_at(start).ok_or(Error::NotPaged { start, len })?;
        let blocks = (len / self.block) as u32;
        if first + blocks > self.table.end_of(first) {
            return Err(Error::NotPaged { start, len });
        }
        serve(self, first, first + blocks)
    }

    /// Pages a range from now on, with what it holds already.
    fn add(&mut self, start: usize, len: usize, held: usize, loose: &[(usize, usize)]) -> Result<(), Error> {
        let first = self.table.add(start, len)?;
        self.counters.regions.fetch_add(1, Relaxed);
        if let Some(recorder) = &mut self.recorder {
            recorder.region(start, len, first);
        }
        let block_of = |at: usize| first + ((at - start) / self.block) as u32;
        let held = block_of(start + held.next_multiple_of(self.block));
        let loose: Vec<_> = loose.iter().map(|&(from, to)| block_of(from)..block_of(to)).collect();
        let end = block_of(start + len);
        let mut at = first;
        for loose in loose.into_iter().chain(std::iter::once(end..end)) {
            if at < loose.start {
                let (from, blocks) = (self.table.address(at), (loose.start - at) as usize);
                // Once it is registered no page appears but by this thread.
                self.mover.register(from, blocks * self.block)?;
                self.adopt(at, loose.start.min(held))?;
                self.forget(at.max(held), loose.start)?;
            }
            at = loose.end;
            for block in loose {
                self.table.set_state(block, State::Loose);
                self.counters.released_bytes.fetch_add(self.block as u64, Relaxed);
            }
        }
        self.shrink()
    }

    /// The pager's books of blocks, and bounce buffers, are part of the budget, up to half of it: as they grow there are fewer frames.
    pub(crate) fn make_room_for_books(&mut self) {
        let budget = self.options.frames;
        let begins = self.bounce_wanted && self.bounce.is_none();
        let buffers = match &self.bounce {
            None if begins => Bounce::total_bytes_of(budget * self.block / self.options.bounce_part),
            None => 0,
            Some(bounce) => bounce.total_bytes(),
        };
        let books = (self.table.usage.books_bytes() + buffers) / self.block;
        let limit = (budget - books.min(budget / 2)).max(budget.min(FRAMES_MIN));
        if limit < self.limit {
            self.limit = limit;
            self.soft_frames.shrink(limit, self.block, self.options.soft_per_mille);
            if let Err(error) = self.shrink() {
                self.stop(&error.to_string());
            }
        }
        if begins {
            // They only save time.
            self.bounce = Some(Bounce::begin(buffers).unwrap_or_default());
        }
    }

    /// Gives frames back that are more than there may be.
    fn shrink(&mut self) -> Result<(), Error> {
        while self.frames > self.limit {
            let place = self.place();
            self.pool.give_back(vec![place])?;
            self.frames -= 1;
        }
        Ok(())
    }

    /// Blocks that were never touched have no pages, though the kernel gives some with a huge page that begins before them: such a page would be
    /// outside the budget, and stay when its block is to be zero again.
    fn forget(&self, first: u32, end: u32) -> Result<(), Error> {
        if first < end {
            // SAFETY: nobody has touched them.
            unsafe { memory::discard(self.table.address(first), (end - first) as usize * self.block) }?;
        }
        Ok(())
    }

    /// Takes note of the pages that are there, and completes blocks that have some.
    fn adopt(&mut self, first: u32, end: u32) -> Result<(), Error> {
        if first >= end {
            return Ok(());
        }
        let pages = self.block / PAGE;
        let mut there = vec![false; pages.max(4096)];
        let step = (there.len() / pages) as u32;
        for part in (first..end).step_by(step as usize) {
            let count = step.min(end - part);
            let (there, from) = (&mut there[..count as usize * pages], self.table.address(part));
            // The kernel's page of zeros, which is there where memory was only read, does not count as this process's, and is not copied by each fork.
            self.mover.shared(from, there)?;
            for (page, _) in there.iter().enumerate().filter(|(_, shared)| **shared) {
                // SAFETY: the page is there, and the program may write to it.
                unsafe { memory::make_exclusive(from + page * PAGE) };
            }
            self.mover.present(from, there)?;
            for block in part..part + count {
                let there = &there[(block - part) as usize * pages..][..pages];
                if there.iter().all(|there| !there) {
                    continue;
                }
                let at = self.table.address(block);
                for (page, _) in there.iter().enumerate().filter(|(_, there)| !**there) {
                    let done = self.mover.fresh(at + page * PAGE, PAGE);
                    self.or_stop(done);
                }
                self.table.set_state(block, State::Mapped);
                self.frames += 1;
                self.mapped += 1;
                self.policy.insert(block);
                self.record(Kind::Present, [block]);
            }
        }
        Ok(())
    }

    /// The blocks read as zeros from now on.
    pub(crate) fn discard(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        if let Some(recorder) = &mut self.recorder {
            recorder.discard(first, end - first);
        }
        let mut block = first;
        while block < end {
            match self.table.state(block) {
                State::Mapped => {
                    let run =
                        (block..end).take_while(|&block| self.table.state(block) == State::Mapped).count();
                    // SAFETY: the program has asked for it.
                    unsafe { memory::discard(self.table.address(block), run * self.block) }?;
                    for block in block..block + run as u32 {
                        self.policy.remove(block);
                        self.drop_slot(block);
                        self.table.set_state(block, State::Zero);
                    }
                    self.mapped -= run;
                    self.frames -= run;
                    block += run as u32;
                    continue;
                }
                State::Soft => {
                    let place = self.table.get(block).place;
                    self.soft_len -= 1;
                    self.pool.put_free(place);
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                State::Watched => {
                    let place = self.table.get(block).place;
                    self.pool.put_free(place);
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                State::Stored => {
                    self.policy.remove(block);
                    self.drop_slot(block);
                }
                // SAFETY: the program has asked for it.
                State::Loose => unsafe { memory::discard(self.table.address(block), self.block) }?,
                State::Zero | State::Reading | State::Leaving | State::Writing => {}
            }
            let entry = self.table.get_mut(block);
            if entry.state != State::Loose {
                entry.flags = 0;
                self.table.set_state(block, State::Zero);
            }
            block += 1;
        }
        Ok(())
    }

    /// The blocks get all their bytes and are the kernel's again: the program locks, protects or replaces
    /// part of them.
    fn release(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        for block in first..end {
            match self.table.state(block) {
                State::Stored => {
                    let place = self.place();
                    self.read(&[block], &[place], 0);
                    self.table.get_mut(block).flags |= crate::table::WANTED;
                    self.settle(block, block + 1);
                }
                State::Soft => {
                    self.soft_len -= 1;
                    self.install(&[block]);
                }
                State::Watched => self.install(&[block]),
                State::Loose => continue,
                _ => {}
            }
            if self.table.state(block) == State::Mapped {
                self.mapped -= 1;
                self.frames -= 1;
            }
            self.policy.remove(block);
            self.drop_slot(block);
            self.table.get_mut(block).flags = 0;
            self.table.set_state(block, State::Loose);
            self.counters.released_bytes.fetch_add(self.block as u64, Relaxed);
        }
        let (at, len) = (self.table.address(first), (end - first) as usize * self.block);
        self.mover.program.unregister(at, len)?;
        self.mover.program.wake(at, len).ok();
        Ok(())
    }

    /// Released blocks are plain memory again, with what they hold: they are paged again.
    fn restore(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let (at, len) = (self.table.address(first), (end - first) as usize * self.block);
        // Once it is registered no page appears but by this thread.
        self.mover.register(at, len)?;
        for block in first..end {
            if self.table.state(block) == State::Loose {
                self.table.set_state(block, State::Zero);
                self.counters.released_bytes.fetch_sub(self.block as u64, Relaxed);
            }
        }
        self.adopt(first, end)?;
        self.shrink()
    }

    /// Counts blocks for a region; those beyond the first `held` bytes were never touched.
    fn name(&mut self, region: usize, first: u32, end: u32, held: usize, name: &str) {
        let before = self.table.usage.of(first);
        let (start, len) = (self.table.address(first), (end - first) as usize * self.block);
        self.table.usage.name(region, first..end, start, len, name);
        for block in first..end.min(first + held.div_ceil(self.block) as u32) {
            self.table.usage.moved(block, self.table.state(block), before);
        }
    }

    /// A region ends somewhere else now.
    fn rename(&mut self, region: usize, first: u32, end: u32, held: usize) {
        let named = self.table.usage.of(first);
        let Some((old, around)) = self.table.usage.set_end(region, end) else { return };
        let held = end.min(first + held.div_ceil(self.block) as u32);
        for block in old..held {
            self.table.usage.moved(block, self.table.state(block), around);
        }
        for block in end..old {
            self.table.usage.moved(block, self.table.state(block), named);
        }
    }

    /// The blocks will be touched soon.
    fn will_need(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let most = (self.limit / 4) as u32;
        let per_read = (terapage_store::EXTENT / self.block) as u32;
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
