//! The small slots of a store, in chains: which are free, and which is behind which.

use std::ops::Range;

/// No unit: the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;

/// The number of extents with enough free units that are searched for a long enough run.
const LOOK: usize = 256;

/// Units.
pub(crate) struct Units {
    per_extent: u32,
    total: u32,
    /// A bit for each unit: set if it is free.
    free: Vec<u64>,
    free_count: u32,
    /// In each extent.
    free_in: Vec<u32>,
    /// For each unit in use, the next unit of its chain.
    next: Vec<u32>,
    /// The place at which the search continues.
    cursor: u32,
}

impl Units {
    /// No units yet, with `per_extent` to an extent.
    pub fn new(per_extent: u32) -> Units {
        Units {
            per_extent,
            total: 0,
            free: Vec::new(),
            free_count: 0,
            free_in: Vec::new(),
            next: Vec::new(),
            cursor: 0,
        }
    }

    /// Sets the number of units: whole extents, in all.
    pub fn grown(&mut self, total: u32) {
        let from = self.total;
        self.total = total;
        self.free.resize((total as usize).div_ceil(64), 0);
        self.free_in.resize((total / self.per_extent) as usize, 0);
        self.next.resize(total as usize, NONE);
        if total > from {
            self.free(from..total);
            // New units lie together.
            self.cursor = from;
        }
    }

    /// The number of free units.
    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Those in use.
    pub fn used(&self) -> u32 {
        self.total - self.free_count
    }

    fn is_free(&self, unit: u32) -> bool {
        self.free[unit as usize / 64] >> (unit % 64) & 1 != 0
    }

    fn set(&mut self, units: &Range<u32>, free: bool) {
        for unit in units.clone() {
            debug_assert_ne!(self.is_free(unit), free, "unit {unit}");
            self.free[unit as usize / 64] ^= 1 << (unit % 64);
            let of_extent = &mut self.free_in[(unit / self.per_extent) as usize];
            if free { *of_extent += 1 } else { *of_extent -= 1 }
        }
        let count = units.end - units.start;
        self.free_count = if free { self.free_count + count } else { self.free_count - count };
    }

    /// Takes up to `wanted` units that lie together in one extent, but at least `least`. `None` if
    /// the search finds none.
    pub fn take(&mut self, wanted: u32, least: u32) -> Option<Range<u32>> {
        let extents = self.free_in.len();
        if self.free_count < least || extents == 0 {
            return None;
        }
        let first = (self.cursor / self.per_extent) as usize;
        let mut looked = 0;
        // The first extent is searched once more at the end, from its beginning.
        for step in 0..=extents {
            let extent = (first + step) % extents;
            if self.free_in[extent] < least {
                continue;
            }
            looked += 1;
            if looked > LOOK && least > 1 {
                return None;
            }
            let begin = extent as u32 * self.per_extent;
            let from = if step == 0 { self.cursor.max(begin) } else { begin };
            if let Some(run) = self.find(from..begin + self.per_extent, wanted, least) {
                self.set(&run, false);
                self.cursor = run.end % self.total;
                return Some(run);
            }
        }
        None
    }

    fn find(&self, within: Range<u32>, wanted: u32, least: u32) -> Option<Range<u32>> {
        let mut at = within.start;
        while at < within.end {
            if at.is_multiple_of(64) && self.free[at as usize / 64] == 0 {
                at += 64;
            } else if !self.is_free(at) {
                at += 1;
            } else {
                let most = within.end.min(at.saturating_add(wanted));
                let end = (at..most).find(|&unit| !self.is_free(unit)).unwrap_or(most);
                if end - at >= least {
                    return Some(at..end);
                }
                at = end;
            }
        }
        None
    }

    /// Gives some back.
    pub fn free(&mut self, units: Range<u32>) {
        self.set(&units, true);
    }

    /// Makes a chain of units, and returns its first.
    pub fn join(&mut self, units: impl Iterator<Item = u32>) -> u32 {
        let (mut first, mut last) = (NONE, NONE);
        for unit in units {
            match last {
                NONE => first = unit,
                last => self.next[last as usize] = unit,
            }
            self.next[unit as usize] = NONE;
            last = unit;
        }
        first
    }

    /// Ends a chain after this number of units. Returns the first unit of the rest.
    pub fn cut(&mut self, first: u32, count: u32) -> u32 {
        let last = (1..count).fold(first, |unit, _| self.next[unit as usize]);
        std::mem::replace(&mut self.next[last as usize], NONE)
    }

    /// Adds a chain's units to some runs; returns their number. A run ends where its extent does.
    pub fn chain(&self, first: u32, runs: &mut Vec<Range<u32>>) -> u32 {
        let (mut unit, mut count) = (first, 0);
        while unit != NONE {
            match runs.last_mut() {
                Some(run) if run.end == unit && !unit.is_multiple_of(self.per_extent) => run.end += 1,
                _ => runs.push(unit..unit + 1),
            }
            count += 1;
            unit = self.next[unit as usize];
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_together_within_an_extent() {
        let mut units = Units::new(8);
        assert_eq!(units.take(1, 1), None);
        units.grown(16);
        assert_eq!(units.take(5, 5), Some(0..5));
        assert_eq!(units.take(5, 5), Some(8..13), "three are left in the first extent");
        assert_eq!(units.take(5, 1), Some(13..16));
        assert_eq!(units.take(5, 1), Some(5..8), "from the beginning again");
        assert_eq!((units.take(1, 1), units.free_count(), units.used()), (None, 0, 16));
        units.free(2..4);
        units.free(6..7);
        assert_eq!(units.take(3, 3), None);
        assert_eq!(units.take(3, 2), Some(2..4));
        units.grown(24);
        assert_eq!(units.take(9, 4), Some(16..24), "what is new comes first");
        assert_eq!(units.take(9, 1), Some(6..7));
    }

    #[test]
    fn chains_are_read_in_runs() {
        let mut units = Units::new(8);
        units.grown(16);
        let all = [units.take(8, 8).unwrap(), units.take(8, 8).unwrap()];
        assert_eq!(all, [0..8, 8..16]);
        let first = units.join([6, 7, 8, 3, 4].into_iter());
        let second = units.join([5].into_iter());
        let mut runs = Vec::new();
        assert_eq!((units.chain(first, &mut runs), units.chain(second, &mut runs)), (5, 1));
        assert_eq!(runs, [6..8, 8..9, 3..6]);
        assert_eq!(units.join(std::iter::empty()), NONE);
        assert_eq!(units.cut(first, 2), 8);
        runs.clear();
        assert_eq!((units.chain(first, &mut runs), units.chain(8, &mut runs)), (2, 3));
        assert_eq!(runs, [6..8, 8..9, 3..5]);
    }
}
