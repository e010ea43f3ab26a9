//! Splitting: whether a program uses the neighbours that come in with a touched page.
//!
//! A block of several pages suits arrays: one read instead of several. With scattered objects most
//! pages of a block are never touched, and waste memory and reads. A pager does not see touches of
//! pages that are in the program. So some major faults are *trials*: only the touched page goes
//! into the program, and the other pages of its block wait outside. If another page is touched
//! before long, the pages are used together; if not, they are apart. "Before long" is a part of the
//! time in which memory is refilled: a page that is touched later is no better than any other block
//! that could have had the frame.
//!
//! If nearly all trials of some time find the pages apart, blocks are too large for the program.
//! Blocks are also too large if fewer trials do, but memory of single pages would have held most of
//! the missed pages ([`Refaults`]). The decision is made once for all of the program's memory, and
//! on much evidence, since it cannot be reversed.

use crate::refaults::Refaults;
use std::collections::VecDeque;

/// One major fault in this many is a trial. Chosen, not measured.
const TRIAL_EACH: u32 = 8;

/// A trial ends after the blocks that came in could have filled the number of frames divided by
/// this. Chosen, not measured.
const TRIAL_PART: usize = 8;

/// Trials under way are at most the number of frames divided by this, and at most this number,
/// before a wasteful window and after it. A trial takes an extra frame, which a program that needs
/// whole blocks should not miss. Chosen, not measured.
const UNDER_WAY_PART: usize = 64;
const UNDER_WAY_FIRST: usize = 64;
const UNDER_WAY_MAX: usize = 256;

/// Trials of a window, which is judged as a whole. Chosen, not measured.
const WINDOW: u32 = 64;
/// In a wasteful window at least this part of the trials finds the pages apart, per cent. Chosen,
/// not measured.
const APART_PERCENT: u32 = 75;
/// Or at least this part of the trials does, and blocks of one page would have at most this
/// percentage of the major faults. A read of one page takes 0.5 to 0.85 of the time of a read of
/// four.
const SOME_APART_PERCENT: u32 = 30;
const STILL_PERCENT: u32 = 110;
/// This many wasteful windows in a row show that blocks are too large. Chosen, not measured.
const WINDOWS: u32 = 4;

/// The results of trials.
#[derive(Debug, Default)]
pub struct Splitting {
    frames: usize,
    /// One major fault in this many is a trial.
    each: u32,
    /// Major faults since the last trial.
    faults: u32,
    /// Blocks that came in.
    came: u64,
    /// Trials under way, the oldest first: the block, and `came` when it was read.
    under_way: VecDeque<(u32, u64)>,
    /// In this window: trials that found the pages together, and apart; major faults; and `came` at
    /// its start.
    together: u32,
    apart: u32,
    demands: u64,
    since: u64,
    /// Wasteful windows in a row.
    wasteful: u32,
    /// Trials from the beginning that found the pages used together, and apart.
    trials: [u64; 2],
    refaults: Refaults,
}

impl Splitting {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Splitting {
        Self::with_trials(frames, TRIAL_EACH)
    }

    /// Like `new`, but one major fault in `each` is a trial.
    pub fn with_trials(frames: usize, each: u32) -> Splitting {
        Splitting { frames, each, refaults: Refaults::new(frames), ..Splitting::default() }
    }

    /// From now on there are `frames` frames.
    pub fn resize(&mut self, frames: usize) {
        self.frames = frames;
        self.refaults.resize(frames);
    }

    /// A block has left memory.
    pub fn gone(&mut self, block: u32) {
        self.refaults.gone(block);
    }

    /// `blocks` blocks have come in, because of a major fault or ahead of need.
    pub fn come(&mut self, blocks: usize) {
        self.came += blocks as u64;
    }

    /// A thread waits for a page, 0 to 3, of `block`, which must be read. Returns whether this is a
    /// trial; a trial ends by [`end`](Self::end) or [`found`](Self::found).
    pub fn major_fault(&mut self, block: u32, page: usize) -> bool {
        self.refaults.major_fault(block, page);
        self.demands += 1;
        self.faults += 1;
        let most = if self.wasteful > 0 { UNDER_WAY_MAX } else { UNDER_WAY_FIRST };
        let most = (self.frames / UNDER_WAY_PART).clamp(1, most);
        if self.faults < self.each || self.under_way.len() >= most {
            return false;
        }
        self.faults = 0;
        self.under_way.push_back((block, self.came));
        true
    }

    /// The number of blocks that come in during a trial.
    fn lasts(&self) -> u64 {
        (self.frames / TRIAL_PART).max(1) as u64
    }

    /// A trial whose time is over: it ends now, and found the pages apart.
    pub fn end(&mut self) -> Option<u32> {
        let lasts = self.lasts();
        let &(block, at) = self.under_way.front().filter(|&&(_, at)| self.came - at >= lasts)?;
        self.under_way.pop_front();
        debug_assert!(at <= self.came);
        self.count(false);
        Some(block)
    }

    /// A trial ends before its time. `together`: another page of its block was touched. Otherwise
    /// the block leaves. If half of the time is over, the pages are apart, since a policy may give
    /// newcomers no more time than that; if not, the trial has shown nothing.
    pub fn found(&mut self, block: u32, together: bool) {
        let Some(index) = self.under_way.iter().position(|&(other, _)| other == block) else { return };
        let at = self.under_way.remove(index).map_or(self.came, |(_, at)| at);
        if together || (self.came - at) * 2 >= self.lasts() {
            self.count(together);
        }
    }

    fn count(&mut self, together: bool) {
        *if together { &mut self.together } else { &mut self.apart } += 1;
        self.trials[usize::from(!together)] += 1;
        if self.together + self.apart < WINDOW {
            return;
        }
        // Blocks that are read ahead are read in runs, for which large blocks are right.
        let streams = (self.came - self.since) > 2 * self.demands;
        let apart_percent = self.apart * 100 / WINDOW;
        let still = self.refaults.judge(apart_percent);
        let saves = apart_percent >= SOME_APART_PERCENT && still.is_some_and(|still| still <= STILL_PERCENT);
        let is_wasteful = (apart_percent >= APART_PERCENT || saves) && !streams;
        self.wasteful = if is_wasteful { self.wasteful + 1 } else { 0 };
        (self.together, self.apart, self.demands, self.since) = (0, 0, 0, self.came);
    }

    /// The number of trials that found the pages of a block together, and the number that found
    /// them apart.
    pub fn trials(&self) -> [u64; 2] {
        self.trials
    }

    /// Whether blocks are too large for the program.
    pub fn is_shown(&self) -> bool {
        self.wasteful >= WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::Splitting;
    use crate::testing::random;
    use std::collections::{HashMap, VecDeque};

    const FRAMES: usize = 2048;
    const PAGES: u32 = 4;

    /// Simulates touches of pages until blocks prove too large or the touches end. Returns whether
    /// blocks proved too large.
    fn play(touches: impl Iterator<Item = u32>, ahead: u32) -> bool {
        let mut splitting = Splitting::new(FRAMES);
        let mut memory = VecDeque::new();
        // The page that was touched first, for each block on trial.
        let mut trials: HashMap<u32, u32> = HashMap::new();
        for page in touches {
            let block = page / PAGES;
            if trials.get(&block).is_some_and(|&first| first != page) {
                trials.remove(&block);
                splitting.found(block, true);
            }
            if !memory.contains(&block) {
                if splitting.major_fault(block, (page % PAGES) as usize) {
                    trials.insert(block, page);
                }
                let come = block..=block + ahead;
                splitting.come(come.clone().count());
                memory.extend(come);
                while memory.len() > FRAMES {
                    splitting.gone(memory.pop_front().expect("it is longer"));
                }
            }
            while let Some(ended) = splitting.end() {
                trials.remove(&ended).expect("a trial under way");
            }
            if splitting.is_shown() {
                return true;
            }
        }
        false
    }

    #[test]
    fn scattered_pages_are_waste() {
        assert!(play(random(40_000, 8 * PAGES * FRAMES as u32), 0));
    }

    #[test]
    fn blocks_that_are_used_whole_are_not() {
        let blocks = random(40_000, 8 * FRAMES as u32);
        assert!(!play(blocks.flat_map(|block| (0..PAGES).map(move |page| PAGES * block + page)), 0));
        assert!(!play((0..8 * PAGES * FRAMES as u32).cycle().take(160_000), 0));
    }

    #[test]
    fn a_half_that_is_used_whole_is_enough() {
        let blocks = random(40_000, 8 * FRAMES as u32).enumerate();
        assert!(!play(
            blocks.flat_map(|(turn, block)| {
                let pages = if turn % 2 == 0 { PAGES } else { 1 };
                (0..pages).map(move |page| PAGES * block + page)
            }),
            0
        ));
    }

    #[test]
    fn what_is_mostly_read_ahead_is_not() {
        assert!(!play(random(40_000, 8 * PAGES * FRAMES as u32), 4));
    }
}
