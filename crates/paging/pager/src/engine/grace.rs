//! Blocks that stay in the program for a while although the policy has chosen them as victims.

use std::collections::BTreeMap;

/// A block that something else holds is left alone for this long, ns: a try to take it out needs a
/// millisecond and interrupts the program. Chosen, not measured.
const LEAST_NS: u64 = 1_000_000;
/// The time is doubled each time, up to this. Chosen, not measured.
const MOST_NS: u64 = 64_000_000;

/// The most blocks of a round: blocks that go in and out in turns before their threads have run.
/// Chosen, not measured.
const ROUND: usize = 4;
/// After this many minor faults of one round, its blocks stay. Chosen, not measured.
const IN_A_ROUND: u32 = 16;

/// Blocks that something else holds (for example I/O of the program), and blocks that would go in
/// and out without end.
///
/// If nearly all blocks in the program have grace, only the blocks that came in last remain as
/// victims. The pager, always ahead of the threads that want them, would evict these again before
/// they are touched.
#[derive(Default)]
pub struct Grace {
    /// For each block: the end of its grace, and the length of the grace, ns.
    until: BTreeMap<u32, (u64, u64)>,
    /// The last minor faults.
    last: [Option<u32>; ROUND],
    at: usize,
    again: u32,
}

impl Grace {
    /// Whether no block has grace.
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// Whether a block stays.
    pub fn has(&self, block: u32, now_ns: u64) -> bool {
        self.until.get(&block).is_some_and(|&(until_ns, _)| until_ns > now_ns)
    }

    /// Gives a block grace for a while. `limit` is the most blocks that the program can have.
    pub fn give(&mut self, block: u32, limit: usize, now_ns: u64) {
        // Blocks that were released, or are no longer used, have old times, and are forgotten.
        if self.until.len() > limit {
            self.until.retain(|_, (until_ns, _)| *until_ns + MOST_NS > now_ns);
        }
        let (until_ns, waited_ns) = self.until.entry(block).or_default();
        let again = *until_ns + MOST_NS > now_ns;
        *waited_ns = if again { (*waited_ns * 2).clamp(LEAST_NS, MOST_NS) } else { LEAST_NS };
        *until_ns = now_ns + *waited_ns;
    }

    /// Notes a minor fault. Returns whether the block goes in and out in a round, alone or with few
    /// others, while no other block has a minor fault.
    pub fn goes_round(&mut self, block: u32) -> bool {
        self.again = if self.last.contains(&Some(block)) { self.again + 1 } else { 0 };
        self.last[self.at] = Some(block);
        self.at = (self.at + 1) % ROUND;
        self.again >= IN_A_ROUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_while_a_block_is_found_busy() {
        let mut grace = Grace::default();
        let mut now_ns = 1_000_000_000;
        for expected_ms in [1, 2, 4, 8, 16, 32, 64, 64] {
            grace.give(7, 8, now_ns);
            assert!(grace.has(7, now_ns + expected_ms * 1_000_000 - 1), "{expected_ms}");
            now_ns += expected_ms * 1_000_000;
            assert!(!grace.has(7, now_ns), "{expected_ms}");
        }
        grace.give(7, 8, now_ns + MOST_NS);
        assert!(!grace.has(7, now_ns + MOST_NS + LEAST_NS));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut grace = Grace::default();
        (0..100).for_each(|block| grace.give(block, 8, u64::from(block) * MOST_NS));
        assert!(grace.until.len() <= 9, "{}", grace.until.len());
    }

    #[test]
    fn few_blocks_that_go_in_and_out_are_seen() {
        for round in 1..=ROUND as u32 {
            let mut grace = Grace::default();
            let seen = (0..100).position(|at| grace.goes_round(at % round));
            assert_eq!(seen, Some((round + IN_A_ROUND) as usize - 1), "{round}");
        }
    }

    #[test]
    fn a_working_set_that_is_a_little_too_large_does_not_go_round() {
        let mut grace = Grace::default();
        assert!((0..100).all(|at| !grace.goes_round(at % (ROUND as u32 + 1))));
        assert!((0..100).all(|at| !grace.goes_round(if at % 15 == 0 { 50 + at } else { 3 })));
    }
}
