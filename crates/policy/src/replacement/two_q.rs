//! 2Q: a FIFO for newcomers, an LRU list for blocks that came back.
//!
//! Source: Johnson, Shasha, "2Q: A Low Overhead High Performance Buffer Management
//! Replacement Algorithm", VLDB 1994, the full version.

use super::Replacement;
use crate::list::Lists;

/// A1in, A1out and Am of the paper.
const NEW: u8 = 1;
const GHOST: u8 = 2;
const HOT: u8 = 3;
/// Given as victims out of the newcomers and the hot.
const OUT_NEW: u8 = 4;
const OUT_HOT: u8 = 5;

/// A FIFO of newcomers, its ghosts, and an LRU list of blocks that came back.
pub struct TwoQ {
    lists: Lists<5>,
    /// Newcomers kept before they are the victims: a quarter of the frames.
    new: usize,
    /// Ghosts kept: half as many as frames.
    ghosts: usize,
}

impl TwoQ {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        TwoQ { lists: Lists::default(), new: (frames / 4).max(1), ghosts: (frames / 2).max(1) }
    }
}

impl Replacement for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    fn insert(&mut self, block: u32) {
        let list = if self.lists.of(block) == GHOST { HOT } else { NEW };
        self.lists.push(list, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(HOT, block);
    }

    fn touched(&mut self, block: u32) {
        if self.lists.of(block) == HOT {
            self.lists.push(HOT, block);
        }
    }

    fn victim(&mut self) -> Option<u32> {
        let new = self.lists.len(NEW) > self.new || self.lists.len(HOT) == 0;
        let (from, to) = if new { (NEW, OUT_NEW) } else { (HOT, OUT_HOT) };
        let block = self.lists.oldest(from)?;
        self.lists.push(to, block);
        Some(block)
    }

    fn gone(&mut self, block: u32) {
        if self.lists.remove(block) == OUT_NEW {
            self.lists.push(GHOST, block);
            self.lists.trim(GHOST, self.ghosts);
        }
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(NEW) + self.lists.len(HOT)
    }
}
