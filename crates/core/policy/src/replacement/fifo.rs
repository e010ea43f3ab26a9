//! First in, first out: the order of arrival, regardless of touches.

use super::Replacement;
use crate::list::Lists;

/// Blocks in order of arrival. A rescued block has left and arrives again. If it left next again, a
/// thread could wait for it for ever, in a budget of few frames.
#[derive(Default)]
pub struct Fifo {
    lists: Lists<1>,
}

impl Replacement for Fifo {
    fn insert(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn victim(&mut self) -> Option<u32> {
        self.lists.pop(1)
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
