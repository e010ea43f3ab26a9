//! The default: neighbours are judged together, by samples.
//!
//! A pager sees a touch only if it causes a fault, so finding out which blocks are in use is
//! expensive. But neighbouring blocks are mostly used in the same way. So blocks are grouped into
//! *extents* of up to 64 neighbours, and one watched block stands for the whole extent: it leaves
//! the address space, but not memory, while the extent waits for its turn. If the watched block is
//! touched in that time, the extent is in use, and this knowledge cost one fault.
//!
//! - Newcomers wait in a separate queue, so that a scan evicts only newcomers. The other extents
//!   are in an LRU list. The older part of the queue and of the list is watched. An extent that is
//!   found in use goes to the new end of the LRU list.
//! - If an extent comes back while the oldest kept extent is in use, the kept one stays, and
//!   newcomers get fewer frames: in repeated passes over more data than fit, the same extents are
//!   kept, as in the optimum. If the oldest kept extent is not in use, the returning extent is
//!   kept, and the newcomers' share follows ARC: it grows if the extent had left as a newcomer, and
//!   otherwise shrinks.
//! - The blocks of an extent leave together, in order, so that one write can take many. A block
//!   that was touched on its way out is spared the next time, if other blocks of its extent can go.
//!   If a second block is touched, all blocks of the extent that are still in memory come back.
//!
//! Sources: Park, Lee, Yeom, "Profiling Dynamic Data Access Patterns with Controlled Overhead and
//! Quality" (DAMON), Middleware Industry 2019, for samples; Johnson, Shasha, "2Q", VLDB 1994;
//! Megiddo, Modha, "ARC", FAST 2003; Jiang, Zhang, "LIRS", SIGMETRICS 2002, for the comparison of
//! the distances between two uses. `docs/design/policies.md` has the results of this policy on
//! traces.

use super::Replacement;
use super::waiting::Waiting;
use crate::list::Lists;
use crate::sparse::Sparse;
use std::ops::Range;

/// Newcomers, not known to be in use: the younger part.
const NEW: u8 = 1;
/// Newcomers: the older part, which is watched.
const NEW_OLD: u8 = 2;
/// Extents that were in use more than once: the younger part.
const KEPT: u8 = 3;
/// Extents that were in use more than once: the older part, which is watched.
const KEPT_OLD: u8 = 4;
/// The extent whose blocks are leaving.
const LEAVING: u8 = 5;

/// The most blocks of an extent: the bits of a word.
const EXTENT_MAX: usize = 64;
/// Extents are made smaller until more than half of the frames hold at least this many, so that
/// there is a choice of victims.
const EXTENTS_MIN: usize = 512;
/// The least frames for each watched block.
const FRAMES_PER_SAMPLE: usize = 50;
/// At least this many blocks come in for each block that is chosen to be watched. If all blocks are
/// in use, each watched block is touched at once and the next one chosen: without this price, the
/// samples would cost one fault after another and show nothing new.
const SAMPLE_PRICE: usize = 4;

/// If this many blocks of an extent are touched on their way out, the other blocks are kept as
/// well.
const NEIGHBOURS_MIN: u32 = 2;

/// The part of the kept blocks that is watched, in per cent.
const OLD_PERCENT: usize = 30;
/// The newcomers' share of the frames at the start, in per cent.
const NEW_START: usize = 25;
/// The least share.
const NEW_MIN: usize = 1;
/// The greatest share.
const NEW_MAX: usize = 90;
/// The number of extents that stay in each younger part, and of each kind, while there are others.
const YOUNG_MIN: usize = 2;
/// If an extent comes back, the newcomers' share changes by at least this many blocks.
const STEP: usize = 4;
/// Or by an extent divided by this, if that is more.
const STEP_PART: usize = 4;
/// A kept extent is unused if its watched block was not touched for this many times the distance
/// between two arrivals of an extent.
const UNUSED: u64 = 2;
/// At most about this many blocks wait for their first use, after they were read for streams.
const AHEAD: usize = 2048;
/// The number of frames divided by this may be under way (being read or written). With a sixteenth,
/// at most 32 MiB, passes over three arrays of 2 GiB in all (a = b + 3 c) within 1.6 GiB take 2.8
/// times as long.
const UNDER_WAY_PART: usize = 12;
/// An extent is remembered until the number of blocks that have come in is this many times the
/// number of frames.
const REMEMBERED: u64 = 4;

/// An extent: neighbouring blocks. Each bit stands for a block.
#[derive(Clone, Copy, Default)]
struct Extent {
    present: u64,
    watched: u64,
    /// The blocks that were touched on their way out.
    spared: u64,
    /// The list from which its last blocks left, NEW or KEPT, or 0.
    left: u8,
    /// The number of insertions, of any blocks, before its last block was gone.
    gone_at: u64,
    /// The number of insertions before its first block came in.
    came_at: u64,
    /// The number of insertions before its last known use.
    used_at: u64,
    /// The same number, or the number before a block was chosen to be watched, if that was later.
    watched_at: u64,
}

impl Extent {
    fn len(&self) -> usize {
        self.present.count_ones() as usize
    }
}

/// A share of the frames. Several threads may each wait for a newcomer. So even if there are few
/// frames, some remain for newcomers until these threads have run.
fn share(frames: usize, percent: usize) -> usize {
    (frames * percent / 100).max(frames.min(8) / 2)
}

/// The policy: extents in lists.
pub struct Auto {
    extents: Sparse<Extent>,
    lists: Lists<5>,
    /// Blocks in each list.
    blocks: [usize; 6],
    leaving: Option<u32>,
    /// The number of blocks in an extent, as an exponent of two.
    shift: u32,
    frames: usize,
    /// If more newcomers than this are in memory, they are the victims.
    new_share: usize,
    /// What newcomers need so that what was read for streams is still there at its first use.
    waiting: Waiting,
    watched: usize,
    inserted: u64,
    random: u64,
    /// Blocks that have come in and are not yet spent: each block chosen to be watched costs
    /// `SAMPLE_PRICE` of these.
    paid: usize,
    /// Blocks to be watched next.
    to_watch: Vec<u32>,
    /// Whether any block ever had to leave: while there is room for all, none is watched.
    short: bool,
    /// Victims chosen since a block was last gone.
    given: usize,
    /// The number of blocks that may come back together with other blocks.
    credit: usize,
    /// Insertions between two arrivals of an extent: about the most of late.
    distance: u64,
    /// The number of insertions before the last touch of a watched block of a kept extent.
    seen_at: u64,
    /// Kept extents whose last use was before this number of insertions are unused.
    unused_until: u64,
}

impl Auto {
    /// The policy for `frames` blocks in memory.
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
            waiting: Waiting::new(frames),
            watched: 0,
            inserted: 0,
            paid: frames,
            random: 0x9e37_79b9_7f4a_7c15,
            to_watch: Vec::new(),
            short: false,
            given: 0,
            credit: 0,
            distance: 0,
            seen_at: 0,
            unused_until: 0,
        }
    }

    /// The extent of `block`, and its bit.
    fn place(&self, block: u32) -> (u32, u64) {
        (block >> self.shift, 1 << (block & ((1 << self.shift) - 1)))
    }

    /// Takes an extent out of its list, before its blocks change. Returns the list.
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

    /// Keeps an extent that was found in use: `present` is the bit of the block that showed this.
    fn keep(&mut self, extent: u32, present: u64) {
        self.unlist(extent);
        self.extents[extent].present |= present;
        self.extents[extent].watched_at = self.inserted;
        self.extents[extent].used_at = self.inserted;
        self.enlist(KEPT, extent);
    }

    /// Blocks of a newcomer are back: it is the youngest newcomer again.
    fn stay_new(&mut self, extent: u32, present: u64) {
        self.unlist(extent);
        self.extents[extent].present |= present;
        self.enlist(NEW, extent);
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

    /// While there is room for all, newcomers beyond their share become kept extents. So a program
    /// that passes over all its data again finds the first blocks in memory, not the last.
    fn settle(&mut self) {
        while !self.short && self.new_len() > self.new_share && self.lists.len(NEW) > YOUNG_MIN {
            let extent = self.lists.oldest(NEW).expect("a list with extents has an oldest");
            self.unlist(extent);
            self.enlist(KEPT, extent);
        }
    }

    /// Moves the oldest extents of the younger parts to the older parts, and chooses blocks of them
    /// to watch.
    fn age(&mut self) {
        while self.short {
            let [_, new, new_old, kept, kept_old, _] = self.blocks;
            // The youngest extents are left alone: a thread that waited for one must be able to use
            // it.
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

    /// Chooses a block of an extent to watch, if one more may be watched.
    fn sample(&mut self, index: u32) {
        let extent = self.extents[index];
        let free = extent.present & !extent.watched;
        let count = free.count_ones();
        let enough = self.watched >= (self.frames / FRAMES_PER_SAMPLE).max(1);
        if count == 0 || enough || self.paid < SAMPLE_PRICE {
            return;
        }
        // An extent with few blocks is not worth a sample each time.
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
        self.extents[index].watched_at = self.inserted;
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
        // Blocks that I/O holds come back at once. If one kind has only such blocks, the other kind
        // gives the victims.
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

    /// Stops watching a block, if it is watched.
    fn unwatch(&mut self, extent: u32, bit: u64) {
        let extent = &mut self.extents[extent];
        if extent.watched & bit != 0 {
            extent.watched &= !bit;
            self.watched -= 1;
        }
    }

    /// The newcomers' least share.
    fn least(&self) -> usize {
        self.waiting.least().max(share(self.frames, NEW_MIN))
    }

    /// Blocks that left from list `left` are needed after all: their kind gets more frames.
    fn regret(&mut self, left: u8) {
        let step = STEP.max((1 << self.shift) / STEP_PART);
        self.new_share = match left {
            NEW => (self.new_share + step).min(share(self.frames, NEW_MAX)),
            _ => self.new_share.saturating_sub(step).max(self.least()),
        };
    }

    /// Whether the oldest kept extent is in use, as far as is known. If it is not watched yet, its
    /// watch begins.
    fn kept_are_used(&mut self) -> bool {
        let Some(oldest) = [KEPT_OLD, KEPT].iter().find_map(|&list| self.lists.oldest(list)) else {
            return false;
        };
        let Extent { watched, watched_at, used_at, .. } = self.extents[oldest];
        if used_at < self.unused_until {
            return false;
        }
        let long_ago = |at: u64| self.inserted - at > self.distance * UNUSED;
        if long_ago(watched_at) && (watched != 0 || long_ago(self.seen_at)) {
            // Extents that were last used at about the same time are unused too.
            self.unused_until = used_at + self.distance / 2;
            return false;
        }
        if watched == 0 {
            self.sample(oldest);
        }
        true
    }

    /// Whether newcomers have frames enough to keep one more extent, though the kept extents are
    /// in use. Blocks that are being read have frames, too, but are not newcomers yet.
    fn may_keep(&self) -> bool {
        let extents = 2 << self.shift;
        self.new_len() > self.new_share + (self.frames / UNDER_WAY_PART).max(extents)
    }

    /// An extent that was gone comes back: adjusts the newcomers' share. Returns whether to keep
    /// the extent.
    ///
    /// If the kept extents are in use, another extent would only replace an equally useful one: in
    /// passes over more data than fit, all would leave before their next use. So the same extents
    /// stay, and newcomers get few frames.
    fn returned(&mut self, extent: u32) -> bool {
        let Extent { left, gone_at, came_at, present, .. } = self.extents[extent];
        if left == 0 || self.inserted - gone_at > REMEMBERED * self.frames as u64 {
            return false;
        }
        self.waiting.returns(self.inserted, 1 << self.shift);
        if present == 0 {
            self.distance = (self.inserted - came_at).max(self.distance - self.distance / 64);
        }
        if present != 0 || self.kept_are_used() {
            // Blocks that were read ahead wait among the newcomers for their first use.
            let least = share(self.frames, NEW_MIN).min(AHEAD).max(self.waiting.least());
            self.new_share = self.new_share.saturating_sub(1 << self.shift).max(least);
            return self.may_keep();
        }
        self.regret(left);
        left == NEW
    }
}

impl Replacement for Auto {
    fn insert(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        self.inserted += 1;
        self.paid = (self.paid + 1).min(self.frames);
        self.new_share = self.waiting.comes(block, self.inserted, self.new_share, 1 << self.shift);
        let keep = self.returned(extent);
        let list = self.unlist(extent);
        let came = &mut self.extents[extent];
        let alone = came.present == 0;
        came.present |= bit;
        let kept = matches!(list, KEPT | KEPT_OLD) || (alone && keep);
        if alone {
            came.came_at = self.inserted;
            came.used_at = self.inserted;
            came.left = 0;
        }
        self.enlist(if kept { KEPT } else { NEW }, extent);
        self.settle();
        self.age();
    }

    fn rescue(&mut self, block: u32) {
        let (extent, bit) = self.place(block);
        let Extent { left, spared, .. } = self.extents[extent];
        let stays_new = left != KEPT && self.kept_are_used() && !self.may_keep();
        if spared == 0 && left != 0 {
            self.regret(left);
            if stays_new {
                // Newcomers may be leaving before their first use.
                self.new_share = (self.new_share + (1 << self.shift)).min(share(self.frames, NEW_MAX));
            }
        }
        self.extents[extent].spared |= bit;
        if stays_new {
            self.stay_new(extent, bit);
        } else {
            self.keep(extent, bit);
        }
        self.age();
    }

    fn neighbours(&self, block: u32) -> Range<u32> {
        let (extent, _) = self.place(block);
        let few = self.extents[extent].spared.count_ones() < NEIGHBOURS_MIN;
        // If all possible victims are in use, extents would come and go without end.
        if few || self.credit < 1 << self.shift {
            return block..block;
        }
        extent << self.shift..(extent + 1) << self.shift
    }

    fn back(&mut self, block: u32) {
        self.credit = self.credit.saturating_sub(1);
        let (extent, bit) = self.place(block);
        if self.lists.of(extent) == NEW {
            self.stay_new(extent, bit);
        } else {
            self.keep(extent, bit);
        }
        self.age();
    }

    fn touched(&mut self, block: u32) {
        let (extent, _) = self.place(block);
        self.keep(extent, 0);
        self.age();
    }

    fn streamed(&mut self) {
        self.waiting.used(self.inserted, 1 << self.shift);
    }

    fn unused(&mut self, block: u32) {
        self.waiting.left(block, self.inserted);
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
        if matches!(self.lists.of(extent), KEPT | KEPT_OLD) {
            self.seen_at = self.inserted;
            self.waiting.kept_used(self.inserted - self.extents[extent].used_at);
        }
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
                // All remaining blocks of the extent were touched: they wait for another round, and
                // are not spared again.
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

    fn resize(&mut self, frames: usize) {
        let part = self.new_share as u128 * frames as u128 / self.frames.max(1) as u128;
        self.frames = frames;
        self.new_share = (part as usize).clamp(share(frames, NEW_MIN), share(frames, NEW_MAX));
        self.waiting.resize(frames);
        self.paid = self.paid.min(frames);
        self.credit = self.credit.min(frames / 8);
    }

    fn len(&self) -> usize {
        self.blocks.iter().sum()
    }
}
