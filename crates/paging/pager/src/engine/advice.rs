//! Advice: what the program says about its use of a range. No advice changes a byte.

use super::Engine;
use super::table::State;
use super::transfers::Carry;
use crate::{Error, Member};
use terapage_policy::pace::WRITING_RUNS;
use terapage_store::EXTENT;

impl Engine {
    /// The blocks will not be touched soon: they leave the program first.
    pub(crate) fn done_with(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let batch = (EXTENT / self.block) as u32;
        for part in (first..end).step_by(batch as usize) {
            let here = |block: &u32| matches!(self.table.state(*block), State::Mapped | State::Watched);
            let blocks: Vec<u32> = (part..end.min(part + batch)).filter(here).collect();
            for &block in &blocks {
                self.policy.remove(block);
            }
            self.page_out_these(&blocks, Carry::Anywhere);
            while self.leaving() > WRITING_RUNS * batch as usize {
                self.wait();
            }
        }
        Ok(())
    }
}

impl Member {
    /// See `Pager::set_random`.
    pub(crate) fn set_random(&self, start: usize, len: usize, random: bool) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, move |engine, first, end| {
            engine.ahead.set_random(first, end, random);
            Ok(())
        })
    }

    /// See `Pager::done_with`.
    pub(crate) fn done_with(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::done_with)
    }
}
