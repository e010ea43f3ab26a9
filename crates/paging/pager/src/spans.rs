//! Sets of addresses, or of block numbers, as separate ranges.

use std::collections::BTreeMap;

/// A set of addresses.
#[derive(Debug, Default)]
pub struct Spans {
    /// The end of each range, by its start.
    ranges: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Spans {
    /// An empty set.
    pub const fn new() -> Self {
        Spans { ranges: BTreeMap::new(), bytes: 0 }
    }

    /// The ranges of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.ranges.iter().map(|(&from, &to)| (from, to))
    }

    /// Whether any address from `from` to `to` is in the set.
    pub fn meets(&self, from: usize, to: usize) -> bool {
        from < to && self.ranges.range(..to).next_back().is_some_and(|(_, &end)| end > from)
    }

    /// The parts of `from` to `to` that are in the set; none of them is empty.
    pub fn within(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        if from >= to {
            return Vec::new();
        }
        let before = self.ranges.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let parts = self.ranges.range(before..to).filter(|&(_, &end)| end > from);
        parts.map(|(&start, &end)| (start.max(from), end.min(to))).collect()
    }

    /// The parts of `from` to `to` that are not in the set.
    pub fn without(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut at = from;
        for (start, end) in self.within(from, to) {
            if at < start {
                gaps.push((at, start));
            }
            at = end;
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }

    /// Takes `from` to `to` out of the set.
    pub fn remove(&mut self, from: usize, to: usize) {
        let before = self.ranges.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let met: Vec<_> = self.ranges.range(before..to).map(|(&start, &end)| (start, end)).collect();
        for (start, end) in met {
            if end <= from {
                continue;
            }
            self.ranges.remove(&start);
            self.bytes -= end.min(to) - start.max(from);
            if start < from {
                self.ranges.insert(start, from);
            }
            if end > to {
                self.ranges.insert(to, end);
            }
        }
    }

    /// Puts `from` to `to` into the set.
    pub fn insert(&mut self, mut from: usize, mut to: usize) {
        if from >= to {
            return;
        }
        self.remove(from, to);
        self.bytes += to - from;
        if let Some((&start, &end)) = self.ranges.range(..from).next_back()
            && end == from
        {
            self.ranges.remove(&start);
            from = start;
        }
        if let Some(end) = self.ranges.remove(&to) {
            to = end;
        }
        self.ranges.insert(from, to);
    }

    /// The number of addresses in the set: bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Spans;

    #[test]
    fn spans_are_a_set_of_addresses() {
        // Compared with a plain array, through a fixed sequence that meets every case.
        let mut spans = Spans::new();
        let mut model = [false; 64];
        let mut state = 1usize;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (from, len, on) = (state >> 33 & 63, (state >> 40 & 15) + 1, state >> 50 & 1 == 1);
            let to = (from + len).min(64);
            if on {
                spans.insert(from, to)
            } else {
                spans.remove(from, to)
            }
            model[from..to].fill(on);
            let (low, high) = (state >> 20 & 31, 32 + (state >> 26 & 31));
            assert_eq!(spans.meets(low, high), model[low..high].contains(&true));
            assert!(!spans.meets(low, low) && spans.within(low, low).is_empty());
            let marked = |parts: Vec<(usize, usize)>| {
                let mut all = [false; 64];
                parts.iter().for_each(|&(from, to)| all[from..to].fill(true));
                all
            };
            let (inside, outside) = (marked(spans.within(low, high)), marked(spans.without(low, high)));
            for at in low..high {
                assert_eq!((inside[at], outside[at]), (model[at], !model[at]));
            }
            assert_eq!(spans.bytes(), model.iter().filter(|&&on| on).count());
            assert!(spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.1 < b.0));
        }
    }
}
