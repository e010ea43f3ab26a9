//! How much is paged out and read ahead, and when: decisions that the pager and the replay of
//! recorded programs share.
//!
//! The constants are chosen, not measured, unless they say otherwise.

/// Bytes of a run: the most that one request moves, and that leaves the program together. The same
/// number of bytes lies together in a store (`terapage_store::EXTENT`).
pub const RUN_BYTES: usize = 2 << 20;

/// The most bytes that are read ahead of a stream, unless an option says otherwise.
pub const AHEAD_BYTES: usize = 16 << 20;

/// How long the pager's thread spins before it sleeps, us, unless an option says otherwise.
pub const SPIN_US: u64 = 100;

/// The most runs that are being written at the same time.
pub const WRITING_RUNS: usize = 16;

/// The most blocks of one page-out while a thread waits for a read and nothing is being written: as
/// many as can leave during the wait. If blocks are written, large writes matter more.
const WAITED_FOR: usize = 16;

/// The most blocks that are taken out to be watched after one page-out.
pub const WATCH_BATCH: usize = 4;

/// The most blocks of one prefetched run, of `run` blocks if there are enough frames.
pub fn prefetched_run(run: usize, frames: usize) -> u32 {
    run.min(frames / 8).max(1) as u32
}

/// The most blocks that are read ahead of a stream, if that is `ahead_bytes` at most.
pub fn ahead_blocks(ahead_bytes: usize, block_bytes: usize, frames: usize) -> u32 {
    (ahead_bytes / block_bytes).clamp(1, most_read(frames)) as u32
}

/// The most blocks that may be prefetched at the same time.
pub fn most_read(frames: usize) -> usize {
    (frames / 4).max(1)
}

/// The number of blocks that are paged out if a thread waits for a frame, and there is none.
pub fn at_once(frames: usize) -> usize {
    (frames / 8).clamp(1, 8)
}

/// The values that decide whether blocks are paged out ahead of need, and how many.
/// All in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The number of frames to keep ready.
    pub target: usize,
    /// Frames that are needed in addition.
    pub extra: usize,
    /// Frames that can be used at once.
    pub ready: usize,
    /// Blocks that are being paged out: their frames will be ready.
    pub on_their_way: usize,
    /// Blocks of a run.
    pub run: usize,
}

impl Need {
    /// The most blocks of one page-out.
    fn batch(&self) -> usize {
        self.run.min(self.target.div_ceil(2)).max(1)
    }

    /// The number of frames that are lacking.
    pub fn missing(&self) -> usize {
        (self.target + self.extra).saturating_sub(self.ready + self.on_their_way)
    }

    /// Whether blocks should be paged out now.
    pub fn is_short(&self) -> bool {
        self.missing() >= self.batch().min(self.target / 4).max(1)
            && self.on_their_way < WRITING_RUNS * self.run
    }

    /// The number of blocks of the next page-out. `is_waited_for`: a thread waits for a read, and
    /// nothing is being written.
    pub fn next(&self, is_waited_for: bool) -> usize {
        let most = if is_waited_for { WAITED_FOR } else { usize::MAX };
        self.missing().min(self.batch()).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::{Need, WAITED_FOR, WRITING_RUNS, ahead_blocks, at_once, prefetched_run};

    const NEED: Need = Need { target: 100, extra: 0, ready: 0, on_their_way: 0, run: 128 };

    #[test]
    fn blocks_leave_in_batches_once_a_quarter_is_missing() {
        assert!(!Need { ready: 76, ..NEED }.is_short());
        assert!(Need { ready: 75, ..NEED }.is_short());
        assert!(!Need { ready: 50, on_their_way: 26, ..NEED }.is_short());
        assert!(Need { ready: 76, extra: 1, ..NEED }.is_short());
        assert_eq!(Need { ready: 75, ..NEED }.next(false), 25);
        assert_eq!(NEED.next(false), 50, "no more than half of the target");
        assert_eq!(NEED.next(true), WAITED_FOR);
        let large = Need { target: 10_000, ..NEED };
        assert_eq!(large.next(false), large.run);
    }

    #[test]
    fn no_more_is_written_than_the_store_can_take() {
        let many = Need { target: 10_000, ..NEED };
        let most = WRITING_RUNS * many.run;
        assert!(Need { on_their_way: most - 1, ..many }.is_short());
        assert!(!Need { on_their_way: most, ..many }.is_short());
    }

    #[test]
    fn the_smallest_budget_moves_at_least_one_block() {
        assert_eq!((prefetched_run(1, 8), ahead_blocks(1, 2 << 20, 8), at_once(8)), (1, 1, 1));
        let need = Need { target: 1, run: 1, ..NEED };
        assert!(need.is_short());
        assert_eq!(need.next(false), 1);
    }
}
