//! Sectors, lines, and runs of sectors.

/// A run of neighbouring sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    /// The number of its dirty sectors.
    pub(crate) dirty: u32,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }
}

/// `count` bits from bit `first` on.
fn mask(first: u32, count: u32) -> u32 {
    (u32::MAX >> (32 - count)) << first
}

/// The lines, of 2^`shift` sectors, that a command touches, each with the sectors of the command as
/// bits.
pub(crate) fn pieces(sector: u64, sectors: u32, shift: u32) -> impl Iterator<Item = (u32, u32)> {
    let end = sector + u64::from(sectors);
    let mut at = sector;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let line = at >> shift;
        let until = ((line + 1) << shift).min(end);
        let bits = mask((at - (line << shift)) as u32, (until - at) as u32);
        at = until;
        Some((line as u32, bits))
    })
}

/// The smallest run of bits that covers `bits`, which are not 0.
pub(crate) fn cover(bits: u32) -> u32 {
    let first = bits.trailing_zeros();
    mask(first, 32 - bits.leading_zeros() - first)
}

/// Appends the runs of `bits` (sectors from `first` on), of which `dirty` are dirty. Neighbouring
/// runs are joined.
pub(crate) fn append(runs: &mut Vec<Run>, first: u64, bits: u32, dirty: u32) {
    let mut left = bits;
    while left != 0 {
        let start = left.trailing_zeros();
        let count = (left >> start).trailing_ones();
        let taken = mask(start, count);
        left &= !taken;
        let run =
            Run { sector: first + u64::from(start), sectors: count, dirty: (dirty & taken).count_ones() };
        match runs.last_mut().filter(|last| last.end() == run.sector) {
            Some(last) => {
                last.sectors += run.sectors;
                last.dirty += run.dirty;
            }
            None => runs.push(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_and_runs_are_inverse(sector in 0_u64..10_000, sectors in 1_u32..300, shift in 0_u32..6) {
            let mut runs = Vec::new();
            for (line, bits) in pieces(sector, sectors, shift) {
                append(&mut runs, u64::from(line) << shift, bits, bits & 1);
            }
            prop_assert_eq!(runs.len(), 1);
            prop_assert_eq!((runs[0].sector, runs[0].sectors), (sector, sectors));
        }

        #[test]
        fn runs_hold_exactly_the_bits(lines in prop::collection::vec(any::<(u32, u32)>(), 1..5)) {
            let mut runs = Vec::new();
            for (line, &(bits, dirty)) in (0..).zip(&lines) {
                append(&mut runs, line * 32, bits, dirty & bits);
            }
            let wanted = |sector: u64| lines[sector as usize / 32].0 >> (sector % 32) & 1 == 1;
            let covered: Vec<u64> = runs.iter().flat_map(|run| run.sector..run.end()).collect();
            let naive: Vec<u64> = (0..lines.len() as u64 * 32).filter(|&sector| wanted(sector)).collect();
            prop_assert_eq!(covered, naive);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].sector));
            let dirty: u32 = lines.iter().map(|&(bits, dirty)| (dirty & bits).count_ones()).sum();
            prop_assert_eq!(runs.iter().map(|run| run.dirty).sum::<u32>(), dirty);
        }

        #[test]
        fn a_cover_is_the_smallest_run(bits in 1_u32..) {
            let cover = cover(bits);
            prop_assert_eq!(cover & bits, bits);
            prop_assert_eq!(cover.leading_zeros(), bits.leading_zeros());
            prop_assert_eq!(cover.trailing_zeros(), bits.trailing_zeros());
            prop_assert_eq!((cover >> cover.trailing_zeros()).trailing_ones(), cover.count_ones());
        }
    }
}
