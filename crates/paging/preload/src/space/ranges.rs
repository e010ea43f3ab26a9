//! The used addresses of the arena. This file makes no system calls, so it can be tested alone.

use std::collections::BTreeMap;

/// Bytes at both ends of the wide part that are never handed out, so that no range lies in both
/// parts, or at the arena's end.
pub const MARGIN: usize = 2 << 20;

/// Ranges of the arena. Space is handed out in whole blocks, and can be returned by the page. The
/// arena has two parts: the wide part, of which the program opens little, begins at `end`.
pub struct Ranges {
    /// The end of the first part.
    end: usize,
    block: usize,
    /// In the first part, no address from here on was ever handed out.
    fresh: usize,
    /// In the wide part, no address from here on was ever handed out.
    wide_fresh: usize,
    /// The end of the wide part.
    wide_end: usize,
    /// Ranges in use: the end of each, by its start; page-aligned and disjoint.
    used: BTreeMap<usize, usize>,
    /// Ranges that are not in use and all zero; block-aligned and disjoint.
    clean: BTreeMap<usize, usize>,
    /// Ranges that are not in use and may have old bytes.
    dirty: BTreeMap<usize, usize>,
    /// Ranges that are not in use, have old bytes, and will be discarded soon, many at once.
    waiting: BTreeMap<usize, usize>,
    /// Ranges of the wide part that were returned.
    wide: BTreeMap<usize, usize>,
    /// Bytes in use.
    pub used_bytes: usize,
    /// Bytes of the blocks that contain them.
    pub block_bytes: usize,
    /// Bytes of `dirty`.
    pub dirty_bytes: usize,
}

fn insert_merged(map: &mut BTreeMap<usize, usize>, mut from: usize, mut to: usize) {
    if let Some((&before, &end)) = map.range(..from).next_back()
        && end == from
    {
        map.remove(&before);
        from = before;
    }
    if let Some(end) = map.remove(&to) {
        to = end;
    }
    map.insert(from, to);
}

fn first_fit(map: &mut BTreeMap<usize, usize>, len: usize, align: usize) -> Option<usize> {
    let place = |(&from, &to): (&usize, &usize)| {
        let at = from.checked_next_multiple_of(align)?;
        (at <= to && to - at >= len).then_some((from, to, at))
    };
    let (from, to, at) = map.iter().find_map(place)?;
    map.remove(&from);
    if from < at {
        map.insert(from, at);
    }
    if at + len < to {
        map.insert(at + len, to);
    }
    Some(at)
}

impl Ranges {
    pub const fn empty() -> Self {
        Ranges {
            end: 0,
            block: 1,
            fresh: 0,
            wide_fresh: 0,
            wide_end: 0,
            used: BTreeMap::new(),
            clean: BTreeMap::new(),
            dirty: BTreeMap::new(),
            waiting: BTreeMap::new(),
            wide: BTreeMap::new(),
            used_bytes: 0,
            block_bytes: 0,
            dirty_bytes: 0,
        }
    }

    /// Ranges of an arena from `start` to `end`, with a wide part to `wide_end`.
    pub fn new(start: usize, end: usize, wide_end: usize, block: usize) -> Self {
        let (wide_fresh, wide_end) = (end + MARGIN, wide_end.saturating_sub(MARGIN));
        Ranges { end, block, fresh: start, wide_fresh, wide_end, ..Self::empty() }
    }

    /// The end of the addresses that were ever handed out in the first part.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Takes `len` bytes, with the rest of the last block, at a multiple of `align`. If `zero`, the
    /// bytes are zero; otherwise they may be old.
    pub fn take(&mut self, len: usize, align: usize, zero: bool) -> Option<usize> {
        let whole = len.checked_next_multiple_of(self.block)?;
        let align = align.max(self.block);
        let mut at = None;
        if !zero {
            at = first_fit(&mut self.dirty, whole, align);
            if at.is_some() {
                self.dirty_bytes -= whole;
            } else {
                at = first_fit(&mut self.waiting, whole, align);
            }
        }
        let at = match at.or_else(|| first_fit(&mut self.clean, whole, align)) {
            Some(at) => at,
            None => {
                let at = self.fresh.next_multiple_of(align);
                let to = at.checked_add(whole).filter(|&to| to <= self.end)?;
                if self.fresh < at {
                    insert_merged(&mut self.clean, self.fresh, at);
                }
                self.fresh = to;
                at
            }
        };
        self.used.insert(at, at + len);
        self.used_bytes += len;
        self.block_bytes += whole;
        Some(at)
    }

    /// Takes `len` bytes of the wide part, with the rest of the last block.
    pub fn take_wide(&mut self, len: usize) -> Option<usize> {
        let whole = len.checked_next_multiple_of(self.block)?;
        let at = match first_fit(&mut self.wide, whole, self.block) {
            Some(at) => at,
            None => {
                let at = self.wide_fresh;
                self.wide_fresh = at.checked_add(whole).filter(|&to| to <= self.wide_end)?;
                at
            }
        };
        self.used.insert(at, at + len);
        self.used_bytes += len;
        self.block_bytes += whole;
        Some(at)
    }

    /// Bytes of the wide part that are in use.
    pub fn wide_bytes(&self) -> usize {
        self.used.range(self.end..).map(|(from, to)| to - from).sum()
    }

    /// Whether a fixed mapping may take a range, which must not lie in both parts.
    pub fn may_take(&self, at: usize, to: usize) -> bool {
        at < self.end && to <= self.end || at >= self.end + MARGIN && to <= self.wide_end
    }

    /// The pages from `at` to `to` that are not in use.
    pub fn unused(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut next = at;
        let before = self.used.range(..=at).next_back().map_or(at, |(&from, _)| from);
        for (&from, &end) in self.used.range(before..to) {
            if next < from {
                gaps.push((next, from));
            }
            next = next.max(end);
        }
        if next < to {
            gaps.push((next, to));
        }
        gaps
    }

    /// Takes exactly the pages from `at` to `to`, in use or not, as a fixed mapping does.
    pub fn take_exactly(&mut self, at: usize, to: usize) {
        let mut taken = 0;
        self.give(at, to, |from, end| taken += end - from);
        let (first, last) = (at / self.block * self.block, to.next_multiple_of(self.block));
        let (fresh, clean) = if first >= self.end {
            (&mut self.wide_fresh, &mut self.wide)
        } else {
            (&mut self.fresh, &mut self.clean)
        };
        if last > *fresh {
            insert_merged(clean, *fresh, last);
            *fresh = last;
        }
        for map in [&mut self.clean, &mut self.dirty, &mut self.waiting, &mut self.wide] {
            let touching: Vec<_> =
                map.range(..last).map(|(&from, &to)| (from, to)).filter(|&(_, end)| end > first).collect();
            for (from, end) in touching {
                map.remove(&from);
                taken += end.min(last) - from.max(first);
                if from < first {
                    map.insert(from, first);
                }
                if end > last {
                    map.insert(last, end);
                }
            }
        }
        self.dirty_bytes = self.dirty.iter().map(|(from, to)| to - from).sum();
        self.used.insert(at, to);
        self.used_bytes += to - at;
        self.block_bytes += taken;
    }

    /// Lengthens the range that begins at `at` to `len` bytes, if nothing is in the way. The new
    /// bytes are zero, except in the block in which the range ended.
    pub fn extend(&mut self, at: usize, len: usize) -> bool {
        let Some(&to) = self.used.get(&at) else { return false };
        // A fixed mapping may have taken the rest of its last block.
        if self.used.range(to..).next().is_some_and(|(&next, _)| next < at + len) {
            return false;
        }
        let (edge, wanted) = (to.next_multiple_of(self.block), (at + len).next_multiple_of(self.block));
        if wanted > edge {
            if edge == self.fresh && wanted <= self.end {
                self.fresh = wanted;
            } else if let Some(&end) = self.clean.get(&edge).filter(|&&end| end >= wanted) {
                self.clean.remove(&edge);
                if end > wanted {
                    self.clean.insert(wanted, end);
                }
            } else {
                return false;
            }
        }
        self.used.insert(at, at + len);
        self.used_bytes += at + len - to;
        self.block_bytes += wanted - edge;
        true
    }

    /// The ranges in use.
    pub fn used(&self) -> impl Iterator<Item = (usize, usize)> {
        self.used.iter().map(|(&from, &to)| (from, to))
    }

    /// The end of the range that begins at `at`.
    pub fn end_of(&self, at: usize) -> Option<usize> {
        self.used.get(&at).copied()
    }

    /// The range in use that contains an address.
    pub fn around(&self, at: usize) -> Option<(usize, usize)> {
        self.used.range(..=at).next_back().map(|(&from, &to)| (from, to)).filter(|&(_, to)| to > at)
    }

    /// Whether any page from `at` to `to` is in use.
    pub fn is_used(&self, at: usize, to: usize) -> bool {
        self.used.range(..to).next_back().is_some_and(|(_, &end)| end > at)
    }

    /// Returns the pages from `at` to `to` that were in use. `freed` is called with each range of
    /// blocks that is no longer in use; these are in no list until [`put`](Self::put).
    pub fn give(&mut self, at: usize, to: usize, mut freed: impl FnMut(usize, usize)) {
        if at >= to {
            return;
        }
        let touching: Vec<_> = self
            .used
            .range(..to)
            .rev()
            .map(|(&from, &end)| (from, end))
            .take_while(|&(_, end)| end > at)
            .collect();
        for (from, end) in touching {
            self.used.remove(&from);
            if from < at {
                self.used.insert(from, at);
            }
            if end > to {
                self.used.insert(to, end);
            }
            let (cut_from, cut_to) = (from.max(at), end.min(to));
            self.used_bytes -= cut_to - cut_from;
            // A block is free if no part of it is in use.
            let mut first = cut_from / self.block * self.block;
            let mut last = cut_to.next_multiple_of(self.block);
            let before = self.used.range(..cut_from).next_back().map_or(0, |(_, &end)| end);
            let after = self.used.range(cut_to..).next().map_or(usize::MAX, |(&from, _)| from);
            if before > first {
                first += self.block;
            }
            if after < last {
                last -= self.block;
            }
            if first < last {
                self.block_bytes -= last - first;
                freed(first, last);
            }
        }
    }

    /// Allows freed blocks to be handed out again. `zero` says whether they were discarded.
    pub fn put(&mut self, from: usize, to: usize, zero: bool) {
        if from >= self.end {
            insert_merged(&mut self.wide, from, to);
        } else if zero {
            insert_merged(&mut self.clean, from, to);
        } else {
            insert_merged(&mut self.dirty, from, to);
            self.dirty_bytes += to - from;
        }
    }

    /// Notes freed blocks of the first part that the caller discards later, many at once.
    pub fn put_waiting(&mut self, from: usize, to: usize) {
        insert_merged(&mut self.waiting, from, to);
    }

    /// The number of ranges that wait to be discarded, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting.iter().map(|(from, to)| to - from).sum())
    }

    /// Whether the block at an address waits to be discarded.
    pub fn is_waiting(&self, at: usize) -> bool {
        self.waiting.range(..=at).next_back().is_some_and(|(_, &to)| to > at)
    }

    /// Takes all waiting ranges, which the caller discards and [`put`](Self::put)s again.
    pub fn take_waiting(&mut self) -> BTreeMap<usize, usize> {
        std::mem::take(&mut self.waiting)
    }

    /// Takes all free ranges with old bytes, which the caller discards and [`put`](Self::put)s
    /// again.
    pub fn take_dirty(&mut self) -> BTreeMap<usize, usize> {
        self.dirty_bytes = 0;
        std::mem::take(&mut self.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use proptest::prelude::*;

    const K: usize = 1024;

    proptest! {
        #[test]
        fn it_counts_as_pages_one_by_one_do(
            calls in prop::collection::vec((0..5, 0usize..200, 1usize..40, any::<bool>()), 1..80),
        ) {
            let (page, start, block) = (4 * K, 0x10_0000, 16 * K);
            let mut ranges = Ranges::new(start, 0x90_0000, 0x90_0000, block);
            let mut used = std::collections::BTreeSet::new();
            for (call, place, pages, zero) in calls {
                let (at, len) = (start + place * page, pages * page);
                let given = match call {
                    0 | 1 => ranges.take(len, 1, zero).map(|at| at..at + len),
                    2 => {
                        ranges.take_exactly(at, at + len);
                        used.retain(|used| !(at..at + len).contains(used));
                        Some(at..at + len)
                    }
                    3 => {
                        let (from, to) = ranges.used().nth(place % 8).unwrap_or_default();
                        ranges.extend(from, to - from + len).then_some(to..to + len)
                    }
                    _ => {
                        for (from, to) in freed(&mut ranges, at, at + len) {
                            match place % 3 {
                                0 => ranges.put_waiting(from, to),
                                _ => ranges.put(from, to, zero),
                            }
                        }
                        if pages % 8 == 0 {
                            for (from, to) in ranges.take_waiting() {
                                ranges.put(from, to, true);
                            }
                        }
                        used.retain(|used| !(at..at + len).contains(used));
                        None
                    }
                };
                for page in given.unwrap_or_default().step_by(page) {
                    prop_assert!(used.insert(page));
                }
                let blocks: std::collections::BTreeSet<_> = used.iter().map(|page| page / block).collect();
                prop_assert_eq!((ranges.used_bytes, ranges.block_bytes), (used.len() * page, blocks.len() * block));
            }
        }
    }

    fn freed(ranges: &mut Ranges, at: usize, to: usize) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        ranges.give(at, to, |from, to| all.push((from, to)));
        all
    }

    #[test]
    fn a_block_is_free_when_its_last_page_is() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let at = ranges.take(40 * K, 1, true).unwrap();
        assert_eq!(at, 0x10_0000);
        assert_eq!(freed(&mut ranges, at, at + 4 * K), []);
        assert_eq!(freed(&mut ranges, at + 8 * K, at + 36 * K), [(at + 16 * K, at + 32 * K)]);
        assert_eq!((ranges.used_bytes, ranges.block_bytes), (8 * K, 32 * K));
        assert_eq!(
            freed(&mut ranges, at, at + 40 * K),
            [(at, at + 16 * K), (at + 32 * K, at + 48 * K)].into_iter().rev().collect::<Vec<_>>()
        );
        assert_eq!((ranges.used_bytes, ranges.block_bytes), (0, 0));
        ranges.put(at, at + 48 * K, true);
        ranges.take_exactly(at + 12 * K, at + 20 * K);
        ranges.take_exactly(at + 8 * K, at + 24 * K);
        assert_eq!((ranges.used_bytes, ranges.block_bytes), (16 * K, 32 * K));
    }

    #[test]
    fn zero_is_never_old() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let at = ranges.take(64 * K, 1, true).unwrap();
        let [(from, to)] = freed(&mut ranges, at, at + 64 * K)[..] else { panic!() };
        ranges.put(from, to, false);
        assert_ne!(ranges.take(64 * K, 1, true), Some(at));
        assert_eq!(ranges.take(64 * K, 1, false), Some(at));
    }

    #[test]
    fn what_waits_to_be_discarded_is_old_and_not_twice_there() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let at = ranges.take(64 * K, 1, true).unwrap();
        let [(from, to)] = freed(&mut ranges, at, at + 64 * K)[..] else { panic!() };
        ranges.put_waiting(from, to);
        assert_eq!(ranges.waiting(), (1, 64 * K));
        assert!(ranges.is_waiting(at) && ranges.is_waiting(to - 1) && !ranges.is_waiting(to));
        assert_ne!(ranges.take(16 * K, 1, true), Some(at));
        assert_eq!(ranges.take(16 * K, 1, false), Some(at));
        ranges.take_exactly(at + 32 * K, at + 36 * K);
        let waiting: Vec<_> = ranges.take_waiting().into_iter().collect();
        assert_eq!(waiting, [(at + 16 * K, at + 32 * K), (at + 48 * K, at + 64 * K)]);
        assert_eq!(ranges.waiting(), (0, 0));
    }

    #[test]
    fn a_range_grows_into_what_is_free() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let first = ranges.take(16 * K, 1, true).unwrap();
        let second = ranges.take(16 * K, 1, true).unwrap();
        assert!(!ranges.extend(first, 32 * K));
        assert!(ranges.extend(second, 100 * K));
        let [(from, to)] = freed(&mut ranges, second, second + 100 * K)[..] else { panic!() };
        ranges.put(from, to, true);
        assert!(ranges.extend(first, 32 * K));
        assert_eq!(ranges.used_bytes, 32 * K);
    }

    #[test]
    fn a_range_does_not_grow_over_what_uses_the_rest_of_its_block() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let at = ranges.take(16 * K, 1, true).unwrap();
        assert_eq!(freed(&mut ranges, at + 4 * K, at + 16 * K), []);
        ranges.take_exactly(at + 8 * K, at + 12 * K);
        assert!(!ranges.extend(at, 12 * K));
        assert!(!ranges.extend(at, 32 * K));
        assert!(ranges.extend(at, 8 * K));
        assert_eq!(ranges.used_bytes, 12 * K);
    }

    #[test]
    fn a_fixed_range_takes_what_was_there() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 0x90_0000, 16 * K);
        let at = ranges.take(64 * K, 1, true).unwrap();
        ranges.take_exactly(at + 20 * K, at + 24 * K);
        ranges.take_exactly(at + 256 * K, at + 260 * K);
        assert_eq!(ranges.used_bytes, 68 * K);
        let next = ranges.take(300 * K, 1, true).unwrap();
        assert!(next >= at + 272 * K);
        assert_eq!(ranges.take(190 * K, 1, true), Some(at + 64 * K));
    }

    #[test]
    fn the_wide_part_is_apart() {
        let (end, wide_end) = (0x90_0000, 0x4000_0000);
        let mut ranges = Ranges::new(0x10_0000, end, wide_end, 16 * K);
        let at = ranges.take_wide(36 * K).unwrap();
        assert_eq!(at, end + super::MARGIN);
        let next = ranges.take_wide(16 * K).unwrap();
        assert_eq!(next, at + 48 * K);
        assert_eq!(ranges.take(16 * K, 1, true), Some(0x10_0000));
        let freed = freed(&mut ranges, at, at + 36 * K);
        assert_eq!(freed, [(at, at + 48 * K)]);
        assert_eq!((ranges.wide_bytes(), ranges.used_bytes), (16 * K, 32 * K));
        ranges.put(at, at + 48 * K, true);
        // Returned space serves only wide ranges, and space that was taken exactly is not handed
        // out again.
        assert_eq!(ranges.take(16 * K, 1, true), Some(0x10_4000));
        ranges.take_exactly(at + 4 * K, at + 8 * K);
        assert_eq!(ranges.unused(at, next), [(at, at + 4 * K), (at + 8 * K, next)]);
        assert_eq!(ranges.take_wide(32 * K), Some(at + 16 * K));
        ranges.take_exactly(next + 64 * K, next + 80 * K);
        assert_eq!(ranges.take_wide(64 * K), Some(next + 80 * K));
        assert_eq!(ranges.take_wide(48 * K), Some(next + 16 * K));
        assert_eq!(ranges.take_wide(wide_end), None);
        assert!(ranges.may_take(at, next) && ranges.may_take(0x10_0000, end));
        assert!(!ranges.may_take(end - 4 * K, at) && !ranges.may_take(end, end + 4 * K));
        assert!(!ranges.may_take(next, wide_end));
    }
}
