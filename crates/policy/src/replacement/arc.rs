//! ARC: recency and frequency share the frames; ghosts move the border between them.
//!
//! Source: Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache",
//! FAST 2003, figure 4. Here the victim is chosen before it is known which block
//! comes, so the paper's tie (the newcomer is in B2) is settled as if it were not. And
//! the last block of T2 stays while T1 has any: it may just have been rescued, and were
//! it to leave next again, a thread could wait for it for ever.

use super::Replacement;
use crate::list::Lists;

/// T1 and T2 of the paper: seen once, seen again.
const ONCE: u8 = 1;
const AGAIN: u8 = 2;
/// B1 and B2: what is gone from either.
const GHOST_ONCE: u8 = 3;
const GHOST_AGAIN: u8 = 4;
/// Given as victims out of either.
const OUT_ONCE: u8 = 5;
const OUT_AGAIN: u8 = 6;

/// Two LRU lists with their ghosts.
pub struct Arc {
    lists: Lists<6>,
    frames: usize,
    /// Frames meant for blocks seen once, `p` of the paper.
    once: usize,
}

impl Arc {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        Arc { lists: Lists::default(), frames: frames.max(1), once: 0 }
    }

    /// Keeps the ghosts of a kind, with the blocks in memory, within what the paper allows.
    fn trim(&mut self) {
        let once = self.frames.saturating_sub(self.lists.len(ONCE));
        self.lists.trim(GHOST_ONCE, once);
        let others = self.len() + self.lists.len(GHOST_ONCE);
        let again = (2 * self.frames).saturating_sub(others).min(self.frames);
        self.lists.trim(GHOST_AGAIN, again);
    }
}

impl Replacement for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn insert(&mut self, block: u32) {
        let once = self.lists.len(GHOST_ONCE);
        let again = self.lists.len(GHOST_AGAIN);
        let list = match self.lists.of(block) {
            GHOST_ONCE => {
                self.once = (self.once + (again / once).max(1)).min(self.frames);
                AGAIN
            }
            GHOST_AGAIN => {
                self.once = self.once.saturating_sub((once / again).max(1));
                AGAIN
            }
            _ => ONCE,
        };
        self.lists.push(list, block);
        self.trim();
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(AGAIN, block);
    }

    fn touched(&mut self, block: u32) {
        self.lists.push(AGAIN, block);
    }

    fn victim(&mut self) -> Option<u32> {
        let (once, again) = (self.lists.len(ONCE), self.lists.len(AGAIN));
        let once = once > self.once || again == 0 || again == 1 && once > 0;
        let (from, to) = if once { (ONCE, OUT_ONCE) } else { (AGAIN, OUT_AGAIN) };
        let block = self.lists.oldest(from)?;
        self.lists.push(to, block);
        Some(block)
    }

    fn gone(&mut self, block: u32) {
        match self.lists.remove(block) {
            OUT_ONCE => self.lists.push(GHOST_ONCE, block),
            OUT_AGAIN => self.lists.push(GHOST_AGAIN, block),
            _ => return,
        }
        self.trim();
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(ONCE) + self.lists.len(AGAIN)
    }
}
