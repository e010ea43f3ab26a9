//! Blocks whose bytes the program does not want any more: it has said so to the library, or has
//! removed them past it.
//!
//! A call that removes pages of the program's waits until the pager's thread has read of it. So
//! that thread, and who carries for it, makes no such call on what is watched.

use crate::Error;
use crate::engine::Engine;
use crate::table::State;
use std::ops::Range;
use terapage_sys::memory;
use terapage_sys::userfaultfd::Fault;

impl Engine {
    /// Makes zeros of what direct calls have removed, and is not in the program. What is in is the
    /// kernel's to remove, or has come since, as zeros.
    pub(crate) fn see_to_removed(&mut self) {
        while let Some((from, to)) = self.mover.heard.first_waiting() {
            let Some(block) = self.table.block_at(from) else {
                self.stop(&format!("memory at {from:#x} was removed, which is not paged"));
            };
            let start = self.table.address(block);
            let end = start + self.block;
            if self.is_on_its_way(block, block + 1) {
                self.settle(block, block + 1);
                continue;
            }
            match self.table.state(block) {
                State::Mapped | State::Zero | State::Loose => {}
                _ if from == start && to >= end => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.discard(block, 1);
                    }
                    if let Err(error) = self.make_zero(block, block + 1) {
                        self.stop(&error.to_string());
                    }
                }
                // It comes in with zeros in that part.
                _ => {
                    self.fault(Fault { at: start, write: false, protected: false, thread: 0 });
                    continue;
                }
            }
            self.mover.heard.is_done(from, to.min(end));
        }
    }

    /// Gives the frames of blocks back that are in the program; they count as zero already.
    pub(crate) fn drop_mapped(&mut self, blocks: Range<u32>) -> Result<(), Error> {
        let at = self.table.address(blocks.start);
        if !self.mover.moves() {
            // The kernel does not tell of this where pages are copied.
            // SAFETY: the program has asked for it.
            unsafe { memory::discard(at, blocks.len() * self.block) }?;
            return Ok(());
        }
        let Err(error) = self.drop_unwatched(blocks.clone()) else { return Ok(()) };
        // The process has as many mappings as it may.
        let mut places = Vec::with_capacity(blocks.len());
        let mut all = true;
        let mut first = blocks.start;
        while first < blocks.end {
            let run = self.pool.take_hollow((blocks.end - first) as usize);
            let (to, len) = (self.pool.address(run.start), run.len() * self.block);
            all &= self.mover.take_what_is_there(to, self.table.address(first), len);
            first += run.len() as u32;
            places.extend(run);
        }
        self.pool.give_back(places)?;
        if all { Ok(()) } else { Err(error) }
    }

    /// The same while nobody watches them: what the program touches meanwhile is adopted.
    fn drop_unwatched(&mut self, blocks: Range<u32>) -> Result<(), Error> {
        let (at, len) = (self.table.address(blocks.start), blocks.len() * self.block);
        let unregistered = self.mover.program.unregister(at, len);
        if unregistered.is_ok() {
            // SAFETY: the program has asked for it.
            unsafe { memory::discard(at, len) }?;
        }
        // It may have been done in part.
        if let Err(error) = self.mover.register(at, len) {
            self.stop(&error.to_string());
        }
        if unregistered.is_ok() {
            self.adopt(blocks.start, blocks.end)?;
        }
        Ok(unregistered?)
    }
}
