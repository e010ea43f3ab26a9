//! Reuse distances, and the misses of an LRU cache.
//!
//! The distance of a reference is the number of distinct blocks since the last one to the same
//! block (Mattson et al.: "Evaluation techniques for storage hierarchies", 1970), counted with a
//! tree of sums over the order of last use (Fenwick, 1994). It is exact as long as the blocks can
//! be tracked individually. Beyond that only blocks whose hash is below a limit are tracked, and
//! the limit is halved whenever there are too many: SHARDS with a fixed number of samples
//! (Waldspurger et al.: "Efficient MRC Construction with SHARDS", FAST 2015, sections 3.2 and 3.3),
//! with its correction for the references that the sample has too few or too many of (SHARDS_adj).

use super::histogram::{bucket_of, low_of};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// 64 even bits for a block.
#[inline]
pub(super) fn hash(volume: u16, block: u64) -> u64 {
    terapage_figures::hash(block ^ u64::from(volume) << 48)
}

/// A tracked block.
#[derive(Clone, Copy)]
struct Seen {
    /// The slot of its last use.
    slot: u32,
    read: bool,
    written: bool,
}

/// Follows blocks.
pub(super) struct Reuse {
    tracked_max: usize,
    // Blocks whose hash, shifted right by 64 less this, is 0 are tracked: one in `2^halvings`.
    halvings: u32,
    seen: HashMap<Key, Seen, BuildHasherDefault<Plain>>,
    order: Order,
    // Counts by bucket of distance, in blocks of the whole trace, and first touches.
    distances: Vec<f64>,
    // By distance, as long as all blocks are followed.
    exact: Vec<u64>,
    first_touches: f64,
    references: u64,
}

/// Numbers of distinct blocks.
pub(super) struct Blocks {
    pub sampled: u64,
    pub all: f64,
    pub read: f64,
    pub written: f64,
}

impl Reuse {
    /// Tracks at most this number of blocks.
    pub fn new(tracked_max: usize) -> Reuse {
        let tracked_max = tracked_max.clamp(16, 1 << 29);
        Reuse {
            tracked_max,
            halvings: 0,
            seen: HashMap::default(),
            order: Order::default(),
            distances: Vec::new(),
            exact: Vec::new(),
            first_touches: 0.0,
            references: 0,
        }
    }

    /// Notes a reference to a block; `hash` is [`hash`] of the block.
    #[inline]
    pub fn touch(&mut self, volume: u16, block: u64, hash: u64, write: bool) {
        self.references += 1;
        if self.is_followed(hash) {
            self.follow(Key { block, volume }, write);
        }
    }

    #[inline]
    fn is_followed(&self, hash: u64) -> bool {
        self.halvings == 0 || hash >> (64 - self.halvings) == 0
    }

    fn follow(&mut self, key: Key, write: bool) {
        if self.order.is_full() {
            self.renumber();
        }
        match self.seen.get_mut(&key) {
            Some(seen) => {
                let distance = self.order.move_to_end(seen.slot);
                seen.slot = self.order.last();
                seen.written |= write;
                seen.read |= !write;
                let bucket = bucket_of(u64::from(distance) << self.halvings);
                if self.distances.len() <= bucket {
                    self.distances.resize(bucket + 1, 0.0);
                }
                self.distances[bucket] += 1.0;
                if self.halvings == 0 {
                    let distance = distance as usize;
                    if self.exact.len() <= distance {
                        self.exact.resize((distance + 1).next_power_of_two(), 0);
                    }
                    self.exact[distance] += 1;
                }
            }
            None => {
                self.first_touches += 1.0;
                let slot = self.order.append();
                self.seen.insert(key, Seen { slot, read: !write, written: write });
                if self.seen.len() > self.tracked_max {
                    self.thin_out();
                }
            }
        }
    }

    /// Tracks half of the blocks from now on; the counts so far are halved, as in SHARDS.
    fn thin_out(&mut self) {
        while self.seen.len() > self.tracked_max && self.halvings < 63 {
            self.halvings += 1;
            self.exact = Vec::new();
            let shift = 64 - self.halvings;
            let order = &mut self.order;
            self.seen.retain(|key, seen| {
                let stays = hash(key.volume, key.block) >> shift == 0;
                if !stays {
                    order.forget(seen.slot);
                }
                stays
            });
            self.distances.iter_mut().for_each(|count| *count /= 2.0);
            self.first_touches /= 2.0;
        }
        self.renumber();
    }

    /// Assigns the first slots to the blocks, in the order of their last use.
    fn renumber(&mut self) {
        let order = &self.order;
        self.seen.values_mut().for_each(|seen| seen.slot = order.sum(seen.slot) - 1);
        self.order.restart(self.seen.len());
    }

    /// The share of blocks that are tracked.
    pub fn rate(&self) -> f64 {
        (-f64::from(self.halvings)).exp2()
    }

    /// References to all blocks, followed or not.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The number of distinct blocks.
    pub fn blocks(&self) -> Blocks {
        let scaled = |count: usize| count as f64 / self.rate();
        Blocks {
            sampled: self.seen.len() as u64,
            all: scaled(self.seen.len()),
            read: scaled(self.seen.values().filter(|seen| seen.read).count()),
            written: scaled(self.seen.values().filter(|seen| seen.written).count()),
        }
    }

    /// Sizes in blocks, each the least of a bucket, and the references to blocks that were used
    /// again after that number of blocks.
    pub fn distances(&self) -> Vec<(f64, f64)> {
        let scale = 1.0 / self.rate();
        let filled = self.distances.iter().enumerate().filter(|(_, count)| **count > 0.0);
        filled.map(|(bucket, count)| (low_of(bucket) as f64, count * scale)).collect()
    }

    /// The exact misses of LRU caches of these sizes in blocks; `None` if a sample represents all
    /// blocks.
    pub fn exact_miss_ratios(&self, sizes: &[f64]) -> Option<Vec<f64>> {
        let all = self.references.max(1) as f64;
        let ratio = |size: &f64| {
            let hits: u64 = self.exact.iter().take(*size as usize).sum();
            1.0 - hits as f64 / all
        };
        (self.halvings == 0).then(|| sizes.iter().map(ratio).collect())
    }

    /// Cache sizes in blocks, ascending, and the misses of an LRU cache of that size, as a share of
    /// all references.
    pub fn miss_ratios(&self) -> Vec<(f64, f64)> {
        if self.references == 0 {
            return Vec::new();
        }
        // A distance d is a hit in a cache of more than d blocks. If the sample has more or fewer
        // references than its share, the difference is due to the most used blocks, which hit in
        // any cache.
        let expected = self.references as f64 * self.rate();
        let seen = self.distances.iter().sum::<f64>() + self.first_touches;
        let mut hits = expected - seen;
        let mut ratios = vec![(0.0, 1.0)];
        for (bucket, count) in self.distances.iter().enumerate() {
            hits += count;
            if *count > 0.0 {
                ratios.push((low_of(bucket + 1) as f64, (1.0 - hits / expected).clamp(0.0, 1.0)));
            }
        }
        ratios
    }
}

/// Blocks in the order of their last use: a slot is a bit, set if the block was not used since.
/// Chunks of 512 bits are counted in a Fenwick tree, so that all of it stays in the processor's
/// cache.
#[derive(Default)]
struct Order {
    bits: Vec<u64>,
    tree: Vec<u32>,
    next: u32,
    marks: u32,
}

/// Words of 64 bits in a chunk.
const CHUNK_WORDS: usize = 8;
/// Slots in a chunk.
const CHUNK_SLOTS: usize = 64 * CHUNK_WORDS;

impl Order {
    fn is_full(&self) -> bool {
        self.next as usize == self.tree.len() * CHUNK_SLOTS
    }

    /// Marks the first `count` slots, and makes room for three times as many more.
    fn restart(&mut self, count: usize) {
        let chunks = (4 * count).div_ceil(CHUNK_SLOTS).max(2);
        self.tree.clear();
        self.tree.resize(chunks, 0);
        self.bits.clear();
        self.bits.resize(count / 64, u64::MAX);
        self.bits.resize(chunks * CHUNK_WORDS, 0);
        self.bits[count / 64] |= (1 << (count % 64)) - 1;
        for chunk in 1..=chunks {
            let marked = count.saturating_sub((chunk - 1) * CHUNK_SLOTS).min(CHUNK_SLOTS);
            self.tree[chunk - 1] += marked as u32;
            let parent = chunk + (chunk & chunk.wrapping_neg());
            if parent <= chunks {
                self.tree[parent - 1] += self.tree[chunk - 1];
            }
        }
        (self.next, self.marks) = (count as u32, count as u32);
    }

    /// The slot that was marked last.
    fn last(&self) -> u32 {
        self.next - 1
    }

    /// Marks the next slot.
    fn append(&mut self) -> u32 {
        self.flip(self.next, 1);
        self.marks += 1;
        self.next += 1;
        self.next - 1
    }

    /// Moves the mark of a slot to the next free one, and returns the number of marks in between.
    fn move_to_end(&mut self, slot: u32) -> u32 {
        let passed = self.marks - self.sum(slot);
        self.forget(slot);
        self.append();
        passed
    }

    /// Takes the mark of a slot away.
    fn forget(&mut self, slot: u32) {
        self.flip(slot, u32::MAX);
        self.marks -= 1;
    }

    /// Sets or clears the mark of a slot; `by` is 1, or `u32::MAX` to subtract 1.
    fn flip(&mut self, slot: u32, by: u32) {
        let slot = slot as usize;
        self.bits[slot / 64] ^= 1 << (slot % 64);
        let mut place = slot / CHUNK_SLOTS + 1;
        while place <= self.tree.len() {
            self.tree[place - 1] = self.tree[place - 1].wrapping_add(by);
            place += place & place.wrapping_neg();
        }
    }

    /// Marks up to and with a slot.
    fn sum(&self, slot: u32) -> u32 {
        let slot = slot as usize;
        let (mut place, mut sum) = (slot / CHUNK_SLOTS, 0u32);
        let words = &self.bits[place * CHUNK_WORDS..slot / 64];
        sum += words.iter().map(|word| word.count_ones()).sum::<u32>();
        sum += (self.bits[slot / 64] << (63 - slot % 64)).count_ones();
        while place > 0 {
            sum = sum.wrapping_add(self.tree[place - 1]);
            place &= place - 1;
        }
        sum
    }
}

/// A block of a volume, as a key. Sixteen neighbours have neighbouring places in the table, since
/// traces touch neighbours in order.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    block: u64,
    volume: u16,
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let near = self.block & 15;
        // The table derives the place from the lowest bits and distinguishes keys by the highest.
        hasher.write_u64((hash(self.volume, self.block >> 4) & !15 | near) ^ near << 60);
    }
}

/// Uses the single number of a [`Key`] as the hash.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn touch(reuse: &mut Reuse, block: u64) {
        reuse.touch(0, block, hash(0, block), block.is_multiple_of(2));
    }

    /// Misses of an LRU cache, from first principles.
    fn misses(blocks: &[u64], size: usize) -> usize {
        let mut cache: Vec<u64> = Vec::new();
        let mut misses = 0;
        for block in blocks {
            match cache.iter().position(|cached| cached == block) {
                Some(place) => drop(cache.remove(place)),
                None => misses += 1,
            }
            cache.insert(0, *block);
            cache.truncate(size);
        }
        misses
    }

    proptest! {
        #[test]
        fn miss_ratios_are_those_of_a_cache(blocks in prop::collection::vec(0u64..60, 1..3000)) {
            let mut reuse = Reuse::new(1000);
            blocks.iter().for_each(|block| touch(&mut reuse, *block));
            for (size, ratio) in reuse.miss_ratios() {
                let expected = misses(&blocks, size as usize) as f64 / blocks.len() as f64;
                prop_assert!((ratio - expected).abs() < 1e-9, "{} blocks: {} for {}", size, ratio, expected);
            }
            let sizes: Vec<f64> = (0..62).map(f64::from).collect();
            for (size, ratio) in sizes.iter().zip(reuse.exact_miss_ratios(&sizes).unwrap()) {
                let expected = misses(&blocks, *size as usize) as f64 / blocks.len() as f64;
                prop_assert!((ratio - expected).abs() < 1e-9, "{} blocks: {} for {}", size, ratio, expected);
            }
            let mut distinct = blocks.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(reuse.blocks().all, distinct.len() as f64);
            let even = distinct.iter().filter(|block| *block % 2 == 0).count();
            prop_assert_eq!(reuse.blocks().written, even as f64);
        }
    }

    /// Blocks whose popularity is a power law of their rank.
    fn skewed(count: u64, blocks: f64) -> impl Iterator<Item = u64> {
        (0..count).map(move |number| {
            let uniform = hash(1, number) as f64 / u64::MAX as f64;
            blocks.powf(uniform) as u64
        })
    }

    #[test]
    fn a_sample_comes_close() {
        let (mut exact, mut sampled) = (Reuse::new(1 << 20), Reuse::new(1 << 12));
        for block in skewed(1_000_000, 200_000.0) {
            touch(&mut exact, block);
            touch(&mut sampled, block);
        }
        assert_eq!(exact.rate(), 1.0);
        assert!(sampled.rate() <= 1.0 / 32.0);
        let footprint = exact.blocks().all;
        assert!((sampled.blocks().all / footprint - 1.0).abs() < 0.1);
        let ratio_at = |reuse: &Reuse, size: f64| {
            reuse
                .miss_ratios()
                .into_iter()
                .take_while(|(at, _)| *at <= size)
                .last()
                .map_or(1.0, |(_, ratio)| ratio)
        };
        let mut errors = Vec::new();
        for eighth in 1..=8 {
            let size = footprint * f64::from(eighth) / 8.0;
            errors.push((ratio_at(&exact, size) - ratio_at(&sampled, size)).abs());
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.03, "{errors:?}");
    }
}
