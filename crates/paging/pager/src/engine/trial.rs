//! Trials: blocks of which only the touched pages go into the program, so that each page's first
//! use is seen (`terapage_policy::splitting`).
//!
//! The block of a trial counts as Mapped, and its place in the pool keeps its frame: a trial is a
//! copy with missing parts. The copy is completed before anything else is done with the block.

use super::Engine;
use super::table::State;
use crate::carry::Run;
use crate::carry::hash::PARTS;
use std::collections::BTreeMap;
use std::ops::Range;
use terapage_policy::splitting::Splitting;
use terapage_sys::page_bytes;

/// All pages of a block, a bit each.
const ALL: u8 = (1 << PARTS) - 1;

/// A trial under way.
struct Trial {
    /// The page that was touched first, and came in with the read.
    first: usize,
    /// The pages that were touched, a bit each: once the read has ended, they are in the program.
    touched: u8,
    /// The first page has come in: whether all pages that came in were copied, so that the place
    /// still has its frame.
    came: Option<bool>,
}

/// The trials under way, by block.
pub(crate) struct Trials {
    /// Whether there are any: whether blocks can be split.
    on: bool,
    under_way: BTreeMap<u32, Trial>,
    /// Trials whose first page has come in.
    open: usize,
    pub splitting: Splitting,
}

impl Trials {
    pub fn new(on: bool, frames: usize) -> Trials {
        // With the few frames of a model checker there are more trials.
        let splitting = match cfg!(terapage_model) {
            true => Splitting::with_trials(frames * 64, 2),
            false => Splitting::new(frames),
        };
        Trials { on, under_way: BTreeMap::new(), open: 0, splitting }
    }

    /// The number of blocks of which some pages have come in, and the others are in the pool: each
    /// has an extra frame.
    pub fn frames(&self) -> usize {
        self.open
    }

    /// Whether there are no further trials.
    pub fn are_off(&self) -> bool {
        !self.on
    }

    /// A block has left memory.
    pub fn gone(&mut self, block: u32) {
        if self.on {
            self.splitting.gone(block);
        }
    }

    fn is_open(&self, block: u32) -> bool {
        self.under_way.get(&block).is_some_and(|trial| trial.came.is_some())
    }

    /// Removes a trial.
    fn remove(&mut self, block: u32) -> Option<Trial> {
        let trial = self.under_way.remove(&block)?;
        self.open -= usize::from(trial.came.is_some());
        self.splitting.ends();
        Some(trial)
    }
}

/// The number of the page at an address in its block.
fn page_of(at: usize) -> usize {
    at / page_bytes() % PARTS
}

impl Engine {
    /// A thread waits for the page at `at` of a block that is about to be read for it.
    pub(crate) fn begin_trial(&mut self, block: u32, at: usize) {
        // While a thread forks, its faults are served completely at once.
        if !self.trials.on || self.forks_ahead > 0 || !self.mover.wakes() {
            return;
        }
        // A read that was given up leaves its trial.
        if self.trials.remove(block).is_some() {
            self.trials.splitting.given_up(block..block + 1);
        }
        let first = page_of(at);
        if self.trials.splitting.major_fault(block, first) {
            self.trials.under_way.insert(block, Trial { first, touched: 1 << first, came: None });
        }
    }

    /// A thread waits for the page at `at` of a block that is being read.
    pub(crate) fn touch_trial(&mut self, block: u32, at: usize) {
        if let Some(trial) = self.trials.under_way.get_mut(&block) {
            trial.touched |= 1 << page_of(at);
            self.trials.splitting.used(block, page_of(at));
        }
    }

    /// If the read belongs to a trial, replaces its planned runs by the trial's single run.
    pub(crate) fn plan_trial(&mut self, blocks: &[u32], runs: &mut [Run]) {
        if self.trials.under_way.is_empty() {
            return;
        }
        for &block in blocks {
            self.plan_trial_of(block, runs);
        }
    }

    fn plan_trial_of(&mut self, block: u32, runs: &mut [Run]) {
        let Some(trial) = self.trials.under_way.get(&block) else { return };
        match runs {
            [run] if run.blocks == 1 && run.copy => {
                let before = trial.first * page_bytes();
                (run.program, run.place, run.len) = (run.program + before, run.place + before, page_bytes());
            }
            _ => {
                self.trials.remove(block);
                self.trials.splitting.given_up(block..block + 1);
            }
        }
    }

    /// The first page of a trial is in the program.
    pub(crate) fn trial_came(&mut self, block: u32, copied: bool) {
        if let Some(trial) = self.trials.under_way.get_mut(&block) {
            trial.came = Some(copied);
            self.trials.open += 1;
        }
    }

    /// Puts further pages of these blocks, which were just read, into the program if they were
    /// touched meanwhile.
    pub(crate) fn see_to_trials(&mut self, blocks: &[u32]) {
        for &block in blocks {
            if !self.trials.is_open(block) {
                continue;
            }
            let Some(trial) = self.trials.under_way.get(&block) else { continue };
            let (first, touched) = (trial.first, trial.touched);
            for page in (0..PARTS).filter(|&page| page != first && touched >> page & 1 == 1) {
                self.bring(block, page..page + 1);
            }
            self.end_if_whole(block);
        }
    }

    /// A thread has touched a page of a block that is in the program. If the page is missing
    /// because of a trial, it comes in. Returns whether it did.
    pub(crate) fn touch_open_trial(&mut self, block: u32, at: usize) -> bool {
        let page = page_of(at);
        let is_missing = |trial: &Trial| trial.came.is_some() && trial.touched >> page & 1 == 0;
        let Some(trial) = self.trials.under_way.get_mut(&block).filter(|trial| is_missing(trial)) else {
            return false;
        };
        trial.touched |= 1 << page;
        self.trials.splitting.used(block, page);
        self.bring(block, page..page + 1);
        self.end_if_whole(block);
        true
    }

    /// A block with a frame that has left the program comes back for the page at `at`.
    pub(crate) fn rescued_in_trial(&mut self, block: u32, at: usize) {
        if self.trials.on {
            self.trials.splitting.rescued(block, page_of(at));
        }
    }

    /// A block that the policy has chosen leaves the program: completes it.
    pub(crate) fn leaves_in_trial(&mut self, block: u32) {
        if self.trials.on {
            self.trials.splitting.leaves(block);
            self.complete(block);
        }
    }

    /// Completes a block on trial, whose further uses are not seen.
    pub(crate) fn end_trial(&mut self, block: u32) {
        self.trials.splitting.given_up(block..block + 1);
        self.complete(block);
    }

    /// Ends the trials of the blocks from `first` to `end`, of which none is being read.
    pub(crate) fn end_trials(&mut self, first: u32, end: u32) {
        self.trials.splitting.given_up(first..end);
        while let Some((&block, trial)) = self.trials.under_way.range(first..end).next() {
            if trial.came.is_some() {
                self.complete(block);
            } else {
                // The block is no longer being read: the read was given up.
                self.trials.remove(block);
            }
        }
    }

    /// Ends all trials of blocks that are not being read, so that their frames are free.
    pub(crate) fn end_all_trials(&mut self) {
        let open = |(&block, trial): (&u32, &Trial)| trial.came.map(|_| block);
        let blocks: Vec<u32> = self.trials.under_way.iter().filter_map(open).collect();
        for block in blocks {
            self.end_trial(block);
        }
    }

    /// Puts pages of an open trial's block into the program.
    fn bring(&mut self, block: u32, pages: Range<usize>) {
        debug_assert!(self.table.state(block) == State::Mapped);
        let (before, len) = (pages.start * page_bytes(), pages.len() * page_bytes());
        let place = self.frames.pool.address(self.table.get(block).place) + before;
        let copied = self.mover.copy(self.table.address(block) + before, place, len);
        let copied = self.or_stop(copied);
        if let Some(trial) = self.trials.under_way.get_mut(&block) {
            trial.came = trial.came.map(|all| all && copied);
        }
    }

    /// Ends a trial if all pages of its block are in the program.
    fn end_if_whole(&mut self, block: u32) {
        if self.trials.under_way.get(&block).is_some_and(|trial| trial.touched == ALL) {
            self.complete(block);
        }
    }

    /// Puts the rest of an open trial's block into the program, which ends the trial.
    fn complete(&mut self, block: u32) {
        let Some(trial) = self.trials.under_way.get(&block).filter(|trial| trial.came.is_some()) else {
            return;
        };
        let missing: Vec<usize> = (0..PARTS).filter(|page| trial.touched >> page & 1 == 0).collect();
        for pages in missing.chunk_by(|page, next| page + 1 == *next) {
            self.bring(block, pages[0]..pages[0] + pages.len());
        }
        let place = self.table.get(block).place;
        if self.trials.remove(block).is_some_and(|trial| trial.came == Some(true)) {
            self.frames.pool.put_free(place);
        } else if let Err(error) = self.frames.give_back(vec![place]) {
            self.stop(&error.to_string());
        }
    }
}
