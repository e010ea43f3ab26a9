//! CLOCK, or second chance: a FIFO that passes over blocks touched since the last round.
//!
//! Source: Corbató, "A Paging Experiment with the Multics System", 1968.

use super::Replacement;
use crate::list::Lists;

/// Blocks in the order in which the hand meets them; the mark is the reference bit.
#[derive(Default)]
pub struct Clock {
    lists: Lists<1>,
}

impl Replacement for Clock {
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
        loop {
            let block = self.lists.oldest(1)?;
            if self.lists.mark(block) == 0 {
                return self.lists.pop(1);
            }
            self.lists.push(1, block);
        }
    }

    fn weigh(&mut self, block: u32, size: u32) {
        self.lists.weigh(block, size);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(1)
    }
}
