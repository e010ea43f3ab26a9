//! W-TinyLFU: a small LRU window before a segmented LRU. A block enters the segmented LRU if it was
//! requested more often than the block that would leave.
//!
//! Source: Einziger, Friedman, Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM
//! Transactions on Storage 13(4), 2017: a window of 1 %, four fifths of the main cache protected.
//! The counts are exact up to 15, instead of a sketch; all are halved after ten requests for each
//! block in the cache.

use crate::pool::slot;
use terapage_policy::list::Lists;
use terapage_policy::replacement::Replacement;

const WINDOW: u8 = 1;
const PROBATION: u8 = 2;
const PROTECTED: u8 = 3;

/// The most that a block's count says.
const COUNT_MAX: u8 = 15;
/// Requests for each block in the cache after which all counts are halved.
const SAMPLE: u64 = 10;

/// A window, a main cache of two segments, and counts for all blocks that were ever requested.
pub struct WTinyLfu {
    lists: Lists<3>,
    frames: usize,
    counts: Vec<u8>,
    counted: u64,
}

impl WTinyLfu {
    /// For a cache of `frames`.
    pub fn new(frames: usize) -> WTinyLfu {
        WTinyLfu { lists: Lists::default(), frames, counts: Vec::new(), counted: 0 }
    }

    fn window(&self) -> usize {
        (self.frames / 100).max(1)
    }

    fn main(&self) -> usize {
        self.frames.saturating_sub(self.window())
    }

    fn count(&mut self, block: u32) {
        let count = slot(&mut self.counts, block);
        *count = (*count + 1).min(COUNT_MAX);
        self.counted += 1;
        if self.counted >= SAMPLE * (self.len() as u64).max(100) {
            self.counted = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Moves blocks from the window into the main cache while that has room.
    fn settle(&mut self) {
        while self.lists.size(WINDOW) > self.window() {
            let Some(block) = self.lists.oldest(WINDOW) else { break };
            let main = self.lists.size(PROBATION) + self.lists.size(PROTECTED);
            if main + self.lists.weight(block) > self.main() {
                break;
            }
            self.lists.push(PROBATION, block);
        }
    }
}

impl Replacement for WTinyLfu {
    fn insert(&mut self, block: u32) {
        self.count(block);
        self.lists.push(WINDOW, block);
        self.settle();
    }

    fn rescue(&mut self, block: u32) {
        self.insert(block);
    }

    fn touched(&mut self, block: u32) {
        self.count(block);
        match self.lists.of(block) {
            WINDOW => self.lists.push(WINDOW, block),
            _ => self.lists.push(PROTECTED, block),
        }
        while self.lists.size(PROTECTED) > self.main() / 5 * 4 {
            let Some(oldest) = self.lists.oldest(PROTECTED) else { break };
            self.lists.push(PROBATION, oldest);
        }
    }

    fn victim(&mut self) -> Option<u32> {
        self.settle();
        let candidate = self.lists.oldest(WINDOW);
        let main = self.lists.oldest(PROBATION).or_else(|| self.lists.oldest(PROTECTED));
        let block = match (candidate, main) {
            (Some(candidate), Some(main)) => {
                // The candidate is inserted once there is room, that is, before the next victim.
                if self.counts[candidate as usize] > self.counts[main as usize] { main } else { candidate }
            }
            (candidate, main) => candidate.or(main)?,
        };
        self.lists.remove(block);
        Some(block)
    }

    fn weigh(&mut self, block: u32, size: u32) {
        self.lists.weigh(block, size);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn resize(&mut self, frames: usize) {
        self.frames = frames;
    }

    fn len(&self) -> usize {
        (WINDOW..=PROTECTED).map(|list| self.lists.len(list)).sum()
    }
}
