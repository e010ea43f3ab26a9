//! Counters by region: which part of the program's memory has the frames, and for which part
//! threads wait.
//!
//! A part of the paged addresses can be made a region with a name. An event of a block is counted
//! for the innermost named part with the block, or, if there is none, for the first region, which
//! has no name. A change of state needs a search of a short list, and only if the block gets or
//! loses a frame or its only copy in the store.

use super::table::{Entry, State};
use crate::carry::hash::Parts;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terapage_stats::{RegionCounters, RegionTable};

/// Bytes of bookkeeping for a block in use: in the table, in the policy's lists, and in the notes
/// on threads' turns.
const BOOKS: usize = size_of::<Entry>() + 12 + 1;
/// Additional bytes for a block that can be split: the hashes of its pages, and its part of the
/// notes on trials.
const BOOKS_OF_PARTS: usize = size_of::<Parts>() + 1;

/// A part with a name, and the number of its counters.
struct Named {
    blocks: Range<u32>,
    region: usize,
}

/// The named parts, inner ones after outer ones, and the counters.
pub(crate) struct Usage {
    counters: &'static RegionTable,
    named: Vec<Named>,
    block_bytes: u64,
    /// Bytes of bookkeeping for a block.
    books: usize,
    /// Blocks that are neither Zero nor Loose.
    live: u32,
    /// The most that `live` has been.
    live_most: u32,
}

/// Whether a block in this state has a frame, and whether only the store has its bytes.
fn kind(state: State) -> (bool, bool) {
    match state {
        State::Mapped | State::Soft | State::Watched | State::Writing | State::Reading => (true, false),
        State::Stored => (false, true),
        State::Zero | State::Loose => (false, false),
    }
}

impl Usage {
    pub fn new(counters: &'static RegionTable, block: usize, splits: bool) -> Usage {
        let books = BOOKS + if splits { BOOKS_OF_PARTS } else { 0 };
        Usage { counters, named: Vec::new(), block_bytes: block as u64, books, live: 0, live_most: 0 }
    }

    /// Each block has become this many blocks.
    pub fn split(&mut self, more: usize) {
        let numbers = more as u32;
        for named in &mut self.named {
            named.blocks = named.blocks.start * numbers..named.blocks.end.saturating_mul(numbers);
        }
        self.block_bytes /= more as u64;
        self.books = BOOKS;
        self.live *= numbers;
        self.live_most = self.live;
    }

    /// The counters of the innermost named part that a block is in.
    pub fn of(&self, block: u32) -> &'static RegionCounters {
        let named = self.named.iter().rev().find(|named| named.blocks.contains(&block));
        &self.counters[named.map_or(0, |named| named.region)]
    }

    /// Counts a change of a block's state.
    pub fn changed(&mut self, block: u32, old: State, new: State) {
        let (old, new) = (kind(old), kind(new));
        const NONE: (bool, bool) = (false, false);
        match (old, new) {
            (NONE, NONE) => {}
            (NONE, _) => {
                self.live += 1;
                self.live_most = self.live_most.max(self.live);
            }
            (_, NONE) => self.live -= 1,
            _ => {}
        }
        if old != new {
            let region = self.of(block);
            self.adjust(&region.resident_bytes, old.0, new.0);
            self.adjust(&region.stored_bytes, old.1, new.1);
        }
    }

    fn adjust(&self, bytes: &AtomicU64, old: bool, new: bool) {
        match (old, new) {
            (false, true) => bytes.fetch_add(self.block_bytes, Relaxed),
            (true, false) => bytes.fetch_sub(self.block_bytes, Relaxed),
            _ => return,
        };
    }

    /// Names a part as a region that is not in use, and not the first. [`moved`](Self::moved) then
    /// adds the states of its blocks.
    pub fn name(&mut self, region: usize, blocks: Range<u32>, start: usize, len: usize, name: &str) {
        let counters = &self.counters[region];
        counters.set_name(name);
        counters.start.store(start as u64, Relaxed);
        counters.size_bytes.store(len as u64, Relaxed);
        self.named.push(Named { blocks, region });
    }

    /// Counts a block, in its state, for the part named last; it was counted for `before`.
    pub fn moved(&self, block: u32, state: State, before: &RegionCounters) {
        let (frame, stored) = kind(state);
        let now = self.of(block);
        self.adjust(&now.resident_bytes, false, frame);
        self.adjust(&before.resident_bytes, frame, false);
        self.adjust(&now.stored_bytes, false, stored);
        self.adjust(&before.stored_bytes, stored, false);
    }

    /// Moves the end of a region to `end`. Returns the old end, and the counters for which the
    /// blocks behind the region's end count. `None` if the region is not in use.
    pub fn set_end(&mut self, region: usize, end: u32) -> Option<(u32, &'static RegionCounters)> {
        let index = self.named.iter().position(|named| named.region == region)?;
        let old = std::mem::replace(&mut self.named[index].blocks.end, end);
        let first = self.named[index].blocks.start;
        let around = self.named[..index].iter().rev().find(|named| named.blocks.contains(&first));
        Some((old, &self.counters[around.map_or(0, |named| named.region)]))
    }

    /// Ends a region: its counts are added to those of the part around it.
    pub fn unname(&mut self, region: usize) {
        let Some(index) = self.named.iter().position(|named| named.region == region) else { return };
        let named = self.named.remove(index);
        self.of(named.blocks.start).absorb(&self.counters[region]);
    }

    /// Bytes of bookkeeping for blocks. They do not shrink, since touched pages of the tables stay.
    pub fn books_bytes(&self) -> usize {
        self.live_most as usize * self.books
    }

    /// Continues in a forked child, with the counters of the child.
    pub fn inherit(&mut self, counters: &'static RegionTable) {
        for (new, old) in counters.iter().zip(self.counters) {
            new.inherit(old);
        }
        self.counters = counters;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        Usage::new(Box::leak(Box::default()), 4096, false)
    }

    #[test]
    fn the_innermost_part_counts() {
        let mut usage = usage();
        usage.name(1, 0..100, 0, 409_600, "heap");
        usage.changed(20, State::Zero, State::Mapped);
        usage.changed(21, State::Zero, State::Stored);
        let before = usage.of(20);
        usage.name(2, 20..30, 81_920, 40_960, "array");
        for (block, state) in [(20, State::Mapped), (21, State::Stored)] {
            usage.moved(block, state, before);
        }
        let bytes = |counter: &AtomicU64| counter.load(Relaxed);
        let array = usage.of(20);
        assert_eq!((bytes(&array.resident_bytes), bytes(&array.stored_bytes)), (4096, 4096));
        assert_eq!(bytes(&before.resident_bytes), 0);
        usage.changed(20, State::Mapped, State::Soft);
        assert_eq!(bytes(&array.resident_bytes), 4096, "a soft block has its frame");
        usage.unname(2);
        assert!(std::ptr::eq(usage.of(20), before));
        assert_eq!((bytes(&before.resident_bytes), bytes(&before.stored_bytes)), (4096, 4096));
    }

    #[test]
    fn a_part_takes_its_new_blocks_along() {
        let mut usage = usage();
        usage.name(1, 0..100, 0, 409_600, "heap");
        usage.name(2, 0..10, 0, 40_960, "large");
        usage.changed(12, State::Zero, State::Mapped);
        let (old, around) = usage.set_end(2, 20).unwrap();
        assert_eq!(old, 10);
        usage.moved(12, State::Mapped, around);
        let bytes = |block| usage.of(block).resident_bytes.load(Relaxed);
        assert_eq!((bytes(12), bytes(30)), (4096, 0));
    }
}
