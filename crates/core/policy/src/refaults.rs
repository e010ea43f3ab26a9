//! Refaults: how soon pages come back after they have left, and what that tells of blocks of one
//! page.
//!
//! Of some blocks, the pages that a program uses are known: those *on trial*. From these *stays* in
//! memory follows how many faults blocks of one page would have. Each page that is used in a stay
//! would need a separate fault, unless the page is still in memory from an earlier stay. Memory
//! would hold only used pages, so pages would stay longer, by the inverse of the used part of
//! memory. So a page needs no fault if the time since the last stay in which it was used is shorter
//! than what pages would stay longer.
//!
//! The clock is the number of blocks that have left memory. A *turnover* is as many as there are
//! frames.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of a block.
const PAGES: usize = 4;

/// The number of steps in a turnover. The times for which blocks were away are counted in steps.
const STEPS: u64 = 8;

/// Pages would stay at most this many turnovers longer.
const TURNOVERS: u64 = PAGES as u64 - 1;

/// Number of times that are told apart; the last means "longer".
const AGES: usize = (STEPS * TURNOVERS) as usize + 1;

/// Blocks must have left for this number of turnovers: before that, only blocks that left recently
/// can come back.
const FIRST: u64 = 2;

/// What is known of a block.
#[derive(Debug, Default)]
struct Note {
    /// The pages that were used in the present or the last stay, a bit each. 0: not known.
    used: u8,
    /// Whether the pages that were used in the stay before the present one are known.
    is_before_known: bool,
    /// The block is in memory, and all uses of its pages are seen.
    on_trial: bool,
    /// The last stay was on trial to its end.
    is_whole: bool,
    /// For each page: when the last stay in which it was used ended.
    ends: [Option<u64>; PAGES],
    /// For each page that is used in this stay: the steps from `ends` to its first use. If the
    /// pages of the stay before are not known, the steps from that stay's end.
    ages: [u8; PAGES],
    /// When the block left memory last. `None`: never.
    left: Option<u64>,
    /// The time up to which the stay is counted in `times`.
    since: u64,
}

/// How blocks of four pages come back.
#[derive(Debug, Default)]
pub struct Refaults {
    frames: usize,
    notes: BTreeMap<u32, Note>,
    /// Blocks that left: the clock.
    now: u64,
    /// Since the last judgement: stays that ended, and the pages that were used in them.
    stays: u32,
    pages: u32,
    /// The pages, by their age: those of blocks whose stay before is known, and the others.
    again: [u32; AGES],
    perhaps: [u32; AGES],
    /// The time that blocks on trial spent in memory, and that their used pages did.
    times: [u64; 2],
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

    /// The number of stays that ended since the last judgement.
    pub fn stays(&self) -> u32 {
        self.stays
    }

    /// A block has left memory. `noted`: it is one of those that may be on trial.
    pub fn gone(&mut self, block: u32, noted: bool) {
        self.now += 1;
        if !noted {
            return;
        }
        let note = self.notes.entry(block).or_default();
        if !std::mem::take(&mut note.is_whole) {
            note.used = 0;
        }
        for (page, end) in note.ends.iter_mut().enumerate() {
            if note.used >> page & 1 == 1 {
                *end = Some(self.now);
            }
        }
        (note.left, note.on_trial) = (Some(self.now), false);
    }

    /// A stay on trial begins with the use of a page, 0 to 3.
    pub fn begin(&mut self, block: u32, page: usize) {
        let note = self.notes.entry(block).or_default();
        (note.is_before_known, note.used) = (note.used != 0, 0);
        (note.on_trial, note.is_whole, note.since) = (true, false, self.now);
        self.used(block, page);
    }

    /// A page of a block that is on trial is used.
    pub fn used(&mut self, block: u32, page: usize) {
        let Some(note) = self.notes.get_mut(&block).filter(|note| note.on_trial) else { return };
        if note.used >> page & 1 == 0 {
            note.count_time(self.now, &mut self.times);
            note.used |= 1 << page;
            let turnover = self.frames.max(1) as u64;
            let end = if note.is_before_known { note.ends[page] } else { note.left };
            let away = end.map_or(u64::MAX, |end| (self.now - end).saturating_mul(STEPS) / turnover);
            note.ages[page] = away.min(AGES as u64 - 1) as u8;
        }
    }

    /// The stays of these blocks go on, but further uses of pages are not seen, or the blocks are
    /// discarded: the stays show nothing.
    pub fn given_up(&mut self, blocks: Range<u32>) {
        for (_, note) in self.notes.range_mut(blocks).filter(|(_, note)| note.on_trial) {
            (note.on_trial, note.used, note.ends) = (false, 0, [None; PAGES]);
        }
    }

    /// A block leaves the program. Returns the number of its used pages, if it was on trial.
    pub fn leaves(&mut self, block: u32) -> Option<u32> {
        let note = self.notes.get_mut(&block).filter(|note| note.on_trial)?;
        note.count_time(self.now, &mut self.times);
        (note.on_trial, note.is_whole) = (false, true);
        self.stays += 1;
        self.pages += note.used.count_ones();
        for (_, &age) in note.ages.iter().enumerate().filter(|(page, _)| note.used >> page & 1 == 1) {
            let ages = if note.is_before_known { &mut self.again } else { &mut self.perhaps };
            ages[usize::from(age)] += 1;
        }
        Some(note.used.count_ones())
    }

    /// A block that has left the program, but not memory, comes back because a page is used.
    pub fn rescued(&mut self, block: u32, page: usize) {
        if let Some(note) = self.notes.get_mut(&block).filter(|note| note.is_whole)
            && note.used >> page & 1 == 0
        {
            note.used |= 1 << page;
            self.pages += 1;
        }
    }

    /// The faults that blocks of one page would have, for each fault of a block of four, since the
    /// last judgement. `demanded`: the part of the blocks that come in because of a fault; of the
    /// others all pages are used. `None` if it is too early to tell.
    pub fn judge(&mut self, demanded: f64) -> Option<f64> {
        for note in self.notes.values_mut().filter(|note| note.on_trial) {
            note.count_time(self.now, &mut self.times);
        }
        let (again, perhaps) =
            (std::mem::replace(&mut self.again, [0; _]), std::mem::replace(&mut self.perhaps, [0; _]));
        let [blocks, pages] = std::mem::take(&mut self.times).map(|time| time as f64);
        let (stays, used) = (std::mem::take(&mut self.stays), std::mem::take(&mut self.pages));
        if stays == 0 || blocks == 0.0 || self.now < FIRST * self.frames as u64 {
            return None;
        }
        let used = f64::from(used) / f64::from(stays);
        // The pages in use of a block in memory, at any time.
        let all = PAGES as f64;
        let held = demanded * (pages / blocks).max(1.0) + (1.0 - demanded) * all;
        let steps = ((all / held - 1.0) * STEPS as f64) as usize;
        let sum = |ages: &[u32; AGES]| f64::from(ages[..steps.min(AGES - 1)].iter().sum::<u32>());
        let stay = sum(&again) + sum(&perhaps) * used / all;
        Some(used - stay / f64::from(stays))
    }
}

impl Note {
    /// Counts the time until now: that of the block, and that of its used pages.
    fn count_time(&mut self, now: u64, times: &mut [u64; 2]) {
        let time = now - self.since;
        self.since = now;
        times[0] += time;
        times[1] += time * u64::from(self.used.count_ones());
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGES, Refaults};
    use crate::testing::random;
    use std::collections::{HashSet, VecDeque};

    const FRAMES: usize = 1024;

    /// The faults in the second half of the touches, with blocks of `pages` pages in a FIFO memory
    /// as large as FRAMES blocks of PAGES pages.
    fn faults(touches: &[u32], pages: u32) -> usize {
        let (mut order, mut memory, mut faults) = (VecDeque::new(), HashSet::new(), 0);
        for (at, touch) in touches.iter().enumerate() {
            if memory.insert(touch / pages) {
                faults += usize::from(at >= touches.len() / 2);
                order.push_back(touch / pages);
            }
            if order.len() > FRAMES * PAGES / pages as usize {
                memory.remove(&order.pop_front().expect("some are there"));
            }
        }
        faults
    }

    /// Simulates touches of pages in a FIFO memory, with each block on trial. Returns the judgement
    /// at the end, of the second half, and what it should be.
    fn play(touches: impl Iterator<Item = u32>) -> (Option<f64>, f64) {
        let touches: Vec<u32> = touches.collect();
        let mut refaults = Refaults::new(FRAMES);
        let (mut order, mut memory) = (VecDeque::new(), HashSet::new());
        for (at, touch) in touches.iter().enumerate() {
            if at == touches.len() / 2 {
                refaults.judge(1.0);
            }
            let (block, page) = (touch / PAGES as u32, *touch as usize % PAGES);
            if memory.insert(block) {
                order.push_back(block);
                refaults.begin(block, page);
            } else {
                refaults.used(block, page);
            }
            if order.len() > FRAMES {
                let left = order.pop_front().expect("some are there");
                memory.remove(&left);
                refaults.leaves(left);
                refaults.gone(left, true);
            }
        }
        let right = faults(&touches, 1) as f64 / faults(&touches, PAGES as u32) as f64;
        (refaults.judge(1.0), right)
    }

    fn assert_about(touches: impl Iterator<Item = u32>) {
        let (judged, right) = play(touches);
        let judged = judged.expect("enough was seen");
        assert!((judged - right).abs() < 0.1, "judged {judged:.2}, it is {right:.2}");
    }

    #[test]
    fn one_page_of_each_block_would_stay() {
        let blocks = random(80_000, 2 * FRAMES as u32);
        assert_about(blocks.map(|block| PAGES as u32 * block + block % 4));
    }

    #[test]
    fn pages_that_are_all_in_use_would_leave_as_well() {
        for times in [2, 4, 8] {
            assert_about(random(80_000, (times * PAGES * FRAMES) as u32));
        }
    }

    #[test]
    fn two_pages_of_each_block_need_two_faults() {
        let blocks = random(40_000, 4 * FRAMES as u32);
        assert_about(blocks.flat_map(|block| [PAGES as u32 * block, PAGES as u32 * block + 2]));
    }

    #[test]
    fn blocks_that_are_used_whole_need_four() {
        let blocks = random(20_000, 4 * FRAMES as u32);
        assert_about(blocks.flat_map(|block| (0..4).map(move |page| PAGES as u32 * block + page)));
    }

    #[test]
    fn what_comes_back_late_would_not_stay() {
        let blocks = (0..10 * FRAMES as u32).cycle().take(40_000);
        let touches = blocks.map(|block| PAGES as u32 * block);
        assert_eq!(play(touches).0, Some(1.0));
    }

    #[test]
    fn it_takes_a_while() {
        assert_eq!(play(random(2 * FRAMES as u32, 4 * FRAMES as u32)).0, None);
    }

    #[test]
    fn a_stay_that_is_given_up_shows_nothing() {
        let mut refaults = Refaults::new(1);
        refaults.begin(1, 0);
        refaults.given_up(1..2);
        refaults.used(1, 1);
        assert_eq!(refaults.leaves(1), None);
        refaults.gone(1, true);
        assert_eq!(refaults.stays(), 0);
    }
}
