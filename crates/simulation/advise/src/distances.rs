//! LRU at all budgets at once: the depth in the LRU stack at which each reference finds its block.
//!
//! Sources: Mattson, Gecsei, Slutz, Traiger, "Evaluation Techniques for Storage Hierarchies", IBM
//! Systems Journal, 1970 (stack distances); Bennett, Kruskal, "LRU Stack Processing", IBM J. Res.
//! Dev., 1975 (a tree of counts); Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction
//! with SHARDS", FAST 2015 (sampling).
//!
//! A block that is freed leaves a hole in the stack: every LRU memory that held the block has a
//! free frame at that depth. The next block that moves to the top from below fills the hole, so
//! that nothing below the hole moves down. A new hole is then where that block was found, since the
//! memories that held it had their free frame already.

use std::collections::BTreeSet;
use terapage_figures::SplitMix;
use terapage_policy::belady::Use;

/// The number of references that found their block at each depth.
#[derive(Clone, Debug)]
pub struct Distances {
    /// Index: the number of distinct blocks referenced since the block's last reference, less one,
    /// in blocks of the sample; the block itself counts.
    depths: Vec<u64>,
    /// References to blocks that were never referenced before, or not since they were freed.
    first: u64,
    /// References that were examined.
    looked_at: u64,
    /// The share of blocks that were examined.
    rate: f64,
}

impl Distances {
    /// Exact distances, in O(n log n) time.
    pub fn exact(uses: impl IntoIterator<Item: Into<Use>>) -> Distances {
        Distances::of(uses.into_iter().map(Into::into), 1.0)
    }

    /// Distances of a share `rate` of the blocks, chosen by a hash: much less work for long traces.
    /// For n blocks in the sample the share of page-ins is off by about 1 / sqrt(n) at worst.
    pub fn sampled(uses: impl IntoIterator<Item: Into<Use>>, rate: f64, seed: u64) -> Distances {
        let uses = uses.into_iter().map(Into::into);
        Distances::of(uses.filter(|one: &Use| is_sampled(one.block(), rate, seed)), rate)
    }

    fn of(uses: impl Iterator<Item = Use>, rate: f64) -> Distances {
        let mut stack = Stack::default();
        let mut distances = Distances { depths: Vec::new(), first: 0, looked_at: 0, rate };
        for one in uses {
            let Use::Touch(block) = one else {
                stack.free(one.block());
                continue;
            };
            distances.looked_at += 1;
            match stack.reference(block) {
                None => distances.first += 1,
                Some(depth) => {
                    if depth >= distances.depths.len() {
                        distances.depths.resize(depth + 1, 0);
                    }
                    distances.depths[depth] += 1;
                }
            }
        }
        distances
    }

    /// Page-ins of LRU with `frames` frames, without first touches.
    pub fn page_ins(&self, frames: usize) -> f64 {
        let depth = (frames as f64 * self.rate).round() as usize;
        let found: u64 = self.depths.iter().take(depth).sum();
        // The scale is the rate asked for, not the share of references that were examined: a sample
        // mainly has too many or too few references to the few hottest blocks, which are not
        // page-ins (SHARDS-adj).
        (self.looked_at - self.first - found) as f64 / self.rate
    }

    /// First touches, estimated from the sample; a block that was freed has another one.
    pub fn blocks(&self) -> f64 {
        self.first as f64 / self.rate
    }
}

/// Whether a block belongs to the sample.
pub fn is_sampled(block: u32, rate: f64, seed: u64) -> bool {
    SplitMix(u64::from(block) ^ seed.rotate_left(32)).unit() < rate
}

/// The LRU stack as a tree of counts over times: one mark for the last reference of each block, and
/// for each hole.
#[derive(Default)]
struct Stack {
    /// By block: the time of its last reference, plus one; 0 if it has none.
    last: Vec<u32>,
    /// A Fenwick tree over times.
    tree: Vec<u32>,
    /// By time: the block whose last reference it is; needed to renumber the times.
    block_at: Vec<u32>,
    /// Times whose block was freed.
    holes: BTreeSet<usize>,
    now: usize,
    /// Marks: blocks and holes.
    marks: usize,
}

/// No block.
const NONE: u32 = u32::MAX;
/// A block that was freed.
const HOLE: u32 = u32::MAX - 1;

/// The least number of times.
const TIMES_MIN: usize = 1 << 10;

impl Stack {
    /// Returns the number of other blocks referenced since this one, less the free frames above it,
    /// or `None` if it was never referenced.
    fn reference(&mut self, block: u32) -> Option<usize> {
        if self.now == self.block_at.len() {
            self.pack();
        }
        let index = block as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), 0);
        }
        let before = self.last[index] as usize;
        let depth = (before > 0).then(|| self.marks - self.count(before));
        if let Some(hole) = self.holes.last().copied().filter(|hole| *hole + 1 > before) {
            self.holes.remove(&hole);
            self.unmark(hole);
            if before > 0 {
                self.holes.insert(before - 1);
                self.block_at[before - 1] = HOLE;
            }
        } else if before > 0 {
            self.unmark(before - 1);
        }
        self.add(self.now, 1);
        self.marks += 1;
        self.block_at[self.now] = block;
        self.now += 1;
        self.last[index] = self.now as u32;
        depth
    }

    /// The block is freed.
    fn free(&mut self, block: u32) {
        let Some(last) = self.last.get_mut(block as usize).filter(|last| **last > 0) else { return };
        let time = std::mem::take(last) as usize - 1;
        self.block_at[time] = HOLE;
        self.holes.insert(time);
    }

    fn unmark(&mut self, time: usize) {
        self.add(time, u32::MAX);
        self.block_at[time] = NONE;
        self.marks -= 1;
    }

    /// Marks among the first `times`.
    fn count(&self, times: usize) -> usize {
        let (mut at, mut sum) = (times, 0);
        while at > 0 {
            sum += self.tree[at] as usize;
            at &= at - 1;
        }
        sum
    }

    fn add(&mut self, time: usize, what: u32) {
        let mut at = time + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(what);
            at += at & at.wrapping_neg();
        }
    }

    /// Renumbers the times without those that are no block's last reference, and makes room for
    /// twice as many.
    fn pack(&mut self) {
        let kept: Vec<u32> = self.block_at.iter().copied().filter(|&block| block != NONE).collect();
        let room = (kept.len() * 4).max(TIMES_MIN);
        self.tree = vec![0; room + 1];
        self.now = kept.len();
        self.block_at = kept;
        self.holes.clear();
        for time in 0..self.now {
            match self.block_at[time] {
                HOLE => {
                    self.holes.insert(time);
                }
                block => self.last[block as usize] = time as u32 + 1,
            }
            self.add(time, 1);
        }
        self.block_at.resize(room, NONE);
    }
}
