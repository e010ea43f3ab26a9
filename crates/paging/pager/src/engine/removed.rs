//! Blocks whose bytes the program has dropped, through the library or by direct system calls.
//!
//! A call that removes pages of a registered range waits until the pager's thread has read the
//! report. So that thread makes no such call on a registered range.

use super::Engine;
use super::table::State;
use crate::error::Error;
use std::ops::Range;
use terapage_sys::memory;
use terapage_sys::userfaultfd::Fault;

impl Engine {
    /// Makes blocks zero that direct calls have removed and that are not in the program. The kernel
    /// removes those that are in the program, or they have come in since, as zeros.
    pub(crate) fn see_to_removed(&mut self) {
        while let Some((from, to)) = self.mover.events.first_waiting() {
            let Some(block) = self.table.block_at(from) else {
                self.stop(&format!("memory at {from:#x} was removed, but is not paged"));
            };
            let start = self.table.address(block);
            let end = start + self.block;
            if self.is_on_its_way(block, block + 1) {
                self.settle(block, block + 1);
                continue;
            }
            self.end_trial(block);
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
                // The block comes in with zeros in that part.
                _ => {
                    self.fault(Fault { at: start, write: false, protected: false, thread: 0 });
                    continue;
                }
            }
            self.mover.events.is_done(from, to.min(end));
        }
    }

    /// Returns the frames of blocks that are in the program to the pool; the blocks already count
    /// as zero.
    pub(crate) fn drop_mapped(&mut self, blocks: Range<u32>) -> Result<(), Error> {
        let at = self.table.address(blocks.start);
        if !self.mover.moves() {
            // If pages are copied, the kernel does not report this call. SAFETY: the program asks
            // for the bytes to be dropped.
            unsafe { memory::discard(at, blocks.len() * self.block) }?;
            return Ok(());
        }
        let Err(error) = self.drop_unwatched(blocks.clone()) else { return Ok(()) };
        // The process has as many mappings as it may have.
        let mut places = Vec::with_capacity(blocks.len());
        let mut all = true;
        let mut first = blocks.start;
        while first < blocks.end {
            let run = self.frames.pool.take_empty((blocks.end - first) as usize);
            let (to, len) = (self.frames.pool.address(run.start), run.len() * self.block);
            all &= self.mover.take_what_is_there(to, self.table.address(first), len);
            first += run.len() as u32;
            places.extend(run);
        }
        self.frames.pool.give_back(places)?;
        if all { Ok(()) } else { Err(error) }
    }

    /// Drops the bytes while the range is not registered. Blocks that the program touches meanwhile
    /// are adopted.
    fn drop_unwatched(&mut self, blocks: Range<u32>) -> Result<(), Error> {
        let (at, len) = (self.table.address(blocks.start), blocks.len() * self.block);
        let unregistered = self.mover.program.unregister(at, len);
        if unregistered.is_ok() {
            // SAFETY: the program asks for the bytes to be dropped.
            unsafe { memory::discard(at, len) }?;
        }
        // The range may have been unregistered in part.
        if let Err(error) = self.mover.register(at, len) {
            self.stop(&error.to_string());
        }
        if unregistered.is_ok() {
            self.adopt(blocks.start, blocks.end)?;
        }
        Ok(unregistered?)
    }
}
