//! Numbers and names of blocks that merge recorded ones.

use super::{Recording, Region};
use std::collections::BTreeMap;
use terapage_policy::belady::Use;

/// Recorded blocks that keep their neighbours, as a power of two: 1 GiB with the usual block size.
const GROUP: u32 = 16;
/// The most groups. The arrays that are indexed by number have some 20 bytes a block: together a
/// GiB and more. A program that has used 1 TiB in blocks of the usual size has as many.
pub const GROUPS_MOST: usize = 1 << 10;

/// Recorded numbers without their gaps: a program may reserve terabytes and use little of them, and
/// there are arrays indexed by number.
pub struct Groups {
    /// By recorded number without its lower bits: the new number.
    new: BTreeMap<u32, u32>,
}

impl Default for Groups {
    fn default() -> Self {
        Groups { new: BTreeMap::from([(0, 0)]) }
    }
}

impl Groups {
    /// The number of a block.
    pub fn number(&mut self, block: u32) -> u32 {
        let next = self.new.len() as u32;
        let group = *self.new.entry(block >> GROUP).or_insert(next);
        group << GROUP | block & ((1 << GROUP) - 1)
    }

    /// Whether there are too many groups.
    pub fn are_too_many(&self) -> bool {
        self.new.len() > GROUPS_MOST
    }

    /// The parts of a range of blocks that exist: the first block and the number of blocks of each.
    pub fn parts(&self, block: u32, count: u32) -> Vec<(u32, u32)> {
        let (from, to) = (u64::from(block), u64::from(block) + u64::from(count));
        let groups = self.new.range(block >> GROUP..);
        let parts = groups.map_while(|(&old, &new)| {
            let first = u64::from(old) << GROUP;
            let (at, end) = (from.max(first), to.min(first + (1 << GROUP)));
            (at < end).then(|| (new << GROUP | (at - first) as u32, (end - at) as u32))
        });
        parts.collect()
    }

    /// Regions by the new numbers.
    pub fn regions(&self, recorded: &[Region], block_bytes: u64) -> Vec<Region> {
        if self.new.iter().all(|(old, new)| old == new) {
            return recorded.to_vec();
        }
        let mut regions = Vec::new();
        for (&old, &new) in &self.new {
            for region in recorded {
                let base = u64::from(old) << GROUP;
                let first = base.max(region.first.into());
                let end = (base + (1 << GROUP)).min(u64::from(region.first) + u64::from(region.blocks));
                if first < end {
                    regions.push(Region {
                        start: region.start + (first - u64::from(region.first)) * block_bytes,
                        first: new << GROUP | (first - base) as u32,
                        blocks: (end - first) as u32,
                    });
                }
            }
        }
        regions
    }
}

/// Numbers of merged blocks.
pub struct Merger {
    /// First block, and the value that is added after the shift; ascending by block.
    parts: Vec<(u32, u32, u32)>,
    shift: u32,
    count: usize,
}

impl Merger {
    /// Merges `1 << shift` recorded blocks, aligned by address.
    pub fn new(recording: &Recording, shift: u32) -> Merger {
        let mut regions = recording.regions.clone();
        regions.sort_unstable_by_key(|region| region.first);
        if regions.first().is_none_or(|region| region.first > 0) {
            regions.insert(0, Region { start: 0, first: 0, blocks: 0 });
        }
        let mut parts = Vec::new();
        let mut next = 0u32;
        let end = recording.blocks();
        for (at, region) in regions.iter().enumerate() {
            // Where the region begins inside a merged block.
            let inside = ((region.start / recording.block_bytes) & ((1 << shift) - 1)) as u32;
            let until = regions.get(at + 1).map_or(end, |region| region.first).min(end);
            let len = until.saturating_sub(region.first);
            parts.push((region.first, inside, next));
            next += (len + inside).div_ceil(1 << shift);
        }
        Merger { parts, shift, count: next as usize }
    }

    /// The merged block of a recorded one.
    pub fn of(&self, block: u32) -> u32 {
        let at = self.parts.partition_point(|part| part.0 <= block) - 1;
        let (first, inside, base) = self.parts[at];
        base + ((block - first + inside) >> self.shift)
    }

    /// Merged blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The range of merged blocks that wholly lie in a range of recorded ones.
    pub fn within(&self, block: u32, count: u32) -> std::ops::Range<u32> {
        if self.shift == 0 {
            let first = self.of(block);
            return first..first + count;
        }
        let at = self.parts.partition_point(|part| part.0 <= block) - 1;
        let (first, inside, base) = self.parts[at];
        let (from, to) = (block - first + inside, block - first + inside + count);
        let from = from.div_ceil(1 << self.shift);
        base + from..base + (to >> self.shift).max(from)
    }
}

/// No step.
pub const NONE: u32 = u32::MAX;

/// The program's use of merged blocks, in the form that a simulator needs.
pub struct Tracker {
    merger: Merger,
    /// By recorded block: whether it is in use.
    live: Vec<bool>,
    /// By merged block: the number of its parts in use.
    parts: Vec<u32>,
    live_now: usize,
    uses: Uses,
}

/// The program's use of its blocks.
#[derive(Debug, Default)]
pub struct Uses {
    /// Touches and discards, in order.
    pub list: Vec<Use>,
    /// The greatest number of blocks in use at once: touched and not discarded.
    pub live_blocks: usize,
    /// Blocks that came into use; a block that was discarded and touched again counts twice.
    pub touched_blocks: usize,
    /// Touches.
    pub references: usize,
}

impl Tracker {
    pub fn new(merger: Merger, recorded: u32) -> Tracker {
        let parts = vec![0; merger.count()];
        Tracker { merger, live: vec![false; recorded as usize], parts, live_now: 0, uses: Uses::default() }
    }

    /// Notes a touch. With `begins` the block was all zero without a frame, so that nothing was
    /// read.
    pub fn touch(&mut self, recorded: u32, begins: bool) {
        let block = self.merger.of(recorded);
        let lives = self.parts[block as usize] > 0;
        // If only a part of a merged block begins, the block was in use already.
        let begins = begins && (self.merger.shift == 0 || !lives);
        if begins && lives {
            self.uses.list.push(Use::Free(block));
        }
        self.uses.touched_blocks += usize::from(begins || !lives);
        if !std::mem::replace(&mut self.live[recorded as usize], true) {
            self.parts[block as usize] += 1;
            self.live_now += usize::from(!lives);
            self.uses.live_blocks = self.uses.live_blocks.max(self.live_now);
        }
        self.uses.references += 1;
        self.uses.list.push(Use::Touch(block));
    }

    /// Notes a discard; a merged block is discarded once all of its parts are.
    pub fn discard(&mut self, recorded: u32) {
        if !std::mem::replace(&mut self.live[recorded as usize], false) {
            return;
        }
        let block = self.merger.of(recorded);
        let parts = &mut self.parts[block as usize];
        *parts -= 1;
        if *parts == 0 {
            self.live_now -= 1;
            self.uses.list.push(Use::Free(block));
        }
    }

    pub fn end(self) -> Uses {
        self.uses
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUP, Groups, Region};

    #[test]
    fn far_numbers_come_near() {
        let far = 400 << GROUP;
        let recorded = [
            Region { start: 0x1000, first: 0, blocks: 10 },
            Region { start: 0x10_0000, first: 10, blocks: 1 << 31 },
        ];
        let mut groups = Groups::default();
        assert_eq!(groups.number(12), 12);
        assert_eq!(groups.regions(&recorded, 4096), recorded);
        assert_eq!(groups.number(far + 5), (1 << GROUP) + 5);
        assert_eq!(groups.number(far + 7), (1 << GROUP) + 7);
        assert_eq!(groups.parts(11, far), [(11, (1 << GROUP) - 11), (1 << GROUP, 11)]);
        assert_eq!(groups.parts(far - 4, 3), []);
        let regions = groups.regions(&recorded, 4096);
        let start = 0x10_0000 + u64::from(far - 10) * 4096;
        assert_eq!(regions.last(), Some(&Region { start, first: 1 << GROUP, blocks: 1 << GROUP }));
        assert_eq!((regions.len(), regions[1].first), (3, 10));
    }
}
