//! LIRS: keeps blocks by the distance between their last two references, instead of by the last one
//! alone.
//!
//! Source: Jiang, Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy",
//! SIGMETRICS 2002: 1 % of the cache is for blocks of high distance. The stack holds at most twice
//! as many blocks as the cache; beyond that, the oldest ghosts are forgotten.

use crate::pool::slot;
use terapage_policy::list::Lists;
use terapage_policy::replacement::Replacement;

/// Of low distance, in memory (LIR).
const LOW: u8 = 1;
/// Of high distance, in memory (resident HIR).
const HIGH: u8 = 2;
/// Of high distance, evicted, and still in the stack (non-resident HIR).
const GHOST: u8 = 3;

/// The stack S, the queue Q of resident blocks of high distance, and the ghosts in S in the order
/// of their eviction.
pub struct Lirs {
    stack: Lists<1>,
    queue: Lists<1>,
    ghosts: Lists<1>,
    status: Vec<u8>,
    frames: usize,
    /// The size and the number of blocks of low distance.
    low: (usize, usize),
}

impl Lirs {
    /// For a cache of `frames`.
    pub fn new(frames: usize) -> Lirs {
        let (stack, queue, ghosts) = (Lists::default(), Lists::default(), Lists::default());
        Lirs { stack, queue, ghosts, status: Vec::new(), frames, low: (0, 0) }
    }

    /// The greatest size of the blocks of low distance.
    fn low_max(&self) -> usize {
        self.frames.saturating_sub((self.frames / 100).max(1))
    }

    fn become_low(&mut self, block: u32) {
        *slot(&mut self.status, block) = LOW;
        self.low.0 += self.stack.weight(block);
        self.low.1 += 1;
        while self.low.0 > self.low_max() && self.low.1 > 1 {
            let Some(bottom) = self.bottom_leaves() else { break };
            self.status[bottom as usize] = HIGH;
            self.queue.push(1, bottom);
        }
    }

    /// The bottom of the stack, a block of low distance, leaves the stack.
    fn bottom_leaves(&mut self) -> Option<u32> {
        self.prune();
        let bottom = self.stack.pop(1)?;
        self.low.0 -= self.stack.weight(bottom);
        self.low.1 -= 1;
        self.prune();
        Some(bottom)
    }

    /// Removes blocks from the bottom until a block of low distance is there.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.oldest(1) {
            match self.status[bottom as usize] {
                LOW => return,
                GHOST => {
                    self.ghosts.remove(bottom);
                    self.status[bottom as usize] = 0;
                }
                _ => {}
            }
            self.stack.remove(bottom);
        }
    }

    fn limit(&mut self) {
        while self.stack.size(1) > 2 * self.frames {
            let Some(ghost) = self.ghosts.pop(1) else { break };
            self.status[ghost as usize] = 0;
            self.stack.remove(ghost);
        }
    }
}

impl Replacement for Lirs {
    fn insert(&mut self, block: u32) {
        let status = *slot(&mut self.status, block);
        let room = self.low.0 + self.stack.weight(block) <= self.low_max();
        self.stack.push(1, block);
        if status == GHOST || room {
            self.ghosts.remove(block);
            self.become_low(block);
        } else {
            self.status[block as usize] = HIGH;
            self.queue.push(1, block);
        }
        self.limit();
    }

    fn rescue(&mut self, block: u32) {
        self.insert(block);
    }

    fn touched(&mut self, block: u32) {
        if self.status[block as usize] == LOW {
            self.stack.push(1, block);
            self.prune();
        } else if self.stack.of(block) != 0 {
            self.stack.push(1, block);
            self.queue.remove(block);
            self.become_low(block);
        } else {
            self.stack.push(1, block);
            self.queue.push(1, block);
        }
        self.limit();
    }

    fn victim(&mut self) -> Option<u32> {
        if let Some(block) = self.queue.pop(1) {
            let seen = self.stack.of(block) != 0;
            self.status[block as usize] = if seen { GHOST } else { 0 };
            if seen {
                self.ghosts.push(1, block);
            }
            return Some(block);
        }
        let block = self.bottom_leaves()?;
        self.status[block as usize] = 0;
        Some(block)
    }

    fn weigh(&mut self, block: u32, size: u32) {
        for list in [&mut self.stack, &mut self.queue, &mut self.ghosts] {
            list.weigh(block, size);
        }
    }

    fn remove(&mut self, block: u32) {
        let status = std::mem::take(slot(&mut self.status, block));
        if status == LOW {
            self.low.0 -= self.stack.weight(block);
            self.low.1 -= 1;
        }
        for list in [&mut self.stack, &mut self.queue, &mut self.ghosts] {
            list.remove(block);
        }
        self.prune();
    }

    fn resize(&mut self, frames: usize) {
        self.frames = frames;
    }

    fn len(&self) -> usize {
        self.low.1 + self.queue.len(1)
    }
}
