//! The accuracy of prefetch: how many of the blocks that are read ahead are used, by samples.
//!
//! A block that is read ahead and never touched costs a part of a read, and displaces another
//! block. So if few of the blocks are touched, prefetch stops. From then on *ghosts* are judged:
//! samples of the blocks that would have been read. A ghost is used if a thread waits for the block
//! within half a turnover of the frames. If enough ghosts are used, prefetch resumes.

use super::Ahead;
use std::collections::VecDeque;

/// Samples of a window, which is judged as a whole. Chosen, not measured.
const WINDOW: u32 = 32;
/// Prefetch stops after two successive windows in which less than this part was used, per cent. The
/// value was tuned on PyPy and OCaml: docs/results.md.
const STOP_PERCENT: u64 = 45;
const STOP_WINDOWS: u32 = 2;
/// Prefetch resumes after a window in which at least this part of the ghosts would have been used,
/// per cent. If it stops again before `PROVEN` windows, the ghosts were wrong: then the next
/// resumption needs twice as many such windows in a row, up to `GO_WINDOWS_MAX`. Chosen, not
/// measured.
const GO_PERCENT: u64 = 65;
const PROVEN: u32 = 16;
const GO_WINDOWS_MAX: u32 = 16;

/// The number of blocks for which one ghost stands; a shorter run has one ghost.
const GHOST_EACH: u32 = 8;
/// A ghost has left, untouched, once the blocks that came in could have filled the number of frames
/// divided by this: newcomers have only a part of memory.
const GHOST_PART: u64 = 2;
/// The most ghosts at a time, since each major fault searches them.
const GHOSTS: usize = 128;

/// A block that would have been read.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    block: u32,
    /// The number of blocks that had come in by then.
    came: u64,
    /// The number of blocks for which the ghost stands.
    stands_for: u32,
}

/// Judges by its accuracy whether prefetch is worth its cost.
#[derive(Debug, Default)]
pub struct Accuracy {
    frames: u32,
    came: u64,
    samples: u32,
    used: u64,
    all: u64,
    /// Successive windows that speak against the present state (stopped or not).
    contrary: u32,
    /// The number of such windows after which prefetch resumes.
    needed: u32,
    /// Windows since it resumed.
    windows: u32,
    stopped: bool,
    ghosts: VecDeque<Ghost>,
    /// Draws the ghost of a run.
    draw: u32,
}

impl Accuracy {
    /// For a memory of `frames` blocks.
    pub fn new(frames: u32) -> Accuracy {
        Accuracy { frames, needed: 1, ..Accuracy::default() }
    }

    /// Whether prefetch is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// `blocks` blocks come in.
    pub fn come(&mut self, blocks: u32) {
        self.came += u64::from(blocks);
    }

    /// A thread waits for `block`.
    pub fn touched(&mut self, block: u32) {
        if !self.stopped {
            return;
        }
        while let Some(&ghost) = self.ghosts.front() {
            if self.came - ghost.came < u64::from(self.frames) / GHOST_PART {
                break;
            }
            self.ghosts.pop_front();
            self.count(false, ghost.stands_for);
        }
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.block == block) {
            let ghost = self.ghosts.remove(at).expect("it is there");
            self.count(true, ghost.stands_for);
        }
    }

    /// The part of a requested run that may be read: all of it, or nothing.
    pub fn allow(&mut self, ahead: Option<Ahead>) -> Option<Ahead> {
        if !self.stopped {
            return ahead;
        }
        let ahead = ahead?;
        let mut from = 0;
        while from < ahead.count && self.ghosts.len() < GHOSTS {
            let stands_for = GHOST_EACH.min(ahead.count - from);
            self.draw = self.draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let index = from + (self.draw >> 16) % stands_for;
            let block = ahead.first.checked_add_signed(ahead.step.saturating_mul(index as i32));
            if let Some(block) = block {
                self.ghosts.push_back(Ghost { block, came: self.came, stands_for });
            }
            from += stands_for;
        }
        None
    }

    /// Notes whether a sample of the blocks read ahead, which stands for `blocks`, was used.
    pub fn sampled(&mut self, used: bool, blocks: u32) {
        // Blocks that were read before the stop show nothing new.
        if !self.stopped {
            self.count(used, blocks);
        }
    }

    fn count(&mut self, used: bool, blocks: u32) {
        self.samples += 1;
        self.all += u64::from(blocks);
        self.used += if used { u64::from(blocks) } else { 0 };
        if self.samples < WINDOW {
            return;
        }
        let percent = self.used * 100 / self.all.max(1);
        (self.samples, self.used, self.all) = (0, 0, 0);
        self.windows = self.windows.saturating_add(1);
        let is_contrary = if self.stopped { percent >= GO_PERCENT } else { percent < STOP_PERCENT };
        self.contrary = if is_contrary { self.contrary + 1 } else { 0 };
        if self.contrary >= if self.stopped { self.needed } else { STOP_WINDOWS } {
            self.turn();
        }
    }

    /// Stops, or resumes.
    fn turn(&mut self) {
        if !self.stopped {
            let proven = self.windows >= PROVEN;
            self.needed = if proven { 1 } else { (self.needed * 2).min(GO_WINDOWS_MAX) };
        }
        self.stopped = !self.stopped;
        (self.contrary, self.windows) = (0, 0);
        self.ghosts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Accuracy, Ahead, PROVEN, STOP_WINDOWS, WINDOW};
    use crate::testing::random;

    fn stopped() -> Accuracy {
        let mut accuracy = Accuracy::new(1000);
        (0..WINDOW * PROVEN).for_each(|_| accuracy.sampled(true, 8));
        (0..WINDOW * STOP_WINDOWS).for_each(|sample| accuracy.sampled(sample % 4 == 0, 8));
        assert!(accuracy.is_stopped());
        accuracy
    }

    #[test]
    fn it_stops_if_little_is_used() {
        let mut accuracy = Accuracy::new(1000);
        (0..1000).for_each(|sample| accuracy.sampled(sample % 2 == 0, 8));
        assert!(!accuracy.is_stopped());
        // A few samples that stand for many blocks weigh more.
        (0..1000).for_each(|sample| accuracy.sampled(sample % 2 == 0, if sample % 2 == 0 { 2 } else { 64 }));
        assert!(accuracy.is_stopped());
        assert_eq!(accuracy.allow(Some(Ahead { first: 10, count: 4, step: 1 })), None);
    }

    #[test]
    fn it_goes_on_if_what_it_would_have_read_is_touched() {
        let mut accuracy = stopped();
        let mut block = 0;
        while accuracy.is_stopped() && block < 10_000 {
            accuracy.touched(block);
            accuracy.come(1);
            if block % 64 == 0 {
                accuracy.allow(Some(Ahead { first: block + 1, count: 64, step: 1 }));
            }
            block += 1;
        }
        assert!((64..600).contains(&block), "after {block} blocks");
    }

    #[test]
    fn it_takes_more_to_go_on_after_each_error() {
        let mut accuracy = stopped();
        let mut blocks = [0; 3];
        for turn in &mut blocks {
            let mut block = 0;
            while accuracy.is_stopped() {
                accuracy.touched(block);
                accuracy.come(1);
                accuracy
                    .allow(Some(Ahead { first: block + 1, count: 64, step: 1 }).filter(|_| block % 64 == 0));
                block += 1;
            }
            *turn = block;
            (0..WINDOW * STOP_WINDOWS).for_each(|_| accuracy.sampled(false, 8));
        }
        assert!(blocks[1] > blocks[0] && blocks[2] > blocks[1], "{blocks:?}");
    }

    #[test]
    fn it_stays_stopped_if_that_is_not_touched() {
        let mut accuracy = stopped();
        for block in random(100_000, 1_000_000) {
            accuracy.touched(block);
            accuracy.come(1);
            accuracy.allow(Some(Ahead { first: block, count: 16, step: 1 }).filter(|_| block % 8 == 0));
            assert!(accuracy.is_stopped());
        }
    }
}
