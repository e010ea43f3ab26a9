//! Numbers and names of blocks that are merged from recorded ones.

use super::{Recording, Region};
use std::collections::BTreeMap;

/// Recorded blocks that keep their neighbours, as a power of two: 64 GiB of the usual ones.
const GROUP: u32 = 22;

/// Recorded numbers without the gaps between them: a program may reserve terabytes and open little
/// of them, and arrays by number are made here.
pub struct Groups {
    /// By recorded number, without its lower bits: the new one.
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

    /// The numbers of a range of blocks, as far as there are any: the first, and how many.
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
    /// First block, and what is added after the shift; ascending by block.
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

/// Gives blocks their names.
pub struct Names {
    /// By merged block; `u32::MAX` has none yet.
    names: Vec<u32>,
    next: u32,
    /// By recorded block: whether it is in use. Empty where blocks are not merged.
    live: Vec<bool>,
    /// By merged block: how many of its parts are.
    parts: Vec<u32>,
}

/// No name, no step.
pub const NONE: u32 = u32::MAX;

impl Names {
    pub fn new(merged: usize, recorded: u32, parts: bool) -> Names {
        let live = if parts { vec![false; recorded as usize] } else { Vec::new() };
        Names { names: vec![NONE; merged], next: 0, live, parts: vec![0; if parts { merged } else { 0 }] }
    }

    fn fresh(&mut self, merged: usize) -> u32 {
        self.names[merged] = self.next;
        self.next += 1;
        self.next - 1
    }

    pub fn touch(&mut self, merged: usize, block: u32) -> u32 {
        self.enter(merged, block);
        match self.names[merged] {
            NONE => self.fresh(merged),
            name => name,
        }
    }

    pub fn begin(&mut self, merged: usize, block: u32) -> u32 {
        let goes_on = !self.live.is_empty() && self.parts[merged] > 0;
        self.enter(merged, block);
        if goes_on { self.names[merged] } else { self.fresh(merged) }
    }

    fn enter(&mut self, merged: usize, block: u32) {
        if let Some(live) = self.live.get_mut(block as usize)
            && !std::mem::replace(live, true)
        {
            self.parts[merged] += 1;
        }
    }

    pub fn discard(&mut self, merged: usize, block: u32) {
        if let Some(live) = self.live.get_mut(block as usize)
            && std::mem::replace(live, false)
        {
            self.parts[merged] -= 1;
        }
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
