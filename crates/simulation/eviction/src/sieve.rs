//! SIEVE: a FIFO whose hand skips touched blocks, and leaves them in place.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is Simpler than LRU", NSDI 2024, algorithm
//! 1.

use terapage_policy::list::Lists;
use terapage_policy::replacement::Replacement;

/// Blocks in order of arrival; the mark means that a block was touched.
#[derive(Default)]
pub struct Sieve {
    lists: Lists<1>,
    /// The block that the hand examines next; `None` for the oldest.
    hand: Option<u32>,
}

impl Sieve {
    fn leave(&mut self, block: u32) {
        if self.hand == Some(block) {
            self.hand = self.lists.newer(block);
        }
        self.lists.remove(block);
    }
}

impl Replacement for Sieve {
    fn insert(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(1, block);
        self.lists.set_mark(block, 1);
    }

    fn touched(&mut self, block: u32) {
        self.lists.set_mark(block, 1);
    }

    fn victim(&mut self) -> Option<u32> {
        let mut block = self.hand.or_else(|| self.lists.oldest(1))?;
        while self.lists.mark(block) > 0 {
            self.lists.set_mark(block, 0);
            block = self.lists.newer(block).or_else(|| self.lists.oldest(1))?;
        }
        self.hand = Some(block);
        self.leave(block);
        Some(block)
    }

    fn weigh(&mut self, _block: u32, _size: u32) {}

    fn remove(&mut self, block: u32) {
        if self.lists.of(block) != 0 {
            self.leave(block);
        }
    }

    fn len(&self) -> usize {
        self.lists.len(1)
    }
}
