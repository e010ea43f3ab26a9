//! Policies that rank each block at its request, and evict the block of least rank: LFU, LFUDA,
//! GDSF.
//!
//! Sources: Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating Content Management Techniques
//! for Web Proxy Caches", 2000 (LFUDA); Cherkasova, "Improving WWW Proxies Performance with
//! Greedy-Dual-Size-Frequency Caching Policy", 1998 (GDSF).
//!
//! A block that is evicted loses its count.

use crate::heap::{Heap, Rank};
use crate::pool::slot;
use terapage_policy::replacement::Replacement;

/// The values from which a rank is computed.
pub struct Facts {
    /// Requests for the block since it was inserted.
    uses: f64,
    /// Its size.
    size: f64,
    /// The rank of the block that was evicted last.
    age: f64,
}

/// By use.
pub fn lfu(facts: &Facts) -> f64 {
    facts.uses
}

/// By use, with dynamic ageing: new blocks begin at the rank of the last victim.
pub fn lfuda(facts: &Facts) -> f64 {
    facts.age + facts.uses
}

/// By use for each byte, with dynamic ageing.
pub fn gdsf(facts: &Facts) -> f64 {
    facts.age + facts.uses * 1e6 / facts.size
}

/// Blocks by rank; blocks of equal rank leave in the order of their last requests.
pub struct Ranked {
    heap: Heap,
    uses: Vec<u32>,
    sizes: Vec<u32>,
    rank: fn(&Facts) -> f64,
    age: f64,
    now: u64,
}

impl Ranked {
    /// With this rank.
    pub fn new(rank: fn(&Facts) -> f64) -> Ranked {
        Ranked { heap: Heap::default(), uses: Vec::new(), sizes: Vec::new(), rank, age: 0.0, now: 0 }
    }

    fn used(&mut self, block: u32) {
        self.now += 1;
        let uses = slot(&mut self.uses, block);
        *uses += 1;
        let size = f64::from((*slot(&mut self.sizes, block)).max(1));
        let rank = (self.rank)(&Facts { uses: f64::from(self.uses[block as usize]), size, age: self.age });
        self.heap.set(block, Rank(rank, self.now));
    }
}

impl Replacement for Ranked {
    fn insert(&mut self, block: u32) {
        *slot(&mut self.uses, block) = 0;
        self.used(block);
    }

    fn rescue(&mut self, block: u32) {
        self.used(block);
    }

    fn touched(&mut self, block: u32) {
        self.used(block);
    }

    fn victim(&mut self) -> Option<u32> {
        let (rank, block) = self.heap.least()?;
        self.age = rank.0;
        self.heap.remove(block);
        Some(block)
    }

    fn weigh(&mut self, block: u32, size: u32) {
        *slot(&mut self.sizes, block) = size;
    }

    fn remove(&mut self, block: u32) {
        self.heap.remove(block);
    }

    fn len(&self) -> usize {
        self.heap.len()
    }
}
