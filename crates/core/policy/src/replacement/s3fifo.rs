//! S3-FIFO: a small queue filters out blocks that are used once, and a main queue keeps the others.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO Queues are All You Need for Cache
//! Eviction", SOSP 2023, algorithm 1.
//!
//! A rescued block goes to the main queue; the paper has no rescues.

use super::Replacement;
use crate::list::Lists;

const SMALL: u8 = 1;
const MAIN: u8 = 2;
/// Blocks gone from the small queue; if they return, they go to the main queue.
const GHOST: u8 = 3;
/// Blocks chosen as victims out of the small queue.
const OUT_SMALL: u8 = 4;
/// Blocks chosen as victims out of the main queue.
const OUT_MAIN: u8 = 5;

/// The highest count of touches. 0 to 3.
const COUNT_MAX: u8 = 3;

/// Two queues and a ghost queue; the mark counts touches.
pub struct S3Fifo {
    lists: Lists<5>,
    /// Blocks that the small queue keeps before it gives victims: a tenth of the frames.
    small: usize,
    /// The number of ghosts: as many as the main queue has frames.
    ghosts: usize,
    /// The newcomer, if it was a ghost.
    returning: Option<u32>,
}

impl S3Fifo {
    /// The policy for `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        let small = (frames / 10).max(1);
        let ghosts = frames.saturating_sub(small).max(1);
        S3Fifo { lists: Lists::default(), small, ghosts, returning: None }
    }

    /// The next victim of the small queue; blocks touched twice move to the main queue.
    fn small_victim(&mut self) -> Option<u32> {
        loop {
            let block = self.lists.oldest(SMALL)?;
            if self.lists.mark(block) <= 1 {
                self.lists.push(OUT_SMALL, block);
                return Some(block);
            }
            self.lists.push(MAIN, block);
        }
    }

    /// The next victim of the main queue; a touched block gets another round for each touch.
    fn main_victim(&mut self) -> Option<u32> {
        loop {
            let block = self.lists.oldest(MAIN)?;
            let count = self.lists.mark(block);
            if count == 0 {
                self.lists.push(OUT_MAIN, block);
                return Some(block);
            }
            self.lists.push(MAIN, block);
            self.lists.set_mark(block, count - 1);
        }
    }
}

impl Replacement for S3Fifo {
    fn insert(&mut self, block: u32) {
        let returns = self.returning.take() == Some(block) || self.lists.of(block) == GHOST;
        let list = if returns { MAIN } else { SMALL };
        self.lists.push(list, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(MAIN, block);
    }

    fn touched(&mut self, block: u32) {
        let count = self.lists.mark(block);
        self.lists.set_mark(block, (count + 1).min(COUNT_MAX));
    }

    fn victim(&mut self) -> Option<u32> {
        if self.lists.size(SMALL) >= self.small
            && let Some(block) = self.small_victim()
        {
            return Some(block);
        }
        self.main_victim().or_else(|| self.small_victim()).or_else(|| self.main_victim())
    }

    fn victim_for(&mut self, newcomer: u32) -> Option<u32> {
        if self.lists.of(newcomer) == GHOST {
            self.lists.remove(newcomer);
            self.returning = Some(newcomer);
        }
        self.victim()
    }

    fn gone(&mut self, block: u32) {
        if self.lists.remove(block) == OUT_SMALL {
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
        (self.small, self.ghosts) = (new.small, new.ghosts);
    }

    fn len(&self) -> usize {
        self.lists.len(SMALL) + self.lists.len(MAIN)
    }
}
