//! 2Q: a FIFO for newcomers, an LRU list for blocks that came back.
//!
//! Source: Johnson, Shasha, "2Q: A Low Overhead High Performance Buffer Management
//! Replacement Algorithm", VLDB 1994, the full version, with the sizes that it recommends.
//!
//! A rescued block goes to the LRU list; the paper has no rescues. The newcomer leaves the ghosts
//! before the victim becomes a ghost, which the paper leaves open.

use super::Replacement;
use crate::list::Lists;

/// A1in of the paper: newcomers.
const NEW: u8 = 1;
/// A1out: newcomers that are gone.
const GHOST: u8 = 2;
/// Am: blocks that came back.
const HOT: u8 = 3;
/// Blocks chosen as victims out of the newcomers.
const OUT_NEW: u8 = 4;
/// Blocks chosen as victims out of Am.
const OUT_HOT: u8 = 5;

/// A FIFO of newcomers, its ghosts, and an LRU list of blocks that came back.
pub struct TwoQ {
    lists: Lists<5>,
    /// If there are more newcomers than this, they are the victims: a quarter of the frames.
    new: usize,
    /// The number of ghosts: half as many as frames.
    ghosts: usize,
    /// The newcomer, if it was a ghost.
    returning: Option<u32>,
}

impl TwoQ {
    /// The policy for `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        let (new, ghosts) = ((frames / 4).max(1), (frames / 2).max(1));
        TwoQ { lists: Lists::default(), new, ghosts, returning: None }
    }
}

impl Replacement for TwoQ {
    fn insert(&mut self, block: u32) {
        let returns = self.returning.take() == Some(block) || self.lists.of(block) == GHOST;
        let list = if returns { HOT } else { NEW };
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
        let new = self.lists.size(NEW) > self.new || self.lists.len(HOT) == 0;
        let (from, to) = if new { (NEW, OUT_NEW) } else { (HOT, OUT_HOT) };
        let block = self.lists.oldest(from)?;
        self.lists.push(to, block);
        Some(block)
    }

    fn victim_for(&mut self, newcomer: u32) -> Option<u32> {
        if self.lists.of(newcomer) == GHOST {
            self.lists.remove(newcomer);
            self.returning = Some(newcomer);
        }
        self.victim()
    }

    fn gone(&mut self, block: u32) {
        if self.lists.remove(block) == OUT_NEW {
            self.lists.push(GHOST, block);
            self.lists.trim(GHOST, self.ghosts);
        }
    }

    fn weigh(&mut self, block: u32, size: u32) {
        self.lists.weigh(block, size);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn resize(&mut self, frames: usize) {
        let new = Self::new(frames);
        (self.new, self.ghosts) = (new.new, new.ghosts);
    }

    fn len(&self) -> usize {
        self.lists.len(NEW) + self.lists.len(HOT)
    }
}
