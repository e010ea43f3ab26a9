//! Refaults: how soon blocks come back after they have left, and which of their pages the fault
//! needs.
//!
//! Each major fault shows both, and together they tell what blocks of one page would save. With
//! such blocks, memory would hold only used pages, of more blocks. A page of a block that comes
//! back soon after it left would still be in memory, if the page was used the last time. It was
//! used if the block mostly comes back for the same page. If the block comes back for all its pages
//! equally often, the last time tells little. On the other hand, each of several pages that are
//! used together needs a separate fault.

use crate::sparse::Sparse;

/// Pages of a block.
const PAGES: usize = 4;

/// The number of steps in a turnover of the frames. Times are noted in steps.
const STEPS: usize = 8;

/// After this number of turnovers, blocks that come back are no longer distinguished by age.
const TURNOVERS: usize = PAGES - 1;

/// The number of used pages beside the first, in blocks with more than one used page: 1 to 3 are
/// possible. The value was computed by hand from one window of major faults each: Perl 1.4, OCaml
/// 1.2.
const MORE_PAGES: f64 = 1.5;

/// Blocks must have left for this number of turnovers: before that, only blocks that left recently
/// can come back.
const FIRST: u64 = 2;

/// In the note of a block: the page for which it came in, whether it has left since, and the step
/// in which it left.
const PAGE: u16 = 3;
const LEFT: u16 = 4;
const STEP_SHIFT: u32 = 3;
const STEP: u16 = u16::MAX >> STEP_SHIFT;

/// How blocks of four pages come back.
#[derive(Debug, Default)]
pub struct Refaults {
    frames: usize,
    notes: Sparse<u16>,
    /// Blocks that left.
    left: u64,
    /// Major faults since the last judgement, by the number of steps since the block had left; the
    /// last element counts all longer times.
    ages: [u32; STEPS * TURNOVERS + 1],
    /// Those of them that needed the page for which the block came in before.
    same: u32,
}

impl Refaults {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Refaults {
        Refaults { frames, ..Refaults::default() }
    }

    /// From now on there are `frames` frames.
    pub fn resize(&mut self, frames: usize) {
        self.frames = frames;
    }

    fn step(&self) -> u16 {
        let step = self.left * STEPS as u64 / self.frames.max(1) as u64;
        (step % (u64::from(STEP) + 1)) as u16
    }

    /// A block has left memory.
    pub fn gone(&mut self, block: u32) {
        self.left += 1;
        let step = self.step();
        let note = &mut self.notes[block];
        *note = *note & PAGE | LEFT | step << STEP_SHIFT;
    }

    /// A thread waits for a page, 0 to 3, of a block that must be read.
    pub fn major_fault(&mut self, block: u32, page: usize) {
        let (step, page) = (self.step(), page as u16 & PAGE);
        let note = &mut self.notes[block];
        if *note & LEFT != 0 {
            let age = usize::from(step.wrapping_sub(*note >> STEP_SHIFT) & STEP);
            self.ages[age.min(STEPS * TURNOVERS)] += 1;
            self.same += u32::from(*note & PAGE == page);
        }
        *note = page;
    }

    /// The number of major faults that blocks of one page would have, in per cent of those since
    /// the last judgement. `apart_percent`: the part of the blocks of which one page is used while
    /// they are in memory. `None` if it is too early to tell.
    pub fn judge(&mut self, apart_percent: u32) -> Option<u32> {
        let (ages, same) = (std::mem::replace(&mut self.ages, [0; _]), std::mem::take(&mut self.same));
        let all: u32 = ages.iter().sum();
        if all == 0 || self.left < FIRST * self.frames as u64 {
            return None;
        }
        // Pages that are used while their block is in memory: each needs a separate fault.
        let used = 1.0 + MORE_PAGES * (1.0 - f64::from(apart_percent) / 100.0);
        // The number of blocks whose used pages would be in memory, for each block that is in
        // memory now.
        let more = PAGES as f64 / used;
        let steps = ((more - 1.0) * STEPS as f64) as usize;
        let stay: u32 = ages[..steps.min(STEPS * TURNOVERS)].iter().sum();
        // If a block comes back for one of n pages, all equally often, it is the same page in one
        // case of n.
        let in_use = f64::from(all) / f64::from(same.max(1));
        let known = (used / in_use).min(1.0);
        Some((used * 100.0 * (1.0 - known * f64::from(stay) / f64::from(all))) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGES, Refaults};
    use crate::testing::random;
    use std::collections::{HashSet, VecDeque};

    const FRAMES: usize = 1024;

    /// Simulates touches of pages in a FIFO memory. Returns the judgement at the end.
    fn play(touches: impl Iterator<Item = u32>, apart_percent: u32) -> Option<u32> {
        let mut refaults = Refaults::new(FRAMES);
        let (mut order, mut memory, mut stored) = (VecDeque::new(), HashSet::new(), HashSet::new());
        for touch in touches {
            let (block, page) = (touch / PAGES as u32, touch as usize % PAGES);
            if memory.insert(block) {
                if stored.contains(&block) {
                    refaults.major_fault(block, page);
                }
                order.push_back(block);
            }
            if order.len() > FRAMES {
                let left = order.pop_front().expect("some are there");
                memory.remove(&left);
                stored.insert(left);
                refaults.gone(left);
            }
        }
        refaults.judge(apart_percent)
    }

    #[test]
    fn one_page_of_each_block_would_stay() {
        let blocks = random(40_000, 2 * FRAMES as u32);
        let touches = blocks.map(|block| PAGES as u32 * block + block % 4);
        assert!(play(touches, 100).expect("enough was seen") < 20);
    }

    #[test]
    fn pages_that_are_all_in_use_would_leave_as_well() {
        let touches = random(40_000, (2 * PAGES * FRAMES) as u32);
        assert!(play(touches, 30).expect("enough was seen") > 120);
    }

    #[test]
    fn what_comes_back_late_would_not_stay() {
        let blocks = (0..10 * FRAMES as u32).cycle().take(40_000);
        let touches = blocks.map(|block| PAGES as u32 * block);
        assert_eq!(play(touches, 100), Some(100));
    }

    #[test]
    fn it_takes_a_while() {
        assert_eq!(play(random(2 * FRAMES as u32, 4 * FRAMES as u32), 100), None);
    }
}
