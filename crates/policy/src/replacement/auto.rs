//! The default: LRU with a part of the frames kept from scans.

use super::Replacement;
use crate::list::Lists;

/// Came in for the first time, or after a long absence.
const NEW: u8 = 1;
/// Rescued, or came back soon after it was gone.
const KEPT: u8 = 2;
/// Gone from either; its order is that of leaving.
const GHOST: u8 = 3;
/// Given as a victim.
const OUT: u8 = 4;

/// Two LRU lists.
pub struct Auto {
    lists: Lists<4>,
    frames: usize,
    kept: usize,
}

impl Auto {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        Auto { lists: Lists::default(), frames: frames.max(1), kept: frames / 2 }
    }
}

impl Replacement for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn insert(&mut self, block: u32) {
        let list = if self.lists.of(block) == GHOST { KEPT } else { NEW };
        self.lists.push(list, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(KEPT, block);
    }

    fn touched(&mut self, block: u32) {
        self.lists.push(KEPT, block);
    }

    fn victim(&mut self) -> Option<u32> {
        let kept = self.lists.len(KEPT) > self.kept || self.lists.len(NEW) == 0;
        let block = self.lists.oldest(if kept { KEPT } else { NEW })?;
        self.lists.push(OUT, block);
        Some(block)
    }

    fn gone(&mut self, block: u32) {
        self.lists.push(GHOST, block);
        self.lists.trim(GHOST, self.frames);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(NEW) + self.lists.len(KEPT)
    }
}
