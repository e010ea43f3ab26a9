//! Advice: what the program says about its use of a range. No advice changes a byte.

use super::Engine;
use super::table::State;
use crate::error::Error;
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
            self.page_out_these(&blocks);
            while self.table.count(State::Writing) > WRITING_RUNS * batch as usize {
                self.wait();
            }
        }
        Ok(())
    }
}
