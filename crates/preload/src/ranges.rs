//! Which addresses of the arena are in use: no system calls, so that it can be tested by itself.

use std::collections::BTreeMap;

/// Ranges of the arena. Space is given out in whole blocks; it can come back by the page.
pub struct Ranges {
    end: usize,
    block: usize,
    /// No address from here on was ever given out.
    fresh: usize,
    /// Given out: from, to; page-aligned, apart.
    used: BTreeMap<usize, usize>,
    /// Not in use and all zero: from, to; block-aligned, apart.
    clean: BTreeMap<usize, usize>,
    /// Not in use, with old bytes.
    dirty: BTreeMap<usize, usize>,
    /// Bytes given out.
    pub used_bytes: usize,
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
    let (&from, &to) = map.iter().find(|&(&from, &to)| from.next_multiple_of(align) + len <= to)?;
    let at = from.next_multiple_of(align);
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
            used: BTreeMap::new(),
            clean: BTreeMap::new(),
            dirty: BTreeMap::new(),
            used_bytes: 0,
            dirty_bytes: 0,
        }
    }

    pub fn new(start: usize, end: usize, block: usize) -> Self {
        Ranges { end, block, fresh: start, ..Self::empty() }
    }

    /// The end of all that was ever given out.
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Takes `len` bytes, the rest of the last block too, at a multiple of `align`. With
    /// `zero` they have never been written; else they may hold old bytes.
    pub fn take(&mut self, len: usize, align: usize, zero: bool) -> Option<usize> {
        let whole = len.checked_next_multiple_of(self.block)?;
        let align = align.max(self.block);
        let mut at = None;
        if !zero {
            at = first_fit(&mut self.dirty, whole, align);
            if at.is_some() {
                self.dirty_bytes -= whole;
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
        Some(at)
    }

    /// Takes exactly the pages from `at` to `to`, whatever was there, as a fixed mapping does.
    pub fn take_exactly(&mut self, at: usize, to: usize) {
        self.give(at, to, |_, _| {});
        let (first, last) = (at / self.block * self.block, to.next_multiple_of(self.block));
        if last > self.fresh {
            let fresh = self.fresh;
            if fresh < last {
                insert_merged(&mut self.clean, fresh, last);
            }
            self.fresh = last;
        }
        for map in [&mut self.clean, &mut self.dirty] {
            let touching: Vec<_> =
                map.range(..last).map(|(&from, &to)| (from, to)).filter(|&(_, end)| end > first).collect();
            for (from, end) in touching {
                map.remove(&from);
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
    }

    /// Lengthens the range that begins at `at` to `len` bytes, if nothing is in its way. The
    /// new bytes are zero.
    pub fn extend(&mut self, at: usize, len: usize) -> bool {
        let Some(&to) = self.used.get(&at) else { return false };
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

    /// The range in use that an address lies in.
    pub fn around(&self, at: usize) -> Option<(usize, usize)> {
        self.used.range(..=at).next_back().map(|(&from, &to)| (from, to)).filter(|&(_, to)| to > at)
    }

    /// Whether any page from `at` to `to` is in use.
    pub fn is_used(&self, at: usize, to: usize) -> bool {
        self.used.range(..to).next_back().is_some_and(|(_, &end)| end > at)
    }

    /// Gives the pages from `at` to `to` back, those that were in use. `freed` hears of each range of blocks that
    /// nobody uses any more; they are in neither list until [`put`](Self::put).
    pub fn give(&mut self, at: usize, to: usize, mut freed: impl FnMut(usize, usize)) {
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
            // A block is free when no part of it is in use.
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
                freed(first, last);
            }
        }
    }

    /// Blocks that were freed may be given out again; `zero` says whether they have been discarded.
    pub fn put(&mut self, from: usize, to: usize, zero: bool) {
        if zero {
            insert_merged(&mut self.clean, from, to);
        } else {
            insert_merged(&mut self.dirty, from, to);
            self.dirty_bytes += to - from;
        }
    }

    /// Takes all that is free with old bytes, to be discarded and [`put`](Self::put) again.
    pub fn take_dirty(&mut self) -> BTreeMap<usize, usize> {
        self.dirty_bytes = 0;
        std::mem::take(&mut self.dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    const K: usize = 1024;

    fn freed(ranges: &mut Ranges, at: usize, to: usize) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        ranges.give(at, to, |from, to| all.push((from, to)));
        all
    }

    #[test]
    fn a_block_is_free_when_its_last_page_is() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 16 * K);
        let at = ranges.take(40 * K, 1, true).unwrap();
        assert_eq!(at, 0x10_0000);
        assert_eq!(freed(&mut ranges, at, at + 4 * K), []);
        assert_eq!(freed(&mut ranges, at + 8 * K, at + 36 * K), [(at + 16 * K, at + 32 * K)]);
        assert_eq!(
            freed(&mut ranges, at, at + 40 * K),
            [(at, at + 16 * K), (at + 32 * K, at + 48 * K)].into_iter().rev().collect::<Vec<_>>()
        );
        assert_eq!(ranges.used_bytes, 0);
    }

    #[test]
    fn zero_is_never_old() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 16 * K);
        let at = ranges.take(64 * K, 1, true).unwrap();
        let [(from, to)] = freed(&mut ranges, at, at + 64 * K)[..] else { panic!() };
        ranges.put(from, to, false);
        assert_ne!(ranges.take(64 * K, 1, true), Some(at));
        assert_eq!(ranges.take(64 * K, 1, false), Some(at));
    }

    #[test]
    fn a_range_grows_into_what_is_free() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 16 * K);
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
    fn a_fixed_range_takes_what_was_there() {
        let mut ranges = Ranges::new(0x10_0000, 0x90_0000, 16 * K);
        let at = ranges.take(64 * K, 1, true).unwrap();
        ranges.take_exactly(at + 20 * K, at + 24 * K);
        ranges.take_exactly(at + 256 * K, at + 260 * K);
        assert_eq!(ranges.used_bytes, 68 * K);
        let next = ranges.take(300 * K, 1, true).unwrap();
        assert!(next >= at + 272 * K);
        assert_eq!(ranges.take(190 * K, 1, true), Some(at + 64 * K));
    }
}
