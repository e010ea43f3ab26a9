//! First in, first out: the order of arrival, whatever is touched.

use super::Replacement;
use crate::list::Lists;

/// Blocks in order of arrival. A rescued block goes back to the old end: it
/// leaves next, as if it had never been given as a victim.
#[derive(Default)]
pub struct Fifo {
    lists: Lists<1>,
}

impl Replacement for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn insert(&mut self, block: u32) {
        self.lists.push(1, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push_oldest(1, block);
    }

    fn victim(&mut self) -> Option<u32> {
        self.lists.pop(1)
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(1)
    }
}
