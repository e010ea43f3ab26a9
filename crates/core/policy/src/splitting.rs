//! Splitting: whether a program uses the neighbours that come in with what it touches.
//!
//! A block of several pages suits arrays: one read instead of several. With scattered objects most
//! of its pages are never touched, and memory and reads are spent on them. A pager does not see
//! touches of pages that are in the program. So some major faults are *trials*: only the page that
//! was touched goes into the program, and the others of its block wait outside. If one of them is
//! touched before long, the pages are used together; if not, they are apart. "Before long" is a
//! part of the time in which memory is filled anew: what is touched later is no better than any
//! other block that could have had the frame.
//!
//! If nearly all trials of some time find the pages apart, blocks are too large for the program. So
//! they are if fewer do, but memory of single pages would have had most of what is missed
//! ([`Returns`]). That is judged once for all of its memory, and on much evidence, since there is
//! no way back.

use crate::returns::Returns;
use std::collections::VecDeque;

/// One major fault in this many is a trial. Chosen, not measured.
const TRIAL_EACH: u32 = 8;

/// A trial ends after the blocks that came in could have filled one part in this many of the
/// frames. Chosen, not measured.
const TRIAL_PART: usize = 8;

/// Trials under way are at most one part in this many of the frames, and no more than this many,
/// before a wasteful window and after it: a trial takes a frame more, which nobody who needs whole
/// blocks should miss. Chosen, not measured.
const UNDER_WAY_PART: usize = 64;
const UNDER_WAY_FIRST: usize = 64;
const UNDER_WAY_MAX: usize = 256;

/// Trials of a window, which is judged as a whole. Chosen, not measured.
const WINDOW: u32 = 64;
/// In a wasteful window at least this part of the trials finds the pages apart, per cent. Chosen,
/// not measured.
const APART_PERCENT: u32 = 75;
/// Or at least this part does, and with blocks of one page there would be at most so many of the
/// major faults, per cent. A read of one page takes 0.5 to 0.85 of the time of a read of four.
const SOME_APART_PERCENT: u32 = 30;
const STILL_PERCENT: u32 = 110;
/// So many wasteful windows in a row show that blocks are too large. Chosen, not measured.
const WINDOWS: u32 = 4;

/// What trials have shown.
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
    /// In this window: trials that found the pages used together, and apart; major faults; and
    /// `came` at its start.
    together: u32,
    apart: u32,
    demands: u64,
    since: u64,
    /// Wasteful windows in a row.
    wasteful: u32,
    /// Trials from the beginning that found the pages used together, and apart.
    trials: [u64; 2],
    returns: Returns,
}

impl Splitting {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Splitting {
        Self::with_trials(frames, TRIAL_EACH)
    }

    /// The same, where one major fault in `each` is a trial.
    pub fn with_trials(frames: usize, each: u32) -> Splitting {
        Splitting { frames, each, returns: Returns::new(frames), ..Splitting::default() }
    }

    /// From now on there are `frames` frames.
    pub fn resize(&mut self, frames: usize) {
        self.frames = frames;
        self.returns.resize(frames);
    }

    /// A block has left memory.
    pub fn gone(&mut self, block: u32) {
        self.returns.gone(block);
    }

    /// `blocks` blocks have come in, because of a major fault or ahead of need.
    pub fn come(&mut self, blocks: usize) {
        self.came += blocks as u64;
    }

    /// A thread waits for a page, 0 to 3, of `block`, which must be read. Whether this is a trial;
    /// then it ends by [`end`](Self::end) or [`found`](Self::found).
    pub fn major_fault(&mut self, block: u32, page: usize) -> bool {
        self.returns.major_fault(block, page);
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

    /// How many blocks come in during a trial.
    fn lasts(&self) -> u64 {
        (self.frames / TRIAL_PART).max(1) as u64
    }

    /// A trial whose time is up: it ends now, and found the pages apart.
    pub fn end(&mut self) -> Option<u32> {
        let lasts = self.lasts();
        let &(block, at) = self.under_way.front().filter(|&&(_, at)| self.came - at >= lasts)?;
        self.under_way.pop_front();
        debug_assert!(at <= self.came);
        self.count(false);
        Some(block)
    }

    /// A trial ends before its time. `together`: another page of its block was touched. Else the
    /// block leaves: if half of the time is over, the pages are apart, since a policy may give
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
        // What is read ahead is read in runs, for which large blocks are right.
        let streams = (self.came - self.since) > 2 * self.demands;
        let apart_percent = self.apart * 100 / WINDOW;
        let still = self.returns.judge(apart_percent);
        let saves = apart_percent >= SOME_APART_PERCENT && still.is_some_and(|still| still <= STILL_PERCENT);
        let is_wasteful = (apart_percent >= APART_PERCENT || saves) && !streams;
        self.wasteful = if is_wasteful { self.wasteful + 1 } else { 0 };
        (self.together, self.apart, self.demands, self.since) = (0, 0, 0, self.came);
    }

    /// How many trials have found the pages of a block used together, and how many apart.
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

    /// Plays touches of pages until it is shown that blocks are too large or they end. Whether it
    /// was shown.
    fn play(touches: impl Iterator<Item = u32>, ahead: u32) -> bool {
        let mut splitting = Splitting::new(FRAMES);
        let mut memory = VecDeque::new();
        // The page that was touched first, of each block on trial.
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
