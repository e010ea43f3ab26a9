//! The default: few frames for newcomers, the rest for blocks that came back.
//!
//! A 2Q whose parts were chosen by what a pager sees: page-ins and rescues alone.
//! - Blocks that came back are kept in a CLOCK. A rescue is the one proof that a block
//!   is in use, and it cost a soft fault: the block is passed over twice.
//! - Newcomers have their own FIFO, so that a scan drives out newcomers only. One that
//!   comes back soon after it was gone is kept from then on.
//! - The newcomers' share follows ARC: it grows when one comes back that was gone, and
//!   shrinks when a kept one does. Such a block had its turn: it is a newcomer again.
//!
//! The numbers below measured best over the traces of `examples/compare.rs`.
//!
//! Sources: Johnson, Shasha, "2Q", VLDB 1994; Megiddo, Modha, "ARC", FAST 2003;
//! Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.

use super::Replacement;
use crate::list::Lists;

/// Came in for the first time or after a long absence, in order of arrival.
const NEW: u8 = 1;
/// Came back; in the order in which the hand meets them.
const KEPT: u8 = 2;
/// Gone from either.
const GHOST_NEW: u8 = 3;
const GHOST_KEPT: u8 = 4;
/// Given as victims out of either.
const OUT_NEW: u8 = 5;
const OUT_KEPT: u8 = 6;

/// Rounds for which a rescued block is passed over.
const ROUNDS: u8 = 2;

/// The newcomers' share of the frames, in per cent: at the start, least, most.
const NEW_START: usize = 10;
const NEW_MIN: usize = 5;
const NEW_MAX: usize = 25;

/// Newcomers and kept blocks, with their ghosts; the mark counts rounds left.
pub struct Auto {
    lists: Lists<6>,
    /// Ghosts of either kind: as many as frames.
    ghosts: usize,
    /// Newcomers in memory before they are the victims, and its limits.
    new: usize,
    new_min: usize,
    new_max: usize,
}

impl Auto {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        let share = |percent: usize| (frames * percent / 100).max(1);
        Auto {
            lists: Lists::default(),
            ghosts: frames.max(1),
            new: share(NEW_START),
            new_min: share(NEW_MIN),
            new_max: share(NEW_MAX),
        }
    }
}

impl Replacement for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn insert(&mut self, block: u32) {
        let new = self.lists.len(GHOST_NEW);
        let kept = self.lists.len(GHOST_KEPT);
        let list = match self.lists.of(block) {
            GHOST_NEW => {
                self.new = (self.new + (kept / new).max(1)).min(self.new_max);
                KEPT
            }
            GHOST_KEPT => {
                self.new = self.new.saturating_sub((new / kept).max(1)).max(self.new_min);
                NEW
            }
            _ => NEW,
        };
        self.lists.push(list, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(KEPT, block);
        self.lists.set_mark(block, ROUNDS);
    }

    fn touched(&mut self, block: u32) {
        self.lists.set_mark(block, ROUNDS.min(self.lists.mark(block) + 1));
    }

    fn victim(&mut self) -> Option<u32> {
        loop {
            let new = self.lists.len(NEW) > self.new || self.lists.len(KEPT) == 0;
            let (from, to) = if new { (NEW, OUT_NEW) } else { (KEPT, OUT_KEPT) };
            let block = self.lists.oldest(from)?;
            let rounds = self.lists.mark(block);
            if rounds == 0 {
                self.lists.push(to, block);
                return Some(block);
            }
            self.lists.push(KEPT, block);
            self.lists.set_mark(block, rounds - 1);
        }
    }

    fn gone(&mut self, block: u32) {
        let ghost = match self.lists.remove(block) {
            OUT_NEW => GHOST_NEW,
            OUT_KEPT => GHOST_KEPT,
            _ => return,
        };
        self.lists.push(ghost, block);
        self.lists.trim(ghost, self.ghosts);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn len(&self) -> usize {
        self.lists.len(NEW) + self.lists.len(KEPT)
    }
}
