//! Advice: what the program says about its use of a range. No advice changes a byte.

use super::Engine;
use super::table::State;
use crate::error::Error;
use terapage_policy::pace::WRITING_RUNS;
use terapage_store::EXTENT;

impl Engine {
    /// The blocks will be touched in random order from now on, or no longer. If they belong to a
    /// file that the program only reads, and are half of all blocks with bytes, or more, large
    /// blocks would mostly hold bytes that nobody wants: all blocks are split, if they can be.
    pub(crate) fn set_random(&mut self, first: u32, end: u32, random: bool) -> Result<(), Error> {
        self.ahead.set_random(first, end, random);
        use State::{Mapped, Reading, Soft, Stored, Watched, Writing};
        let with_bytes =
            [Mapped, Watched, Soft, Stored, Reading, Writing].map(|state| self.table.count(state));
        let most = with_bytes.iter().sum::<usize>() <= 2 * (end - first) as usize;
        if random && most && self.is_sealed(first) {
            self.split()?;
        }
        Ok(())
    }

    /// The blocks will not be touched soon: they leave the program first.
    pub(crate) fn done_with(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let batch = (EXTENT / self.block) as u32;
        for part in (first..end).step_by(batch as usize) {
            let here = |block: &u32| matches!(self.table.state(*block), State::Mapped | State::Watched);
            let blocks: Vec<u32> = (part..end.min(part + batch)).filter(here).collect();
            for &block in &blocks {
                self.policy.remove(block);
            }
            self.page_out_these(&blocks);
            while self.table.count(State::Writing) > WRITING_RUNS * batch as usize {
                self.wait();
            }
        }
        Ok(())
    }
}
