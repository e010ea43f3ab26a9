//! Evicts the most recently used block first: this is best for loops over more than fits, and
//! seldom otherwise.

use terapage_policy::list::Lists;
use terapage_policy::replacement::Replacement;

/// Blocks in order of their last reference.
#[derive(Default)]
pub struct Mru {
    lists: Lists<1>,
}

impl Replacement for Mru {
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
        let block = self.lists.newest(1)?;
        self.lists.remove(block);
        Some(block)
    }

    fn weigh(&mut self, _block: u32, _size: u32) {}

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(1)
    }
}
