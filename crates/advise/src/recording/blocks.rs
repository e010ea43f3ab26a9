//! Numbers and names of blocks that are merged from recorded ones.

use super::{Recording, Region};

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
