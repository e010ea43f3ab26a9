//! Trials: major faults after which only the touched page goes into the program, to see whether the
//! other pages of its block are wanted (`terapage_policy::splitting`).
//!
//! The block of a trial counts as Mapped, and its place in the pool keeps its frame: a trial is a
//! copy with a missing part. The copy is completed before anything else is done with the block.

use super::Engine;
use super::table::State;
use crate::carry::Run;
use crate::carry::hash::PARTS;
use std::collections::BTreeMap;
use terapage_policy::splitting::Splitting;
use terapage_sys::page_bytes;

/// A trial under way.
struct Trial {
    /// The address of the touched page.
    page: usize,
    /// Another page of the block was touched before this page came in.
    together: bool,
    /// The trial's time was over before the page came in.
    late: bool,
    /// The page has come in: whether it was copied, so that the place still has its frame.
    came: Option<bool>,
}

/// The trials under way, by block.
pub(crate) struct Trials {
    /// Whether there are any: whether blocks can be split.
    on: bool,
    under_way: BTreeMap<u32, Trial>,
    pub splitting: Splitting,
}

impl Trials {
    pub fn new(on: bool, frames: usize) -> Trials {
        // With the few frames of a model checker there are more trials, which last longer.
        let splitting = match cfg!(terapage_model) {
            true => Splitting::with_trials(frames * 64, 2),
            false => Splitting::new(frames),
        };
        Trials { on, under_way: BTreeMap::new(), splitting }
    }

    /// The number of blocks of which one page has come in, and the others are in the pool: each has
    /// an extra frame.
    pub fn frames(&self) -> usize {
        self.under_way.values().filter(|trial| trial.came.is_some()).count()
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
}

impl Engine {
    /// A thread waits for the page at `at` of a block that is about to be read alone.
    pub(crate) fn begin_trial(&mut self, block: u32, at: usize) {
        // While a thread forks, its faults are served completely at once.
        if !self.trials.on || self.forks_ahead > 0 || !self.mover.wakes() {
            return;
        }
        // A read that was given up leaves its trial.
        if self.trials.under_way.remove(&block).is_some() {
            self.trials.splitting.found(block, false);
        }
        let page = at / page_bytes() * page_bytes();
        if self.trials.splitting.major_fault(block, at % (PARTS * page_bytes()) / page_bytes()) {
            let trial = Trial { page, together: false, late: false, came: None };
            self.trials.under_way.insert(block, trial);
        }
    }

    /// A thread waits for the page at `at` of a block that is being read.
    pub(crate) fn touch_trial(&mut self, block: u32, at: usize) {
        if let Some(trial) = self.trials.under_way.get_mut(&block) {
            trial.together |= trial.page != at / page_bytes() * page_bytes();
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
            [run] if run.blocks == 1 && run.copy && !trial.together && !trial.late => {
                run.place += trial.page - run.program;
                (run.program, run.len) = (trial.page, page_bytes());
            }
            _ => {
                let together = trial.together;
                self.trials.under_way.remove(&block);
                self.trials.splitting.found(block, together);
            }
        }
    }

    /// A trial's page is in the program.
    pub(crate) fn trial_came(&mut self, block: u32, copied: bool) {
        if let Some(trial) = self.trials.under_way.get_mut(&block) {
            trial.came = Some(copied);
        }
    }

    /// Ends trials whose time is over, and trials of these blocks, which were just read, if another
    /// of their pages was touched meanwhile.
    pub(crate) fn see_to_trials(&mut self, blocks: &[u32]) {
        for &block in blocks {
            match self.trials.under_way.get(&block) {
                Some(trial) if trial.together => {
                    self.end_trial(block, true);
                }
                Some(trial) if trial.late => self.complete(block),
                _ => {}
            }
        }
        while let Some(block) = self.trials.splitting.end() {
            self.complete(block);
        }
    }

    /// Ends the trial of a block, if there is one. `together`: a thread has touched another page.
    /// Returns whether there was a trial.
    pub(crate) fn end_trial(&mut self, block: u32, together: bool) -> bool {
        let is_open = self.trials.is_open(block);
        if is_open {
            self.trials.splitting.found(block, together);
            self.complete(block);
        }
        is_open
    }

    /// Ends the trials of the blocks from `first` to `end`, of which none is being read.
    pub(crate) fn end_trials(&mut self, first: u32, end: u32) {
        while let Some((&block, _)) = self.trials.under_way.range(first..end).next() {
            if !self.end_trial(block, false) {
                // The block is no longer being read: the read was given up.
                self.trials.under_way.remove(&block);
                self.trials.splitting.found(block, false);
            }
        }
    }

    /// Ends all trials of blocks that are not being read, so that their frames are free.
    pub(crate) fn end_all_trials(&mut self) {
        let open = |(&block, trial): (&u32, &Trial)| trial.came.map(|_| block);
        let blocks: Vec<u32> = self.trials.under_way.iter().filter_map(open).collect();
        for block in blocks {
            self.end_trial(block, false);
        }
    }

    /// Puts the rest of a trial's block into the program.
    fn complete(&mut self, block: u32) {
        let Some(trial) = self.trials.under_way.get_mut(&block) else { return };
        let (page, Some(copied)) = (trial.page, trial.came) else {
            // The block is still being read, and may already be on its way.
            trial.late = true;
            return;
        };
        self.trials.under_way.remove(&block);
        debug_assert!(self.table.state(block) == State::Mapped);
        let place = self.table.get(block).place;
        let (to, from) = (self.table.address(block), self.frames.pool.address(place));
        let mut is_filled = copied;
        for (first, end) in [(0, page - to), (page - to + page_bytes(), self.block)] {
            if first < end {
                let copied = self.mover.copy(to + first, from + first, end - first);
                is_filled &= self.or_stop(copied);
            }
        }
        if is_filled {
            self.frames.pool.put_free(place);
        } else if let Err(error) = self.frames.give_back(vec![place]) {
            self.stop(&error.to_string());
        }
    }
}
