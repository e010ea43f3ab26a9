//! The regions by which the program's memory is counted, and their names: static arrays by their
//! object, large ranges of the arena by their address, and the rest of the arena as the heap.
//!
//! Only large ranges are reported to the pager: filling them takes so long that the report costs
//! little in comparison.

use crate::arena::{self, Arena};
use crate::{setup, statics};
use std::sync::atomic::Ordering::Relaxed;
use terapage_stats::REGIONS;

/// Ranges of at least this many bytes are counted by themselves.
const LARGE: usize = 32 << 20;
/// The largest number of such ranges; the largest ones are chosen.
const LARGE_MOST: usize = 16;
/// The largest number of objects whose static arrays are counted separately; the largest ones are
/// chosen.
const STATICS_MOST: usize = 8;

/// The number of the heap's region; the others follow.
const HEAP: usize = 1;
const STATICS: usize = HEAP + 1;
const FIRST_LARGE: usize = STATICS + STATICS_MOST;
const _: () = assert!(FIRST_LARGE + LARGE_MOST <= REGIONS);

/// A range must have grown by its length divided by this before its new blocks are counted with it.
const STEP: usize = 8;

/// A range of the arena that is a region. It begins at a block boundary.
pub struct Named {
    from: usize,
    /// The end that the pager knows.
    end: usize,
    region: usize,
    /// Its special bytes: those that the program may not touch, or that are not plain memory.
    special: usize,
}

impl Arena {
    /// Names the regions that there are when paging starts.
    pub fn name_regions(&mut self) {
        let Some(pager) = &self.pager else { return };
        let mut objects: Vec<_> = statics::named_ranges().collect();
        objects.sort_by_key(|&(_, len, _)| std::cmp::Reverse(len));
        for (index, (start, len, object)) in objects.into_iter().take(STATICS_MOST).enumerate() {
            let name = format!("static arrays of {object}");
            setup::or_fail(pager.name_region(STATICS + index, start, len, &name));
        }
        let (from, len) = arena::whole();
        setup::or_fail(pager.name_region(HEAP, from, len, "heap"));
        let used: Vec<_> = self.ranges.used().collect();
        for (at, to) in used {
            self.count_by_region(at, to);
        }
    }

    /// Publishes the bytes in use: in all, and of the heap.
    pub fn count_in_use(&self) {
        let Some(pager) = &self.pager else { return };
        let all = self.in_use() + self.files.bytes();
        pager.counters().region_bytes.store(all as u64, Relaxed);
        let large: usize = self
            .named
            .iter()
            .filter_map(|named| {
                Some((self.ranges.end_of(named.from)? - named.from).saturating_sub(named.special))
            })
            .sum();
        let heap = all.saturating_sub(self.static_bytes() + large);
        pager.region(HEAP).size_bytes.store(heap as u64, Relaxed);
    }

    /// Notes that pages from `at` to `to` were handed out or returned.
    pub fn count_by_region(&mut self, at: usize, to: usize) {
        if self.pager.is_none() || self.named.is_empty() && to - at < LARGE {
            return self.count_in_use();
        }
        let touched = |named: &Named| named.from < to && named.end > at || named.from == at;
        for index in (0..self.named.len()).rev() {
            if touched(&self.named[index]) {
                self.look_again(index);
            }
        }
        if let Some(end) = self.ranges.end_of(at)
            && end - at >= LARGE
            && at.is_multiple_of(setup::block())
            && self.named.iter().all(|named| named.from != at)
        {
            self.add_named(at, end);
        }
        self.count_in_use();
    }

    /// Checks a named range, which may have another end, or be gone.
    fn look_again(&mut self, index: usize) {
        let Some(pager) = &self.pager else { return };
        let Named { from, end, region, .. } = self.named[index];
        let Some(now) = self.ranges.end_of(from).filter(|&now| now - from >= LARGE) else {
            setup::or_fail(pager.end_region(region));
            self.named.remove(index);
            return;
        };
        if now < end || now - end > (now - from) / STEP {
            let len = (now - from).next_multiple_of(setup::block());
            setup::or_fail(pager.resize_region(region, from, len));
            self.named[index].end = now;
        }
        let special = self.special_bytes(from, now);
        pager.region(region).size_bytes.store((now - from - special) as u64, Relaxed);
        self.named[index].special = special;
    }

    /// Notes that there were `before` special bytes, and are `after` now. The change lies in the
    /// same used range as `at`.
    pub fn count_special(&mut self, at: usize, before: usize, after: usize) {
        let Some(pager) = &self.pager else { return };
        let Some(named) = self.named.iter_mut().find(|named| at >= named.from && at < named.end) else {
            return;
        };
        named.special = (named.special + after).saturating_sub(before);
        let Some(end) = self.ranges.end_of(named.from) else { return };
        let size = (end - named.from).saturating_sub(named.special);
        pager.region(named.region).size_bytes.store(size as u64, Relaxed);
    }

    fn add_named(&mut self, from: usize, end: usize) {
        let Some(pager) = &self.pager else { return };
        let free = (FIRST_LARGE..FIRST_LARGE + LARGE_MOST)
            .find(|region| self.named.iter().all(|named| named.region != *region));
        let region = free.or_else(|| {
            let index = (0..self.named.len()).min_by_key(|&at| self.named[at].end - self.named[at].from)?;
            let smallest = &self.named[index];
            if smallest.end - smallest.from >= end - from {
                return None;
            }
            setup::or_fail(pager.end_region(smallest.region));
            Some(self.named.remove(index).region)
        });
        let Some(region) = region else { return };
        let len = (end - from).next_multiple_of(setup::block());
        let name = format!("large at {from:#x}");
        setup::or_fail(pager.name_region(region, from, len, &name));
        let special = self.special_bytes(from, end);
        pager.region(region).size_bytes.store((end - from - special) as u64, Relaxed);
        self.named.push(Named { from, end, region, special });
    }
}
