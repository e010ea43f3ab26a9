//! Least recently used, as in Teramem: recency is known from faults.

use super::Replacement;
use crate::list::Lists;

/// Blocks in order of their last known reference.
#[derive(Default)]
pub struct Lru {
    lists: Lists<1>,
}

impl Replacement for Lru {
    fn insert(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn touched(&mut self, block: u32) {
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
