//! Grain: how much comes in at a hard fault, learnt for each extent of addresses.
//!
//! Small blocks suit scattered objects: memory and reads are not spent on neighbours that nobody
//! touches. Large blocks suit arrays: one read instead of several. So blocks are small, and
//! neighbours form a *cluster*. In some extents a hard fault reads its whole cluster, in the others
//! one block.
//!
//! Which is right is learnt by *trials*: a hard fault that reads one block notes it. If a thread
//! faults on another block of the cluster before long, the neighbours belong together; if not, they
//! do not. "Before long" is a part of the time in which memory is filled anew: a neighbour that is
//! touched later is no better than any other block that could have had its frame.

use crate::sparse::Sparse;
use std::collections::VecDeque;
use std::ops::Range;

/// The number of clusters in an extent, as an exponent of two: 2 MiB with clusters of 16 KiB.
const EXTENT_SHIFT: u32 = 7;

/// Where whole clusters are read, one hard fault in this many is a trial.
const TRIAL_EACH: u8 = 8;

/// A trial ends after the blocks that came in could have filled one part in this many of the
/// frames. Chosen, not measured.
const TRIAL_PART: usize = 8;

/// The most trials under way. Others are not noted.
const TRIALS_MAX: usize = 4096;

/// Trials of an extent after which its grain is judged, and of all extents for those that are not
/// known yet.
const JUDGED: u16 = 8;
const JUDGED_ALL: u16 = 64;

/// Whole clusters are read if at least this part of the trials found the neighbours in use, in per
/// cent. Chosen, not measured: to read a cluster takes a third longer than to read one block.
const WHOLE_PERCENT: u16 = 50;
/// Once this is so, it stays so down to this part.
const WHOLE_STILL_PERCENT: u16 = 35;

/// What trials have shown.
#[derive(Clone, Copy, Default)]
struct Note {
    /// Whether it was judged.
    known: bool,
    /// Whether hard faults read one block each.
    single: bool,
    /// Hard faults that read whole clusters since the last trial.
    faults: u8,
    together: u16,
    apart: u16,
}

impl Note {
    fn count(&mut self, together: bool, judged: u16) {
        *if together { &mut self.together } else { &mut self.apart } += 1;
        let trials = self.together + self.apart;
        if trials < judged {
            return;
        }
        let percent = if self.single { WHOLE_PERCENT } else { WHOLE_STILL_PERCENT };
        self.single = self.together * 100 < percent * trials;
        self.known = true;
        (self.together, self.apart) = (self.together / 2, self.apart / 2);
    }
}

/// The grain of all extents.
pub struct Grain {
    /// The number of blocks in a cluster, as an exponent of two.
    shift: u32,
    extents: Sparse<Note>,
    /// Of all extents: what holds where nothing is known.
    all: Note,
    /// Trials under way: the block, and `came` when it was read.
    trials: VecDeque<(u32, u64)>,
    /// Their blocks: a bit for each, by word.
    tried: Sparse<u64>,
    /// Blocks that came in.
    came: u64,
    /// A trial ends when so many blocks have come in.
    lasts: u64,
}

impl Grain {
    /// For clusters of `cluster` blocks, a power of two, and `frames` blocks in memory. With
    /// clusters of one block there is nothing to learn.
    pub fn new(cluster: u32, frames: usize) -> Grain {
        Grain {
            shift: cluster.max(1).ilog2(),
            extents: Sparse::default(),
            all: Note::default(),
            trials: VecDeque::new(),
            tried: Sparse::default(),
            came: 0,
            lasts: (frames / TRIAL_PART).max(1) as u64,
        }
    }

    /// From now on there are `frames` frames.
    pub fn resize(&mut self, frames: usize) {
        self.lasts = (frames / TRIAL_PART).max(1) as u64;
    }

    /// The number of blocks in a cluster, as an exponent of two.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The blocks of a block's cluster.
    pub fn cluster(&self, block: u32) -> Range<u32> {
        let first = block >> self.shift << self.shift;
        first..first.saturating_add(1 << self.shift)
    }

    /// `blocks` blocks have come in.
    pub fn come(&mut self, blocks: usize) {
        self.came += blocks as u64;
    }

    /// Whether the blocks of this cluster come in together.
    pub fn is_whole(&self, block: u32) -> bool {
        let note = self.extents[block >> (self.shift + EXTENT_SHIFT)];
        self.shift > 0 && !if note.known { note.single } else { self.all.single }
    }

    /// A thread waits for `block`, which must be read.
    pub fn hard_fault(&mut self, block: u32) -> Fault {
        if self.shift == 0 {
            return Fault::First { whole: false };
        }
        self.end_trials();
        if let Some(tried) = self.cluster(block).find(|&other| other != block && self.is_tried(other)) {
            self.set_tried(tried, false);
            self.count(tried, true);
            return Fault::Again;
        }
        let whole = self.is_whole(block);
        let note = &mut self.extents[block >> (self.shift + EXTENT_SHIFT)];
        note.faults = if whole { note.faults + 1 } else { TRIAL_EACH };
        if note.faults < TRIAL_EACH || self.trials.len() >= TRIALS_MAX {
            return Fault::First { whole };
        }
        note.faults = 0;
        self.trials.push_back((block, self.came));
        self.set_tried(block, true);
        Fault::First { whole: false }
    }

    /// Ends the trials whose time is up.
    fn end_trials(&mut self) {
        while let Some(&(block, at)) = self.trials.front() {
            // A trial that found the neighbours in use has ended already.
            let ended = !self.is_tried(block);
            if !ended && self.came - at < self.lasts {
                return;
            }
            self.trials.pop_front();
            if !ended {
                self.set_tried(block, false);
                self.count(block, false);
            }
        }
    }

    fn count(&mut self, block: u32, together: bool) {
        self.extents[block >> (self.shift + EXTENT_SHIFT)].count(together, JUDGED);
        self.all.count(together, JUDGED_ALL);
    }

    fn is_tried(&self, block: u32) -> bool {
        self.tried[block / u64::BITS] >> (block % u64::BITS) & 1 != 0
    }

    fn set_tried(&mut self, block: u32, tried: bool) {
        let word = &mut self.tried[block / u64::BITS];
        *word = *word & !(1 << (block % u64::BITS)) | u64::from(tried) << (block % u64::BITS);
    }
}

/// What a hard fault is, to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The first one lately: the whole cluster is worth reading, or the block alone.
    First {
        /// Whether it is the whole cluster.
        whole: bool,
    },
    /// One after another: the rest of the cluster is worth reading.
    Again,
}

#[cfg(test)]
mod tests {
    use super::{Fault, Grain};
    use crate::testing::random;

    const FRAMES: usize = 1024;

    /// Plays hard faults; each reads what the grain says. Returns the blocks read and the faults.
    fn play(grain: &mut Grain, touches: impl Iterator<Item = u32>) -> (usize, usize) {
        let mut memory = std::collections::VecDeque::new();
        let (mut read, mut faults) = (0, 0);
        for block in touches {
            if memory.contains(&block) {
                continue;
            }
            faults += 1;
            let come: Vec<u32> = match grain.hard_fault(block) {
                Fault::First { whole: false } => vec![block],
                _ => grain.cluster(block).filter(|other| !memory.contains(other)).collect(),
            };
            grain.come(come.len());
            read += come.len();
            memory.extend(come);
            while memory.len() > FRAMES {
                memory.pop_front();
            }
        }
        (read, faults)
    }

    #[test]
    fn scattered_blocks_come_alone() {
        let (read, faults) = play(&mut Grain::new(4, FRAMES), random(40_000, 8 * FRAMES as u32));
        assert!(read * 10 < faults * 12, "{read} blocks for {faults} faults");
    }

    #[test]
    fn neighbours_come_together() {
        let clusters = random(20_000, 2 * FRAMES as u32);
        let (read, faults) =
            play(&mut Grain::new(4, FRAMES), clusters.flat_map(|at| (0..4).map(move |n| 4 * at + n)));
        assert!(faults * 10 < read * 3, "{read} blocks for {faults} faults");
    }

    #[test]
    fn extents_differ() {
        let mut grain = Grain::new(4, FRAMES);
        let touches = random(60_000, 4 * FRAMES as u32).enumerate();
        let far = 1 << 20;
        let touches = touches.flat_map(|(turn, block)| match turn % 2 {
            0 => vec![far + block],
            _ => (0..4).map(|n| (block & !3) + n).collect(),
        });
        play(&mut grain, touches);
        let whole = (0..4 * FRAMES as u32).step_by(512).filter(|&block| grain.is_whole(block)).count();
        let apart =
            (far..far + 4 * FRAMES as u32).step_by(512).filter(|&block| !grain.is_whole(block)).count();
        assert_eq!((whole, apart), (8, 8));
    }

    #[test]
    fn what_changes_is_learnt_again() {
        let mut grain = Grain::new(4, FRAMES);
        play(&mut grain, random(40_000, 8 * FRAMES as u32));
        assert!(!grain.is_whole(0));
        play(&mut grain, (0..8 * FRAMES as u32).cycle().take(40_000));
        assert!(grain.is_whole(0));
    }

    #[test]
    fn clusters_of_one_are_left_alone() {
        let mut grain = Grain::new(1, FRAMES);
        let (read, faults) = play(&mut grain, random(10_000, 8 * FRAMES as u32));
        assert_eq!(read, faults);
        assert!(grain.trials.is_empty());
    }
}
