//! Random eviction, which any policy should beat.

use crate::pool::Pool;
use terapage_policy::replacement::Replacement;

/// Blocks in no order.
#[derive(Default)]
pub struct Random {
    pool: Pool,
}

impl Replacement for Random {
    fn insert(&mut self, block: u32) {
        self.pool.insert(block);
    }

    fn rescue(&mut self, block: u32) {
        self.pool.insert(block);
    }

    fn victim(&mut self) -> Option<u32> {
        let block = self.pool.draw()?;
        self.pool.remove(block);
        Some(block)
    }

    fn weigh(&mut self, _block: u32, _size: u32) {}

    fn remove(&mut self, block: u32) {
        self.pool.remove(block);
    }

    fn len(&self) -> usize {
        self.pool.len()
    }
}
