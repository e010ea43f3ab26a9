//! What the program's memory is called where it is counted by region: static arrays by the object
//! that has them, large ranges of the arena by their address, and the rest of it, the heap.
//!
//! Only ranges so large that to fill them takes long are told to the pager, so that its being told
//! costs nothing beside.

use crate::arena::{self, Arena};
use crate::{process, statics};
use std::sync::atomic::Ordering::Relaxed;
use terapage_stats::REGIONS;

/// Ranges from this size on are counted by themselves.
const LARGE: usize = 32 << 20;
/// So many of them at most, the largest.
const LARGE_MOST: usize = 16;
/// Objects whose static arrays are, the largest.
const STATICS_MOST: usize = 8;

/// Numbers of regions: that of the heap, and the first of the others.
const HEAP: usize = 1;
const STATICS: usize = HEAP + 1;
const FIRST_LARGE: usize = STATICS + STATICS_MOST;
const _: () = assert!(FIRST_LARGE + LARGE_MOST <= REGIONS);

/// The part of a new length by which a range grows before its new blocks are counted with it.
const STEP: usize = 8;

/// A range of the arena that is a region: it begins at a block's edge.
pub struct Named {
    from: usize,
    /// As the pager knows it.
    end: usize,
    region: usize,
    /// Bytes in it that the program may not touch, or that are not plain memory.
    odd: usize,
}

impl Arena {
    /// Names what there is when paging starts.
    pub fn name_regions(&mut self) {
        let Some(pager) = &self.pager else { return };
        let mut objects: Vec<_> = statics::named_ranges().collect();
        objects.sort_by_key(|&(_, len, _)| std::cmp::Reverse(len));
        for (index, (start, len, object)) in objects.into_iter().take(STATICS_MOST).enumerate() {
            let name = format!("static arrays of {object}");
            process::or_fail(pager.name_region(STATICS + index, start, len, &name));
        }
        let (from, len) = arena::whole();
        process::or_fail(pager.name_region(HEAP, from, len, "heap"));
        let used: Vec<_> = self.ranges.used().collect();
        for (at, to) in used {
            self.count_by_region(at, to);
        }
    }

    /// Says what is in use: of all, and of the heap.
    pub fn count_in_use(&self) {
        let Some(pager) = &self.pager else { return };
        let all = self.in_use();
        pager.counters().region_bytes.store(all as u64, Relaxed);
        let large: usize = self
            .named
            .iter()
            .filter_map(|named| {
                Some((self.ranges.end_of(named.from)? - named.from).saturating_sub(named.odd))
            })
            .sum();
        let heap = all.saturating_sub(self.static_bytes() + large);
        pager.region(HEAP).size_bytes.store(heap as u64, Relaxed);
    }

    /// Pages from `at` to `to` have been given out or back.
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
            && at.is_multiple_of(process::block())
            && self.named.iter().all(|named| named.from != at)
        {
            self.add_named(at, end);
        }
        self.count_in_use();
    }

    /// A range that has a name may have another end, or be no more.
    fn look_again(&mut self, index: usize) {
        let Some(pager) = &self.pager else { return };
        let Named { from, end, region, .. } = self.named[index];
        let Some(now) = self.ranges.end_of(from).filter(|&now| now - from >= LARGE) else {
            process::or_fail(pager.end_region(region));
            self.named.remove(index);
            return;
        };
        if now < end || now - end > (now - from) / STEP {
            let len = (now - from).next_multiple_of(process::block());
            process::or_fail(pager.resize_region(region, from, len));
            self.named[index].end = now;
        }
        let odd = self.odd_bytes(from, now);
        pager.region(region).size_bytes.store((now - from - odd) as u64, Relaxed);
        self.named[index].odd = odd;
    }

    /// There were `before` odd bytes, and are `after` now; those that came or went lie in the same
    /// range in use as `at`.
    pub fn count_odd(&mut self, at: usize, before: usize, after: usize) {
        let Some(pager) = &self.pager else { return };
        let Some(named) = self.named.iter_mut().find(|named| at >= named.from && at < named.end) else {
            return;
        };
        named.odd = (named.odd + after).saturating_sub(before);
        let Some(end) = self.ranges.end_of(named.from) else { return };
        let size = (end - named.from).saturating_sub(named.odd);
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
            process::or_fail(pager.end_region(smallest.region));
            Some(self.named.remove(index).region)
        });
        let Some(region) = region else { return };
        let len = (end - from).next_multiple_of(process::block());
        let name = format!("large at {from:#x}");
        process::or_fail(pager.name_region(region, from, len, &name));
        let odd = self.odd_bytes(from, end);
        pager.region(region).size_bytes.store((end - from - odd) as u64, Relaxed);
        self.named.push(Named { from, end, region, odd });
    }
}
