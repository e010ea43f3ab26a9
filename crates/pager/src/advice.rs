//! Advice: what the program says about its use of a range. No advice changes a byte.

use crate::engine::{Carry, Engine};
use crate::table::State;
use crate::{Error, Pager};

/// The most ranges noted as touched in random order; the oldest is forgotten first.
const RANGES: usize = 64;

impl Engine {
    /// Whether the program says that it touches the block in random order.
    pub(crate) fn is_random(&self, block: u32) -> bool {
        self.random.iter().any(|range| range.contains(&block))
    }

    /// Notes whether the blocks will be touched in random order.
    pub(crate) fn set_random(&mut self, first: u32, end: u32, random: bool) {
        let old = std::mem::take(&mut self.random);
        let rest = old.into_iter().flat_map(|range| {
            [range.start..range.end.min(first), range.start.max(end)..range.end]
                .into_iter()
                .filter(|part| part.start < part.end)
        });
        self.random = rest.collect();
        if random {
            self.random.push(first..end);
        }
        if self.random.len() > RANGES {
            self.random.remove(0);
        }
    }

    /// The blocks will not be touched soon: they leave the program first.
    pub(crate) fn done_with(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let batch = (terapage_store::EXTENT / self.block) as u32;
        for part in (first..end).step_by(batch as usize) {
            let here = |block: &u32| matches!(self.table.state(*block), State::Mapped | State::Watched);
            let blocks: Vec<u32> = (part..end.min(part + batch)).filter(here).collect();
            for &block in &blocks {
                self.policy.remove(block);
            }
            self.page_out_these(&blocks, Carry::Anywhere);
            while (self.leaving + self.writing) * self.block > 16 * terapage_store::EXTENT {
                self.wait();
            }
        }
        Ok(())
    }
}

impl Pager {
    /// Says whether the range will be touched in random order: then nothing is read ahead in it.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn set_random(&self, start: usize, len: usize, random: bool) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, move |engine, first, end| {
            engine.set_random(first, end, random);
            Ok(())
        })
    }

    /// Says that the range will not be touched soon: its frames are evicted first.
    ///
    /// # Errors
    /// The range is not all paged.
    pub fn done_with(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::done_with)
    }
}
