//! Knowledge of the blocks that threads will touch next: streams of reads, streams of first
//! touches, and the program's advice.

use crate::options::Options;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use terapage_policy::pace;
use terapage_policy::prefetch::{self, Prefetch};
use terapage_store::EXTENT;

/// The number of streams of first touches that are followed at the same time. Chosen, not measured.
const STREAMS: usize = 8;

/// The most ranges that are noted as touched in random order; the oldest is forgotten first.
/// Chosen, not measured.
const RANGES: usize = 64;

/// One prefetched run in this many has a sample, which costs a minor fault; a guess always has one.
/// Chosen, not measured.
const SAMPLED_RUNS: u32 = if cfg!(terapage_model) { 2 } else { 4 };

/// The most samples that are remembered: samples of blocks that the program drops are forgotten
/// late.
const SAMPLES: usize = 4096;

#[cfg(not(terapage_model))]
const _: () = assert!(EXTENT == pace::RUN_BYTES, "the simulator's runs are those of the store");

/// A touch, as the prefetch policy sees it.
pub(crate) enum Touch {
    /// The block was requested, and has come or waits for frames.
    Here,
    /// The block's read is still under way.
    Late,
    /// The block is not in memory, or is only there as another block's companion.
    Missing,
}

/// A stream of first touches, upwards or downwards: where it continues, and the number of blocks to
/// install next.
#[derive(Clone, Copy, Default)]
struct FreshStream {
    /// The block after the installed blocks.
    next: u32,
    /// The block before the installed blocks, if the stream may go downwards.
    before: Option<u32>,
    window: u32,
    at: u64,
}

/// Prefetch, of stored blocks and of fresh ones.
pub(crate) struct Ahead {
    pub policy: Box<dyn Prefetch>,
    /// Runs to be prefetched once there are frames for them, each in the program's direction.
    pub postponed: VecDeque<Vec<u32>>,
    fresh: [FreshStream; STREAMS],
    /// Counts first touches.
    clock: u64,
    /// Ranges of blocks that the program has declared as touched in random order.
    random: Vec<Range<u32>>,
    /// Blocks that are samples of prefetched runs, and how many blocks each stands for.
    samples: BTreeMap<u32, u32>,
    /// Prefetched runs.
    runs: u32,
}

impl Ahead {
    /// Prefetch by the policy of `options`; `None` if there is no such policy.
    pub fn new(options: &Options) -> Option<Ahead> {
        let (block, frames) = (options.block, options.frames);
        let run = pace::prefetched_run(EXTENT / block, frames);
        let ahead = pace::ahead_blocks(options.tuning.ahead_bytes, block, frames);
        let policy = prefetch::by_name(&options.prefetch, frames, run, ahead)?;
        Some(Ahead {
            policy,
            postponed: VecDeque::new(),
            fresh: [FreshStream::default(); STREAMS],
            clock: 0,
            random: Vec::new(),
            samples: BTreeMap::new(),
            runs: 0,
        })
    }

    /// The same, after each block of `old` has become `more` blocks: the program's advice about the
    /// order of its touches remains valid.
    pub fn after(self, old: &Ahead, more: u32) -> Ahead {
        let random = old.random.iter().map(|range| range.start * more..range.end * more).collect();
        Ahead { random, ..self }
    }

    /// The number of blocks to install at a first touch of `block`, up to `most`, and whether to
    /// install them downwards.
    pub fn fresh_window(&mut self, block: u32, most: u32) -> (u32, bool) {
        self.clock += 1;
        let at = self.clock;
        let goes_on = |stream: &&mut FreshStream| {
            stream.at > 0 && (stream.next == block || stream.before == Some(block))
        };
        if let Some(stream) = self.fresh.iter_mut().find(goes_on) {
            stream.window = (stream.window * 2).min(most);
            stream.at = at;
            return (stream.window, stream.next != block);
        }
        let oldest = self.fresh.iter_mut().min_by_key(|stream| stream.at).expect("some streams");
        *oldest = FreshStream { next: block + 1, before: block.checked_sub(1), window: 1, at };
        (1, false)
    }

    /// After [`fresh_window`](Self::fresh_window): `count` blocks from `first` on were installed.
    /// The stream continues after them.
    pub fn fresh_went(&mut self, first: u32, count: u32) {
        let clock = self.clock;
        if let Some(stream) = self.fresh.iter_mut().find(|stream| stream.at == clock) {
            (stream.next, stream.before) = (first + count, first.checked_sub(1));
        }
    }

    /// Whether the program has declared that it touches the block in random order.
    pub fn is_random(&self, block: u32) -> bool {
        self.random.iter().any(|range| range.contains(&block))
    }

    /// Notes whether the blocks will be touched in random order.
    pub fn set_random(&mut self, first: u32, end: u32, random: bool) {
        let old = std::mem::take(&mut self.random);
        let rest = old.into_iter().flat_map(|range| {
            [range.start..range.end.min(first), range.start.max(end)..range.end]
                .into_iter()
                .filter(|part| part.start < part.end)
        });
        self.random = rest.collect();
        if random {
            self.random.push(first..end);
        }
        if self.random.len() > RANGES {
            self.random.remove(0);
        }
    }

    /// A run is about to be read ahead: returns the block of it that is a sample, if any.
    pub fn sample(&mut self, run: &[u32]) -> Option<u32> {
        self.runs = self.runs.wrapping_add(1);
        let first = *run.first()?;
        let runs = if self.policy.wants_sample(first) { 1 } else { SAMPLED_RUNS };
        if !self.runs.is_multiple_of(runs) {
            return None;
        }
        // Any block of the run, by a number without a pattern.
        let block = run[(self.runs.wrapping_mul(2_654_435_761) >> 8) as usize % run.len()];
        if self.samples.len() >= SAMPLES {
            self.samples.clear();
        }
        self.samples.insert(block, run.len() as u32 * runs);
        Some(block)
    }

    /// A sample was touched (`used`), or was paged out untouched: returns the number of blocks for
    /// which it stood.
    pub fn sampled(&mut self, block: u32, used: bool) -> u64 {
        let Some(blocks) = self.samples.remove(&block) else { return 0 };
        self.policy.sampled(block, used, blocks);
        u64::from(blocks)
    }

    /// Blocks of all postponed runs.
    pub fn postponed_blocks(&self) -> usize {
        self.postponed.iter().map(Vec::len).sum()
    }

    /// The number of blocks of the run that is read next, once there are frames.
    pub fn next_postponed(&self) -> usize {
        self.postponed.front().map_or(0, Vec::len)
    }

    /// Takes the postponed run that a block is in: the part behind the block.
    pub fn take_behind(&mut self, block: u32) -> Option<Vec<u32>> {
        let index = self.postponed.iter().position(|run| run.contains(&block))?;
        let run = self.postponed.remove(index)?;
        let at = run.iter().position(|&other| other == block).map_or(0, |at| at + 1);
        Some(run[at..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, RANGES, STREAMS};
    use crate::options::Options;

    fn ahead() -> Ahead {
        Ahead::new(&Options::default()).expect("the default policy")
    }

    #[test]
    fn windows_of_fresh_memory_grow_both_ways() {
        let mut ahead = ahead();
        for (up, down) in [(100, 1000), (101, 999), (103, 997)] {
            let (count, downwards) = ahead.fresh_window(up, 16);
            assert!(!downwards);
            ahead.fresh_went(up, count);
            let (count, downwards) = ahead.fresh_window(down, 16);
            assert_eq!(downwards, down < 1000);
            ahead.fresh_went(down + 1 - count, count);
        }
        assert_eq!(ahead.fresh_window(107, 16), (8, false));
        assert_eq!(ahead.fresh_window(993, 4), (4, true));
    }

    #[test]
    fn the_oldest_stream_is_forgotten() {
        let mut ahead = ahead();
        for stream in 0..=STREAMS as u32 {
            ahead.fresh_window(stream * 100, 16);
        }
        assert_eq!(ahead.fresh_window(101, 16), (2, false));
        assert_eq!(ahead.fresh_window(1, 16), (1, false));
    }

    #[test]
    fn a_range_in_random_order_can_be_split_and_is_forgotten() {
        let mut ahead = ahead();
        ahead.set_random(10, 20, true);
        ahead.set_random(12, 14, false);
        let random: Vec<u32> = (0..30).filter(|&block| ahead.is_random(block)).collect();
        assert_eq!(random, [10, 11, 14, 15, 16, 17, 18, 19]);
        (0..RANGES as u32).for_each(|range| ahead.set_random(100 * range + 50, 100 * range + 51, true));
        assert!(!ahead.is_random(10) && ahead.is_random(50));
    }
}
