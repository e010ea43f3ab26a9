//! Splitting: whether blocks of one page would cost the program less than blocks of four.
//!
//! A block of several pages suits arrays: one read instead of several. With scattered objects most
//! pages of a block are never touched, and waste memory and reads. A pager does not see touches of
//! pages that are in the program. So some blocks are *on trial* from each major fault until they
//! leave the program: only touched pages go into the program, each by a separate fault, and the
//! others wait outside. What blocks of one page would need follows from these trials
//! ([`Refaults`]).
//!
//! The costs decide: the reads' on this disk ([`Disk`]), those of a fault, those of pages that are
//! read ahead, and those of bytes that are written again. A block is written whole, though the
//! program has changed one page. On a disk where one page takes as long as four, blocks are split
//! only if pages need fewer faults, or if much fewer bytes are written. The decision is made once
//! for all of the program's memory, and on much evidence, since it cannot be reversed.

use crate::disk::Disk;
use crate::refaults::Refaults;
use crate::{BLOCK, SPLIT_BLOCK};
use std::ops::Range;

/// One block in this many is on trial, and one in EACH_CALM times as many after CALM windows in
/// which splitting would not pay. A touched page of a block on trial costs a minor fault, and such
/// a block takes an extra frame until all of its pages have been touched. Powers of two; chosen,
/// not measured.
const EACH: u32 = 64;
const EACH_CALM: u32 = 2;
const CALM: u32 = 8;
/// At most about this number of blocks is on trial: with more frames, one block in more than EACH
/// is. Chosen, not measured.
const ENOUGH: usize = 512;
/// Blocks on trial at the same time are at most the number of frames divided by this.
const UNDER_WAY_PART: usize = 64;

/// Stays of a window, which is judged as a whole. Chosen, not measured.
const WINDOW: u32 = 64;
/// Splitting pays if it takes at most this percentage of the time. What is not counted is in the
/// rest: larger tables, and longer lists.
const PAYS_PERCENT: f64 = 92.0;
/// This many windows in a row must show it. Chosen, not measured.
const WINDOWS: u32 = 3;

/// What a major fault costs beside the read, ns: two wake-ups, and the work of the pager. Measured
/// on a virtual machine: 10 to 16 us.
const FAULT_NS: f64 = 15_000.0;
/// What the additional blocks cost for each block that is read ahead, ns: a move and the hashing of
/// a page take about 2 us.
const AHEAD_NS: f64 = 6_000.0;

/// What trials have shown.
#[derive(Debug, Default)]
pub struct Splitting {
    frames: usize,
    /// One block in this many is on trial; a power of two.
    each: u32,
    /// Blocks on trial.
    under_way: usize,
    /// Since the last window: major faults, and blocks that came in.
    demands: u64,
    came: u64,
    /// Since the last window: the number of blocks that were written again, and the number of their
    /// pages that had changed.
    rewritten: [u64; 2],
    /// Windows in a row in which splitting would have paid, and in which it would not.
    paying: u32,
    calm: u32,
    /// Trials from the beginning in which more than one page was used, and in which one was.
    trials: [u64; 2],
    refaults: Refaults,
}

impl Splitting {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Splitting {
        Self::with_trials(frames, EACH)
    }

    /// Like `new`, but one block in `each`, a power of two, is on trial.
    pub fn with_trials(frames: usize, each: u32) -> Splitting {
        debug_assert!(each.is_power_of_two());
        Splitting { frames, each, refaults: Refaults::new(frames), ..Splitting::default() }
    }

    /// From now on there are `frames` frames.
    pub fn resize(&mut self, frames: usize) {
        self.frames = frames;
        self.refaults.resize(frames);
    }

    /// Whether a block is one of those that are on trial. They are spread over all blocks.
    fn is_chosen(&self, block: u32) -> bool {
        let enough = (self.frames / ENOUGH).next_power_of_two() as u32;
        let each = self.each.max(enough) * if self.calm >= CALM { EACH_CALM } else { 1 };
        // The upper bits of the product are well mixed (Knuth's multiplicative hashing).
        block.wrapping_mul(0x9e37_79b1) < (u32::MAX / each)
    }

    /// A block has left memory.
    pub fn gone(&mut self, block: u32) {
        self.refaults.gone(block, self.is_chosen(block));
    }

    /// `blocks` blocks have come in, because of a major fault or ahead of need.
    pub fn come(&mut self, blocks: usize) {
        self.came += blocks as u64;
    }

    /// A block that the store has is written again: `pages` of its pages have changed.
    pub fn rewritten(&mut self, pages: u32) {
        self.rewritten[0] += 1;
        self.rewritten[1] += u64::from(pages);
    }

    /// A thread waits for a page, 0 to 3, of `block`, which must be read. Returns whether the block
    /// is on trial now, until it [`leaves`](Self::leaves) or is [`given_up`](Self::given_up).
    pub fn major_fault(&mut self, block: u32, page: usize) -> bool {
        self.demands += 1;
        let most = (self.frames / UNDER_WAY_PART).max(1);
        let begins = self.is_chosen(block) && self.under_way < most;
        if begins {
            self.under_way += 1;
            self.refaults.begin(block, page);
        }
        begins
    }

    /// A page of a block that is on trial is used.
    pub fn used(&mut self, block: u32, page: usize) {
        self.refaults.used(block, page);
    }

    /// A block that has left the program, but not memory, comes back because a page is used.
    pub fn rescued(&mut self, block: u32, page: usize) {
        self.refaults.rescued(block, page);
    }

    /// All pages of a block on trial are in the program, or it leaves: there are no more faults.
    pub fn ends(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The trials of these blocks show nothing, since uses of their pages are no longer seen.
    pub fn given_up(&mut self, blocks: Range<u32>) {
        self.refaults.given_up(blocks);
    }

    /// A block leaves the program because the policy has chosen it.
    pub fn leaves(&mut self, block: u32) {
        if let Some(used) = self.refaults.leaves(block) {
            self.trials[usize::from(used == 1)] += 1;
        }
    }

    /// Judges the window if it is full. Returns whether blocks should be split.
    pub fn judge(&mut self, disk: &Disk) -> bool {
        if self.refaults.stays() < WINDOW {
            return false;
        }
        let demands = self.demands as f64;
        let ahead = self.came.saturating_sub(self.demands) as f64;
        (self.demands, self.came) = (0, 0);
        let [blocks, pages] = std::mem::take(&mut self.rewritten).map(|count| count as f64);
        let demanded = demands / (demands + ahead).max(1.0);
        let Some(faults) = self.refaults.judge(demanded) else { return false };
        // Many blocks are written by one operation, so only their bytes count.
        let of_pages = demands * faults * (FAULT_NS + disk.cost_ns(1.0, SPLIT_BLOCK as f64))
            + ahead * AHEAD_NS
            + disk.cost_ns(0.0, pages * SPLIT_BLOCK as f64);
        let of_blocks =
            demands * (FAULT_NS + disk.cost_ns(1.0, BLOCK as f64)) + disk.cost_ns(0.0, blocks * BLOCK as f64);
        let pays = of_pages * 100.0 <= of_blocks * PAYS_PERCENT;
        (self.paying, self.calm) = if pays { (self.paying + 1, 0) } else { (0, self.calm + 1) };
        self.paying >= WINDOWS
    }

    /// The number of trials in which several pages of a block were used, and of those in which one
    /// was.
    pub fn trials(&self) -> [u64; 2] {
        self.trials
    }
}

#[cfg(test)]
mod tests {
    use super::Splitting;
    use crate::disk::Disk;
    use crate::testing::random;
    use std::collections::{HashMap, VecDeque};

    const FRAMES: usize = 2048;
    const PAGES: u32 = 4;

    /// A fast SSD, and a disk on which one page takes as long as four.
    fn fast() -> Disk {
        Disk::assumed(40_000.0, 1.2)
    }
    fn flat() -> Disk {
        Disk::assumed(300_000.0, 0.1)
    }

    /// Simulates touches of pages until blocks should be split or the touches end. Returns whether
    /// they should be.
    fn play(touches: impl Iterator<Item = u32>, ahead: u32, disk: &Disk) -> bool {
        play_changes(touches, ahead, disk, 0)
    }

    /// The same, if each block that leaves is written again, since `changed` of its pages have
    /// changed; none is if that is 0.
    fn play_changes(touches: impl Iterator<Item = u32>, ahead: u32, disk: &Disk, changed: u32) -> bool {
        let mut splitting = Splitting::new(FRAMES);
        let mut memory = VecDeque::new();
        // The pages that are in the program, a bit each, for each block on trial.
        let mut trials: HashMap<u32, u8> = HashMap::new();
        for page in touches {
            let (block, at) = (page / PAGES, page % PAGES);
            if let Some(pages) = trials.get_mut(&block) {
                *pages |= 1 << at;
                splitting.used(block, at as usize);
                if *pages == 15 {
                    trials.remove(&block);
                    splitting.ends();
                }
            }
            if !memory.contains(&block) {
                if splitting.major_fault(block, at as usize) {
                    trials.insert(block, 1 << at);
                }
                let come = (block..=block + ahead).filter(|block| !memory.contains(block));
                let come: Vec<u32> = come.collect();
                splitting.come(come.len());
                memory.extend(come);
                while memory.len() > FRAMES {
                    let gone = memory.pop_front().expect("it is longer");
                    if trials.remove(&gone).is_some() {
                        splitting.ends();
                    }
                    splitting.leaves(gone);
                    splitting.gone(gone);
                    if changed > 0 {
                        splitting.rewritten(changed);
                    }
                }
            }
            if splitting.judge(disk) {
                return true;
            }
        }
        false
    }

    /// Touches of all pages at random.
    fn scattered(times: u32) -> impl Iterator<Item = u32> {
        random(160_000, times * PAGES * FRAMES as u32)
    }

    #[test]
    fn scattered_pages_are_waste() {
        assert!(play(scattered(2), 0, &fast()));
        assert!(play(scattered(8), 0, &fast()));
    }

    #[test]
    fn where_a_page_costs_as_much_as_a_block_fewer_faults_decide() {
        assert!(!play(scattered(2), 0, &flat()));
        assert!(!play(scattered(8), 0, &flat()));
        let one_page = random(80_000, 2 * FRAMES as u32).map(|block| PAGES * block + block % PAGES);
        assert!(play(one_page, 0, &flat()));
    }

    #[test]
    fn pages_of_blocks_that_are_written_again_save_bytes() {
        let disk = Disk::assumed(100_000.0, 0.6);
        assert!(!play(scattered(8), 0, &disk));
        assert!(play_changes(scattered(8), 0, &disk, 1));
        assert!(!play_changes(scattered(8), 0, &disk, PAGES));
    }

    #[test]
    fn blocks_that_are_used_whole_are_not() {
        let blocks = random(40_000, 8 * FRAMES as u32);
        assert!(!play(blocks.flat_map(|block| (0..PAGES).map(move |page| PAGES * block + page)), 0, &fast()));
        assert!(!play((0..8 * PAGES * FRAMES as u32).cycle().take(160_000), 0, &fast()));
    }

    #[test]
    fn a_half_that_is_used_whole_is_enough() {
        let blocks = random(40_000, 8 * FRAMES as u32).enumerate();
        assert!(!play(
            blocks.flat_map(|(turn, block)| {
                let pages = if turn % 2 == 0 { PAGES } else { 1 };
                (0..pages).map(move |page| PAGES * block + page)
            }),
            0,
            &fast()
        ));
    }

    #[test]
    fn what_is_mostly_read_ahead_is_not() {
        assert!(!play(scattered(8), 4, &fast()));
    }

    #[test]
    fn few_blocks_are_on_trial_and_fewer_where_that_shows_nothing() {
        for (calm, part) in [(0, 64), (super::CALM, 128)] {
            let splitting = Splitting { calm, ..Splitting::new(FRAMES) };
            let chosen = (0..1 << 20).filter(|&block| splitting.is_chosen(block)).count();
            assert!(chosen.abs_diff((1 << 20) / part) < 64, "{chosen} of 1 in {part}");
        }
        let huge = Splitting::new(1 << 24);
        let chosen = (0..1 << 24).filter(|&block| huge.is_chosen(block)).count();
        assert!(chosen.abs_diff(512) < 8, "{chosen}");
    }
}
