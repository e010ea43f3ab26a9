//! ARC: recent and frequent blocks share the frames, and ghosts move the border between them.
//!
//! Source: Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache",
//! FAST 2003, figure 4.
//!
//! If the policy knows each newcomer before it chooses (`victim_for`), this is the paper's figure.
//! A pager chooses its victims before the newcomer is known. Then the border moves after the block
//! has come in, and the paper's tie (the newcomer is in B2, and T1 is as long as its share) is
//! decided as if the newcomer were not in B2. Also, the last block of T2 stays while T1 has any: it
//! may just have been rescued, and if it left next, a thread could wait for it for ever. If objects
//! have sizes, the border moves by the newcomer's size.

use super::Replacement;
use crate::list::Lists;

/// T1 of the paper: blocks seen once.
const ONCE: u8 = 1;
/// T2: blocks seen again.
const AGAIN: u8 = 2;
/// B1: blocks gone from T1.
const GHOST_ONCE: u8 = 3;
/// B2: blocks gone from T2.
const GHOST_AGAIN: u8 = 4;
/// Blocks chosen as victims out of T1.
const OUT_ONCE: u8 = 5;
/// Blocks chosen as victims out of T2.
const OUT_AGAIN: u8 = 6;

/// Two LRU lists with their ghosts.
pub struct Arc {
    lists: Lists<6>,
    frames: usize,
    /// Frames meant for blocks seen once, `p` of the paper: a real number.
    once: f64,
    /// The newcomer, and the ghost list in which it was, or 0.
    coming: Option<(u32, u8)>,
}

impl Arc {
    /// The policy for `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        Arc { lists: Lists::default(), frames: frames.max(1), once: 0.0, coming: None }
    }

    /// Blocks in memory.
    fn inside(&self) -> usize {
        self.lists.size(ONCE) + self.lists.size(AGAIN)
    }

    /// Limits the ghosts, together with the blocks in memory, to the numbers in the paper.
    fn trim(&mut self) {
        let once = self.frames.saturating_sub(self.lists.size(ONCE));
        self.lists.trim(GHOST_ONCE, once);
        let others = self.inside() + self.lists.size(GHOST_ONCE);
        let again = (2 * self.frames).saturating_sub(others).min(self.frames);
        self.lists.trim(GHOST_AGAIN, again);
    }

    /// Moves the border for a newcomer, and removes it from the ghosts; returns its ghost list.
    fn adapt(&mut self, block: u32) -> u8 {
        let once = self.lists.size(GHOST_ONCE) as f64;
        let again = self.lists.size(GHOST_AGAIN) as f64;
        let size = self.lists.weight(block) as f64;
        let ghost = self.lists.of(block);
        match ghost {
            GHOST_ONCE => self.once = (self.once + size * (again / once).max(1.0)).min(self.frames as f64),
            GHOST_AGAIN => self.once = (self.once - size * (once / again).max(1.0)).max(0.0),
            _ => return 0,
        }
        self.lists.remove(block);
        ghost
    }

    /// The oldest block of one list leaves.
    fn leave(&mut self, once: bool) -> Option<u32> {
        let (from, to) = if once { (ONCE, OUT_ONCE) } else { (AGAIN, OUT_AGAIN) };
        let block = self.lists.oldest(from)?;
        self.lists.push(to, block);
        Some(block)
    }
}

impl Replacement for Arc {
    fn insert(&mut self, block: u32) {
        let ghost = match self.coming.take() {
            Some((coming, ghost)) if coming == block => ghost,
            _ => self.adapt(block),
        };
        self.lists.push(if ghost == 0 { ONCE } else { AGAIN }, block);
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
        let more = self.lists.size(ONCE) as f64 > self.once;
        self.leave(more || again == 0 || again == 1 && once > 0)
    }

    fn victim_for(&mut self, newcomer: u32) -> Option<u32> {
        let ghost = match self.coming {
            Some((coming, ghost)) if coming == newcomer => ghost,
            _ => self.adapt(newcomer),
        };
        self.coming = Some((newcomer, ghost));
        let once = self.lists.size(ONCE) as f64;
        let more = once > self.once || ghost == GHOST_AGAIN && once == self.once;
        self.leave(self.lists.len(ONCE) > 0 && more || self.lists.len(AGAIN) == 0)
    }

    fn gone(&mut self, block: u32) {
        match self.lists.remove(block) {
            OUT_ONCE => self.lists.push(GHOST_ONCE, block),
            OUT_AGAIN => self.lists.push(GHOST_AGAIN, block),
            _ => return,
        }
        self.trim();
    }

    fn weigh(&mut self, block: u32, size: u32) {
        self.lists.weigh(block, size);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn resize(&mut self, frames: usize) {
        self.frames = frames.max(1);
        self.once = self.once.min(self.frames as f64);
    }

    fn len(&self) -> usize {
        self.lists.len(ONCE) + self.lists.len(AGAIN)
    }
}
