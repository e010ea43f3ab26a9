//! Which pager of a process owns which addresses.
//!
//! A range is cut into stripes, which go to the pagers in turn. A stripe is a sixteenth to a
//! thirty-second of what lies before it, and 4 MiB at least (`Tuning::stripe_bytes`).
//! Programs fill a range from its start, so whatever the size of their data is, the upper half of
//! it lies in sixteen stripes, and the mappings stay few: some 320 for 32 TiB.

use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

/// Stripes before the first that is larger, and of each size from then on: 2 to the power of this.
const EACH_BITS: u32 = 4;

/// A part of a range that one pager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of the pager.
    pub owner: usize,
    /// The first address.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

impl Part {
    /// What of a file lies in this part, if `bytes` bytes of it, from `offset` on, lie at `start`:
    /// from where on, and how many bytes.
    pub fn of_file(&self, start: usize, offset: u64, bytes: u64) -> (u64, u64) {
        let before = (self.at - start) as u64;
        (offset + before, bytes.saturating_sub(before).min(self.len as u64))
    }
}

/// The number of the stripe at an offset, and the offset at which it ends. The least stripe has 2
/// to the power of `least` bytes.
fn stripe(offset: usize, least: u32) -> (usize, usize) {
    let first = least + EACH_BITS;
    let power = (usize::BITS - offset.leading_zeros()).saturating_sub(1).max(first);
    if offset >> first == 0 {
        let number = offset >> least;
        return (number, (number + 1) << least);
    }
    let bits = power - EACH_BITS;
    let within = (offset - (1 << power)) >> bits;
    let before = (1 + (power - first) as usize) << EACH_BITS;
    (before + within, (1 << power) + ((within + 1) << bits))
}

/// A range that is paged.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    len: usize,
    /// The owner of its first stripe.
    turn: usize,
}

/// The ranges, the one that came last first. Only more come, so a list that only grows serves
/// threads that look while another adds, and the child of a fork.
struct Node {
    range: Range,
    next: *const Node,
}

/// The ranges of a process, and the number of its pagers.
pub(crate) struct Stripes {
    pagers: usize,
    /// The least stripe has 2 to the power of this many bytes.
    least: u32,
    last: AtomicPtr<Node>,
}

impl Stripes {
    /// The least stripe has `least` bytes, a power of two.
    pub fn new(pagers: usize, least: usize) -> Stripes {
        Stripes { pagers, least: least.trailing_zeros(), last: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn ranges(&self) -> impl Iterator<Item = Range> {
        let mut at = self.last.load(Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: nodes are never freed or changed once they are in the list.
            let node = unsafe { at.as_ref() }?;
            at = node.next;
            Some(node.range)
        })
    }

    /// Notes a range that is paged from now on, and cuts it.
    pub fn add(&self, start: usize, len: usize) -> Vec<Part> {
        // Each range begins with another pager: there may be many small ones.
        let turn = self.ranges().count() % self.pagers;
        let range = Range { start, len, turn };
        let node = Box::into_raw(Box::new(Node { range, next: std::ptr::null() }));
        let mut next = self.last.load(Acquire);
        loop {
            // SAFETY: nobody else knows the node yet.
            unsafe { (*node).next = next };
            match self.last.compare_exchange(next, node, AcqRel, Acquire) {
                Ok(_) => return self.cut_within(range, start, len),
                Err(other) => next = other,
            }
        }
    }

    fn range_at(&self, at: usize) -> Option<Range> {
        self.ranges().find(|range| at.wrapping_sub(range.start) < range.len)
    }

    /// Cuts addresses at the edges of stripes, in order. `None` if they are not in one range.
    pub fn cut(&self, at: usize, len: usize) -> Option<Vec<Part>> {
        let range = self.range_at(at)?;
        let fits = range.len - (at - range.start) >= len;
        fits.then(|| self.cut_within(range, at, len))
    }

    fn cut_within(&self, range: Range, at: usize, len: usize) -> Vec<Part> {
        let (mut from, end) = (at - range.start, at - range.start + len);
        let mut parts: Vec<Part> = Vec::new();
        while from < end {
            let (number, to) = stripe(from, self.least);
            let to = to.min(end);
            parts.push(Part {
                owner: (range.turn + number) % self.pagers,
                at: range.start + from,
                len: to - from,
            });
            from = to;
        }
        parts
    }

    /// The parts of a range that the pager `owner` has, from the one at or behind `at` on.
    pub fn from(&self, owner: usize, at: usize) -> Option<Part> {
        let range = self.range_at(at)?;
        let mut from = at - range.start;
        while from < range.len {
            let (number, to) = stripe(from, self.least);
            let to = to.min(range.len);
            if (range.turn + number) % self.pagers == owner {
                return Some(Part { owner, at: range.start + from, len: to - from });
            }
            from = to;
        }
        None
    }
}

#[cfg(all(test, not(terapage_model)))]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const MIB: usize = 1 << 20;
    const LEAST: usize = 4 * MIB;

    /// The stripe at an offset, counted from the first.
    fn counted(offset: usize) -> (usize, usize) {
        let (mut number, mut from) = (0, 0);
        loop {
            let size = match from {
                small if small < 64 * MIB => 4 * MIB,
                large => (1 << large.ilog2()) / 16,
            };
            if offset < from + size {
                return (number, from + size);
            }
            (number, from) = (number + 1, from + size);
        }
    }

    #[test]
    fn a_part_has_its_own_bytes_of_a_file() {
        let part = |at, len| super::Part { owner: 0, at, len };
        assert_eq!(part(1000, 300).of_file(1000, 70, 1000), (70, 300));
        assert_eq!(part(1300, 300).of_file(1000, 70, 1000), (370, 300));
        // The file ends within a part, and before one.
        assert_eq!(part(1300, 300).of_file(1000, 70, 400), (370, 100));
        assert_eq!(part(1600, 300).of_file(1000, 70, 400), (670, 0));
    }

    #[test]
    fn stripes_are_those_that_are_counted() {
        let seed = rand::rng().random();
        eprintln!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..20_000 {
            let bits = random.random_range(1..46);
            let offset = random.random_range(0..1_usize << bits);
            assert_eq!(stripe(offset, LEAST.ilog2()), counted(offset), "{offset:#x}");
            let (number, end) = stripe(offset, LEAST.ilog2());
            assert_eq!(stripe(end, LEAST.ilog2()), counted(end), "{end:#x}");
            assert_eq!(stripe(end - 1, LEAST.ilog2()), (number, end));
        }
        assert!(stripe(32 << 40, LEAST.ilog2()).0 < 330, "mappings stay few");
    }

    #[test]
    fn cuts_are_whole_and_each_address_has_one_owner() {
        let seed = rand::rng().random();
        eprintln!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for pagers in [1, 2, 3, 4, 8] {
            let stripes = Stripes::new(pagers, LEAST);
            let ranges = [(1 << 30, 5 << 20), (1 << 40, 700 << 20), (1 << 45, 1 << 40), (1 << 20, 4096)];
            for (start, len) in ranges {
                let parts = stripes.add(start, len);
                assert_eq!(parts.iter().map(|part| part.len).sum::<usize>(), len);
            }
            for _ in 0..500 {
                let (start, whole) = ranges[random.random_range(0..ranges.len())];
                let from = random.random_range(0..whole / 4096) * 4096;
                let len = random.random_range(0..=(whole - from) / 4096) * 4096;
                let len = if random.random() { len } else { len.min(9 << 20) / 4096 * 4096 };
                let parts = stripes.cut(start + from, len).unwrap();
                let mut at = start + from;
                for part in &parts {
                    assert_eq!(part.at, at, "parts follow each other");
                    assert!(part.len > 0 && part.owner < pagers);
                    let (number, end) = counted(at - start);
                    assert!(at - start + part.len <= end, "a part is in one stripe");
                    let turn = ranges.iter().position(|range| range.0 == start).unwrap();
                    assert_eq!(part.owner, (turn + number) % pagers);
                    let probe = at + random.random_range(0..part.len);
                    assert_eq!(stripes.cut(probe, 1).unwrap()[0].owner, part.owner);
                    at += part.len;
                }
                assert_eq!(at, start + from + len);
                let owner = random.random_range(0..pagers);
                let all = stripes.cut(start + from, whole - from).unwrap();
                let own = all.into_iter().find(|part| part.owner == owner);
                assert_eq!(stripes.from(owner, start + from), own);
            }
            assert!(stripes.cut((1 << 40) + (699 << 20), 2 << 20).is_none(), "beyond a range");
            assert!(stripes.cut(77 << 40, 4096).is_none(), "no range");
        }
    }

    #[test]
    fn data_of_any_size_is_spread() {
        for pagers in [2, 4, 8] {
            for bits in 25..42 {
                let stripes = Stripes::new(pagers, LEAST);
                stripes.add(0, 1 << 45);
                let mut owned = vec![0_usize; pagers];
                stripes.cut(0, 1 << bits).unwrap().iter().for_each(|part| owned[part.owner] += part.len);
                let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
                assert!(most - least <= (1 << bits) / 8, "{pagers} pagers, {bits} bits: {owned:?}");
            }
        }
    }
}
