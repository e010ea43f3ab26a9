//! The default: neighbours are judged together, by samples.
//!
//! A pager sees a touch only where it costs a fault, so to learn which of many blocks are in use is
//! dear. But blocks that lie next to one another are mostly used alike. So blocks are grouped to
//! *extents* of up to 64 neighbours, and a watched block tells about all of them: it leaves the
//! address space, but not memory, for as long as the extent waits for its turn. If it is touched in
//! that time it proves the extent to be in use, at the cost of one fault.
//!
//! - Newcomers wait in their own queue, so that a scan drives out newcomers only; others in an LRU
//!   list. The older part of each is watched. An extent that proves to be in use goes to the new
//!   end of the LRU list.
//! - The newcomers' share follows ARC: it grows when one comes back that was gone, and shrinks when
//!   another one does.
//! - The blocks of an extent leave together, in order: one write takes many. A block that was
//!   touched on its way out is spared the next time, if others of its extent can go; when a second
//!   one is touched, all that are still in memory come back.
//!
//! Sources: Park, Lee, Yeom, "Profiling Dynamic Data Access Patterns with Controlled Overhead and
//! Quality" (DAMON), Middleware Industry 2019, for samples; Johnson, Shasha, "2Q", VLDB 1994;
//! Megiddo, Modha, "ARC", FAST 2003. `docs/policies.md` has what it makes of traces.

use super::Replacement;
use crate::list::Lists;
use crate::sparse::Sparse;
use std::ops::Range;

/// Came in, not known to be in use: the younger part, and the part that is watched.
const NEW: u8 = 1;
const NEW_OLD: u8 = 2;
/// Was in use more than once: the same.
const KEPT: u8 = 3;
const KEPT_OLD: u8 = 4;
/// The one whose blocks are leaving.
const LEAVING: u8 = 5;

/// Blocks of an extent at most: the bits of a word.
const EXTENT_MAX: usize = 64;
/// Extents are made smaller until more than half of the frames make at least this many, so that
/// there is a choice of victims.
const EXTENTS_MIN: usize = 512;
/// Frames to each watched block at least.
const FRAMES_PER_SAMPLE: usize = 50;
/// Blocks that come in for each that is chosen to be watched, at least. Where all is in use, each
/// is touched at once, and the next one chosen: without a price they would cost a fault each and
/// tell nothing new.
const SAMPLE_PRICE: usize = 4;

/// Blocks of an extent that are touched on their way out before the others are kept as well.
const COMPANY_MIN: u32 = 2;

/// The part of the kept blocks that is watched, in per cent.
const OLD_PERCENT: usize = 30;
/// The newcomers' share of the frames, in per cent: at the start, least, most.
const NEW_START: usize = 25;
const NEW_MIN: usize = 5;
const NEW_MAX: usize = 90;
/// Extents that are left in each younger part, and of each kind, as long as there are others.
const YOUNG_MIN: usize = 2;
/// Blocks by which that share changes when an extent comes back: so many, or this part of the
/// extent.
const STEP: usize = 4;
const STEP_PART: usize = 4;

/// Neighbouring blocks. A bit stands for a block.
#[derive(Clone, Copy, Default)]
struct Extent {
    present: u64,
    watched: u64,
    /// Touched on their way out.
    spared: u64,
    /// The list that its last blocks left from, NEW or KEPT, or 0.
    left: u8,
    /// Insertions into memory, of any block, before the last block was gone.
    gone_at: u64,
}

impl Extent {
    fn len(&self) -> usize {
        self.present.count_ones() as usize
    }
}

/// A share of the frames. Several threads may have asked for a newcomer each: even of few frames,
/// some are theirs until they have run.
fn share(frames: usize, percent: usize) -> usize {
    (frames * percent / 100).max(frames.min(8) / 2)
}

/// Extents in lists.
pub struct Auto {
    extents: Sparse<Extent>,
    lists: Lists<5>,
    /// Blocks in each list.
    blocks: [usize; 6],
    leaving: Option<u32>,
    /// Blocks of an extent, as a power of two.
    shift: u32,
    frames: usize,
    /// Newcomers in memory before they are the victims.
    new_share: usize,
    watched: usize,
    inserted: u64,
    random: u64,
    /// Blocks that have come in, and not yet paid for a watched one.
    paid: usize,
    /// Blocks to be watched next.
    to_watch: Vec<u32>,
    /// Something had to leave: as long as there is room for all, nothing is watched.
    short: bool,
    /// Victims since a block was gone.
    given: usize,
    /// Blocks that may come back with others.
    credit: usize,
}

impl Auto {
    /// For `frames` blocks in memory.
    pub fn new(frames: usize) -> Self {
        let extent = (frames / EXTENTS_MIN).next_power_of_two().clamp(1, EXTENT_MAX);
        Auto {
            extents: Sparse::default(),
            lists: Lists::default(),
            blocks: [0; 6],
            leaving: None,
            shift: extent.trailing_zeros(),
            frames,
            new_share: share(frames, NEW_START),
            watched: 0,
            inserted: 0,
            paid: frames,
            random: 0x9e37_79b9_7f4a_7c15,
            to_watch: Vec::new(),
            short: false,
            given: 0,
            credit: 0,
        }
    }

    /// The extent of `block`, and its bit.
    fn place(&self, block: u32) -> (u32, u64) {
        (block >> self.shift, 1 << (block & ((1 << self.shift) - 1)))
    }

    /// Takes an extent out of its list, before its blocks change; says which list it was.
    fn unlist(&mut self, extent: u32) -> u8 {
        let list = self.lists.remove(extent);
        self.blocks[usize::from(list)] -= if list == 0 { 0 } else { self.extents[extent].len() };
        if list == LEAVING {
            self.leaving = None;
        }
        list
    }

    /// Puts an extent at the new end of a list, after its blocks have changed.
    fn enlist(&mut self, list: u8, extent: u32) {
        self.lists.push(list, extent);
        self.blocks[usize::from(list)] += self.extents[extent].len();
    }

    /// The extent of `block`, of which this bit is, proves to be in use.
    fn keep(&mut self, extent: u32, present: u64) {
        self.unlist(extent);
        self.extents[extent].present |= present;
        self.enlist(KEPT, extent);
    }

    fn random(&mut self, below: u32) -> u32 {
        // Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * u64::from(below)) >> 32) as u32
    }

    fn new_len(&self) -> usize {
        self.blocks[usize::from(NEW)] + self.blocks[usize::from(NEW_OLD)]
    }

    /// As long as there is room for all, newcomers beyond their share are kept: the first that
    /// came, and not the last, are what a program that goes over everything again will find.
    fn settle(&mut self) {
        while !self.short && self.new_len() > self.new_share && self.lists.len(NEW) > YOUNG_MIN {
            let extent = self.lists.oldest(NEW).expect("a list with extents has an oldest");
            self.unlist(extent);
            self.enlist(KEPT, extent);
        }
    }

    /// Moves the oldest of the younger parts on, and chooses which of their blocks to watch.
    fn age(&mut self) {
        while self.short {
            let [_, new, new_old, kept, kept_old, _] = self.blocks;
            // The youngest are left alone: a thread that has asked for one must get to use it.
            let some = |list: u8| self.lists.len(list) > YOUNG_MIN;
            let (from, to) = if kept_old * 100 < OLD_PERCENT * (kept + kept_old) && some(KEPT) {
                (KEPT, KEPT_OLD)
            } else if new > new_old + (1 << self.shift) && some(NEW) {
                (NEW, NEW_OLD)
            } else {
                return;
            };
            let extent = self.lists.oldest(from).expect("a list with blocks has an extent");
            self.unlist(extent);
            self.enlist(to, extent);
            self.sample(extent);
        }
    }

    /// Chooses a block of an extent to watch, if there may be one more.
    fn sample(&mut self, index: u32) {
        let extent = self.extents[index];
        let free = extent.present & !extent.watched;
        let count = free.count_ones();
        let enough = self.watched >= (self.frames / FRAMES_PER_SAMPLE).max(1);
        if count == 0 || enough || self.paid < SAMPLE_PRICE {
            return;
        }
        // Few blocks are not worth a sample each time.
        let quarter = 1 << self.shift.saturating_sub(2);
        if count < quarter && self.random(quarter) >= count {
            return;
        }
        let mut bits = free;
        for _ in 0..self.random(count) {
            bits &= bits - 1;
        }
        let bit = bits.trailing_zeros();
        self.extents[index].watched |= 1 << bit;
        self.watched += 1;
        self.paid -= SAMPLE_PRICE;
        self.to_watch.push((index << self.shift) + bit);
    }

    /// The extent whose blocks leave next.
    fn choose(&mut self) -> Option<u32> {
        let [news, kepts] =
            [[NEW, NEW_OLD], [KEPT, KEPT_OLD]].map(|[a, b]| self.lists.len(a) + self.lists.len(b));
        let new = match self.new_len() > self.new_share {
            true => news > YOUNG_MIN || kepts <= YOUNG_MIN,
            false => kepts <= YOUNG_MIN && (news > YOUNG_MIN || kepts == 0),
        };
        // Blocks that I/O holds come back at once, and could be all that one kind has: then it is
        // the other's turn.
        let stuck = self.given > self.frames / 4 + 64 && (self.given / 64).is_multiple_of(2);
        let new = (new != stuck || kepts == 0) && news > 0;
        let (lists, kind) = if new { ([NEW_OLD, NEW], NEW) } else { ([KEPT_OLD, KEPT], KEPT) };
        let extent = lists.iter().find_map(|&list| self.lists.oldest(list))?;
        self.unlist(extent);
        self.extents[extent].left = kind;
        self.enlist(LEAVING, extent);
        self.leaving = Some(extent);
        Some(extent)
    }

    /// Forgets that a block is watched, if it is.
    fn unwatch(&mut self, extent: u32, bit: u64) {
        let extent = &mut self.extents[extent];
        if extent.watched & bit != 0 {
            extent.watched &= !bit;
            self.watched -= 1;
        }
    }

    /// Blocks that left from list `left` are needed after all: their kind should have more of the
    /// frames.
    fn regret(&mut self, left: u8) {
        let step = STEP.max((1 << self.shift) / STEP_PART);
        self.new_share = match left {
            NEW => (self.new_share + step).min(share(self.frames, NEW_MAX)),
            _ => self.new_share.saturating_sub(step).max(share(self.frames, NEW_MIN)),
        };
    }

    /// An extent that was gone comes back: what that says of the newcomers' share. Whether it is to
    /// be kept.
    fn returned(&mut self, extent: u32) -> bool {
        let Extent { left, gone_at, .. } = self.extents[extent];
        if left == 0 || self.inserted - gone_at > self.frames as u64 {
            return false;
        }
        self.regret(left);
        left == NEW
    }
}

impl Replacement for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn insert(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        self.inserted += 1;
        self.paid = (self.paid + 1).min(self.frames);
        let keep = self.returned(extent);
        let list = self.unlist(extent);
        let came = &mut self.extents[extent];
        let alone = came.present == 0;
        came.present |= bit;
        let kept = matches!(list, KEPT | KEPT_OLD) || (alone && keep);
        if alone {
            came.left = 0;
        }
        self.enlist(if kept { KEPT } else { NEW }, extent);
        self.settle();
        self.age();
    }

    fn rescue(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        let Extent { left, spared, .. } = self.extents[extent];
        if spared == 0 && left != 0 {
            self.regret(left);
        }
        self.extents[extent].spared |= bit;
        self.keep(extent, bit);
        self.age();
    }

    fn company(&self, block: u32) -> Range<u32> {
        let (extent, _) = self.place(block);
        let few = self.extents[extent].spared.count_ones() < COMPANY_MIN;
        // Where all that there is to choose from is in use, extents would come and go without end.
        if few || self.credit < 1 << self.shift {
            return block..block;
        }
        extent << self.shift..(extent + 1) << self.shift
    }

    fn back(&mut self, block: u32) {
        self.credit = self.credit.saturating_sub(1);
        let (extent, bit) = self.place(block);
        self.keep(extent, bit);
        self.age();
    }

    fn touched(&mut self, block: u32) {
        let (extent, _) = self.place(block);
        self.keep(extent, 0);
        self.age();
    }

    fn watch(&mut self) -> Option<u32> {
        while let Some(block) = self.to_watch.pop() {
            let (extent, bit) = self.place(block);
            let Extent { present, watched, .. } = self.extents[extent];
            if present & watched & bit != 0 {
                return Some(block);
            }
        }
        None
    }

    fn seen(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        self.unwatch(extent, bit);
        self.keep(extent, 0);
        self.age();
    }

    fn victim(&mut self) -> Option<u32> {
        self.short = true;
        self.given += 1;
        loop {
            let extent = self.leaving.or_else(|| self.choose())?;
            let Extent { present, spared, .. } = self.extents[extent];
            if present & !spared == 0 {
                // What is left was touched: another round, without that credit.
                self.unlist(extent);
                self.extents[extent].spared = 0;
                if present != 0 {
                    self.enlist(KEPT_OLD, extent);
                }
                continue;
            }
            let bit = present & !spared & (present & !spared).wrapping_neg();
            self.unwatch(extent, bit);
            self.extents[extent].present &= !bit;
            self.blocks[usize::from(LEAVING)] -= 1;
            return Some((extent << self.shift) + bit.trailing_zeros());
        }
    }

    fn gone(&mut self, block: u32) {
        self.given = 0;
        self.credit = (self.credit + 1).min(self.frames / 8);
        let (extent, _) = self.place(block);
        self.extents[extent].gone_at = self.inserted;
    }

    fn remove(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        self.unwatch(extent, bit);
        let list = self.unlist(extent);
        let left = &mut self.extents[extent];
        left.present &= !bit;
        left.spared &= !bit;
        if left.present == 0 {
            left.left = 0;
        } else {
            self.enlist(list, extent);
            self.leaving = if list == LEAVING { Some(extent) } else { self.leaving };
        }
    }

    fn len(&self) -> usize {
        self.blocks.iter().sum()
    }
}
