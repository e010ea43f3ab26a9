//! How many frames newcomers need at least, so that blocks that were read for streams are still in
//! memory at their first use.
//!
//! If such blocks leave before their use, and are then needed, more frames for newcomers would have
//! held them. But these frames are taken from blocks in use. A frame should go to the block that is
//! needed sooner. So the frames for newcomers grow if blocks that were read too early are needed
//! sooner after they have left than kept blocks are touched again. Otherwise these frames shrink,
//! and the reads ahead become shorter (`prefetch/auto.rs`). The frames also shrink if nothing is
//! read for streams.

use std::collections::VecDeque;

/// The number of blocks that have left before their use and are remembered.
const GHOSTS: usize = 64;
/// Kept blocks must take this many times as long until their next touch. Chosen, not measured.
const LONGER: u64 = 4;
/// The median moves by itself divided by this with each value. Chosen, not measured.
const MEDIAN_PART: u64 = 64;
/// Averages give the last value the weight of one in this many.
const AVERAGED: u64 = 8;
/// The number of frames divided by this is the most that newcomers get for this reason.
const PART: usize = 6;
/// The number of frames divided by this is what they get at first.
const PART_FIRST: usize = 20;
/// What they have beyond that shrinks by a step for this many runs that were used in time.
const USED_RUNS: usize = 16;
/// What they have shrinks by a step each time that blocks for the number of frames divided by this
/// come in, and no run is used or leaves. Chosen, not measured.
const PART_WITHOUT: usize = 16;

/// The frames that newcomers need. Times are numbers of blocks that have come in.
#[derive(Debug, Default)]
pub struct Waiting {
    frames: usize,
    least: usize,
    used_runs: usize,
    /// When a run was last used or has left, or the frames have shrunk without one.
    run_at: u64,
    /// First blocks of runs that have left before their use, and when.
    ghosts: VecDeque<(u32, u64)>,
    /// The average time from leaving until such a block is needed.
    missed: u64,
    /// About the median of the times between two touches of a kept group of blocks. Many times are
    /// far too short, since the blocks of a group are touched one after the other.
    kept: u64,
}

fn average(before: u64, value: u64) -> u64 {
    before - before / AVERAGED + value / AVERAGED
}

impl Waiting {
    /// For a memory of `frames` blocks.
    pub fn new(frames: usize) -> Waiting {
        Waiting { frames, least: frames / PART_FIRST, kept: frames as u64, ..Waiting::default() }
    }

    /// Newcomers never get fewer frames than this.
    pub fn least(&self) -> usize {
        self.least
    }

    /// `block`, the first of a run, has left before its use.
    pub fn left(&mut self, block: u32, now: u64) {
        self.run_at = now;
        if self.ghosts.len() == GHOSTS {
            self.ghosts.pop_front();
        }
        self.ghosts.push_back((block, now));
    }

    /// `block` comes in. If it had left before its use, the least number changes, by `step` or
    /// more; newcomers have `share` frames. Returns the number that they should have.
    pub fn comes(&mut self, block: u32, now: u64, share: usize, step: usize) -> usize {
        let Some(at) = self.ghosts.iter().position(|&(ghost, _)| ghost == block) else { return share };
        let (_, left) = self.ghosts.remove(at).expect("it is there");
        if now - left > self.frames as u64 {
            return share;
        }
        self.missed = average(self.missed, now - left);
        if self.missed * LONGER > self.kept {
            self.least = self.least.saturating_sub(step);
            return share;
        }
        // Twice this number of frames more would have held the block.
        let more = ((now - left) / 2) as usize;
        self.least = (self.least.max(share) + more.max(step)).min(self.frames / PART);
        self.used_runs = 0;
        share.max(self.least)
    }

    /// A block that had left comes back.
    pub fn returns(&mut self, now: u64, step: usize) {
        if now - self.run_at > (self.frames / PART_WITHOUT) as u64 {
            self.run_at = now;
            self.least = self.least.saturating_sub(step);
        }
    }

    /// A kept block was touched `after` this time.
    pub fn kept_used(&mut self, after: u64) {
        // While nothing comes in, it costs nothing to keep the block.
        if after > 0 {
            let step = self.kept / MEDIAN_PART + 1;
            self.kept = if after > self.kept { self.kept + step } else { self.kept - step.min(self.kept) };
        }
    }

    /// A run was used in time.
    pub fn used(&mut self, now: u64, step: usize) {
        self.run_at = now;
        self.used_runs += 1;
        if self.used_runs == USED_RUNS {
            self.used_runs = 0;
            let first = self.frames / PART_FIRST;
            self.least = self.least.saturating_sub(step).max(self.least.min(first));
        }
    }

    /// There are `frames` frames now.
    pub fn resize(&mut self, frames: usize) {
        let part = self.least as u128 * frames as u128 / self.frames.max(1) as u128;
        self.least = (part as usize).min(frames / PART);
        self.frames = frames;
    }
}

#[cfg(test)]
mod tests {
    use super::Waiting;

    /// Blocks leave before their use, and are needed `missed` later. Kept blocks are touched after
    /// `kept`. Returns the frames that newcomers get.
    fn least(missed: u64, kept: u64) -> usize {
        let mut waiting = Waiting::new(6000);
        for block in 0..100 {
            let now = u64::from(block) * 100;
            waiting.kept_used(kept);
            waiting.left(block, now);
            let share = waiting.comes(block, now + missed, waiting.least(), 64);
            assert!(share >= waiting.least());
        }
        waiting.least()
    }

    #[test]
    fn frames_go_to_what_is_needed_sooner() {
        assert_eq!(least(500, 6000), 1000);
        assert_eq!(least(500, 100), 0);
        assert_eq!(least(3000, 3000), 0);
    }

    #[test]
    fn runs_that_are_used_in_time_give_back_what_they_had_got() {
        let mut waiting = Waiting::new(6000);
        assert_eq!(waiting.least(), 300);
        waiting.left(5, 10);
        assert_eq!(waiting.comes(5, 20, 600, 64), 664);
        (0..160).for_each(|now| waiting.used(now, 64));
        assert_eq!(waiting.least(), 300);
        waiting.resize(60);
        assert_eq!(waiting.least(), 3);
    }

    #[test]
    fn only_what_left_before_its_use_counts() {
        let mut waiting = Waiting::new(6000);
        assert_eq!(waiting.comes(5, 10, 300, 64), 300);
        waiting.left(5, 20);
        assert_eq!(waiting.comes(5, 30, 300, 64), 364);
        assert_eq!(waiting.comes(5, 40, 364, 64), 364);
    }

    #[test]
    fn without_streams_newcomers_need_few() {
        let mut waiting = Waiting::new(6000);
        (0..6000).for_each(|now| waiting.returns(now, 64));
        assert_eq!(waiting.least(), 0);
    }
}
