//! LRU at all budgets at once: how deep in the LRU stack each reference finds its block.
//!
//! Sources: Mattson, Gecsei, Slutz, Traiger, "Evaluation Techniques for Storage Hierarchies", IBM
//! Systems Journal, 1970 (stack distances); Bennett, Kruskal, "LRU Stack Processing", IBM J. Res.
//! Dev., 1975 (a tree of counts); Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction
//! with SHARDS", FAST 2015 (sampling).

/// How many references found their block at each depth.
#[derive(Clone, Debug)]
pub struct Distances {
    /// Index: distinct blocks referenced since the block's last reference, itself included, less
    /// one; in blocks of the sample.
    depths: Vec<u64>,
    /// References to blocks never referenced before.
    first: u64,
    /// References that were looked at.
    looked_at: u64,
    /// The share of blocks that were looked at.
    rate: f64,
}

impl Distances {
    /// Exact distances, in O(n log n) time.
    pub fn exact(references: &[u32]) -> Distances {
        Distances::of(references.iter().copied(), 1.0)
    }

    /// Distances of a share `rate` of the blocks, chosen by a hash: much less work for long traces.
    /// For n blocks in the sample the share of page-ins is off by about 1 / sqrt(n) at worst.
    pub fn sampled(references: &[u32], rate: f64, seed: u64) -> Distances {
        let chosen = references.iter().copied().filter(|&block| is_sampled(block, rate, seed));
        Distances::of(chosen, rate)
    }

    fn of(references: impl Iterator<Item = u32>, rate: f64) -> Distances {
        let mut stack = Stack::default();
        let mut distances = Distances { depths: Vec::new(), first: 0, looked_at: 0, rate };
        for block in references {
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

    /// Page-ins of LRU with `frames` frames, first touches left out.
    pub fn page_ins(&self, frames: usize) -> f64 {
        let depth = (frames as f64 * self.rate).round() as usize;
        let found: u64 = self.depths.iter().take(depth).sum();
        // The scale is the rate asked for, not the share of references that happened to be looked
        // at: what a sample has too many or too few of are references to the few hottest blocks,
        // which are no page-ins (SHARDS-adj).
        (self.looked_at - self.first - found) as f64 / self.rate
    }

    /// Blocks referenced, as far as the sample tells.
    pub fn blocks(&self) -> f64 {
        self.first as f64 / self.rate
    }
}

/// Whether a block belongs to the sample.
pub fn is_sampled(block: u32, rate: f64, seed: u64) -> bool {
    let mut z = (u64::from(block) ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 11) as f64) < rate * (1u64 << 53) as f64
}

/// The LRU stack as a tree of counts over times: one mark for the last reference of each block.
#[derive(Default)]
struct Stack {
    /// By block: the time of its last reference, plus one.
    last: Vec<u32>,
    /// A Fenwick tree over times.
    tree: Vec<u32>,
    /// By time: the block whose last reference it is; needed when times are packed anew.
    block_at: Vec<u32>,
    now: usize,
    blocks: usize,
}

/// No block.
const NONE: u32 = u32::MAX;

/// Times that there are at least.
const TIMES_MIN: usize = 1 << 10;

impl Stack {
    /// How many other blocks were referenced since this one; `None` where it never was.
    fn reference(&mut self, block: u32) -> Option<usize> {
        if self.now == self.block_at.len() {
            self.pack();
        }
        let index = block as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), 0);
        }
        let before = self.last[index] as usize;
        let depth = (before > 0).then(|| self.blocks - self.count(before));
        if before > 0 {
            self.add(before - 1, u32::MAX);
            self.block_at[before - 1] = NONE;
        } else {
            self.blocks += 1;
        }
        self.add(self.now, 1);
        self.block_at[self.now] = block;
        self.now += 1;
        self.last[index] = self.now as u32;
        depth
    }

    /// Blocks whose last reference is among the first `times`.
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

    /// Numbers times anew, without those that are no block's last; makes room for twice as many.
    fn pack(&mut self) {
        let kept: Vec<u32> = self.block_at.iter().copied().filter(|&block| block != NONE).collect();
        let room = (kept.len() * 4).max(TIMES_MIN);
        self.tree = vec![0; room + 1];
        self.now = kept.len();
        self.block_at = kept;
        for time in 0..self.now {
            self.last[self.block_at[time] as usize] = time as u32 + 1;
            self.add(time, 1);
        }
        self.block_at.resize(room, NONE);
    }
}
