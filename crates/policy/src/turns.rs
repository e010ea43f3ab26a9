//! Threads that take turns where their blocks do not fit together.
//!
//! Two threads that each touch blocks of their own at random, together more than there are frames,
//! lose them to each other: with frames for two thirds of the blocks every third touch of either is
//! a fault, and both wait nearly all of the time. Had one of them all its blocks it would run as if
//! there were no pager. A policy that sees every touch gets there by itself (the thread that waits
//! less touches more, so it keeps more), but a pager sees too few. So one thread has the turn: what
//! it touched last does not leave, until others have had to wait for long enough, or it does
//! nothing itself. Jiang and Zhang gave processes such a token (Token-ordered LRU, Performance
//! Evaluation 60, 2005); Linux had theirs from 2.6.9 to 3.5.

use crate::replacement::Replacement;
use crate::sparse::Sparse;

/// Threads that are told apart.
const MOST: usize = 15;

/// Parts of the frames: so many hard faults make a window, at the end of which the turn is looked
/// at. A block's leaving is noted in the same measure.
const WINDOWS: usize = 4;

/// Windows in one turn.
const TURN: u32 = 16;

/// Windows after which a block that comes back no longer counts as one that should not have left.
const SOON: u8 = 4;

/// The part of a window's hard faults, in per cent, that must be of such blocks: to begin, and to
/// go on.
const BEGIN_PERCENT: usize = 50;
const ON_PERCENT: usize = 30;

/// The part of a window's hard faults that makes a thread one of those that wait.
const WAITS_PART: usize = 8;

/// The part of the time that a thread must run to keep its turn, in per cent, unless it waits for
/// blocks.
const RUNS_PERCENT: u64 = 10;

/// Victims that are passed over for one that leaves, at most.
const PASSED_OVER: usize = 32;

/// A thread of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    id: u32,
    /// Its hard faults in this window.
    faults: usize,
    /// Windows since it had one.
    quiet: u32,
}

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    window: usize,
    /// For each block, in the lower half: the thread that touched it last, as far as known, plus
    /// one. In the upper half: the window in which it left memory, modulo 16.
    blocks: Sparse<u8>,
    threads: [Thread; MOST],
    /// Who has the turn, and for how many windows by now.
    turn: Option<(usize, u32)>,
    faults: usize,
    /// Hard faults of blocks that left a short time ago.
    soon: usize,
    /// Times that something read ahead was used.
    streamed: usize,
    gone: usize,
}

impl Turns {
    /// With so many frames.
    pub fn new(frames: usize) -> Self {
        Turns {
            window: (frames / WINDOWS).max(64),
            blocks: Sparse::default(),
            threads: [Thread::default(); MOST],
            turn: None,
            faults: 0,
            soon: 0,
            streamed: 0,
            gone: 0,
        }
    }

    /// The place of a thread among those that are told apart.
    fn place(&mut self, thread: u32) -> Option<usize> {
        if thread == 0 {
            return None;
        }
        if let Some(place) = self.threads.iter().position(|known| known.id == thread) {
            return Some(place);
        }
        let holder = self.turn.map(|(place, _)| place);
        let others = (0..MOST).filter(|&place| Some(place) != holder);
        let place = others
            .min_by_key(|&place| (self.threads[place].id != 0, u32::MAX - self.threads[place].quiet))?;
        // One that did not wait for a long time may have ended.
        if self.threads[place].id != 0 && self.threads[place].quiet < TURN {
            return None;
        }
        self.threads[place] = Thread { id: thread, ..Thread::default() };
        Some(place)
    }

    fn now(&self) -> u8 {
        (self.gone / self.window % 16) as u8
    }

    /// A thread (0: unknown) touched a block, and the pager saw it. The thread's place.
    pub fn touched(&mut self, block: u32, thread: u32) -> Option<usize> {
        let place = self.place(thread)?;
        let note = &mut self.blocks[block];
        *note = *note & 0xF0 | (place as u8 + 1);
        Some(place)
    }

    /// A block left memory.
    pub fn gone(&mut self, block: u32) {
        self.gone += 1;
        let now = self.now();
        let note = &mut self.blocks[block];
        *note = *note & 0x0F | now << 4;
    }

    /// What was read ahead was used.
    pub fn streamed(&mut self) {
        self.streamed += 1;
    }

    /// A thread waits for a block. Whether a window has ended, so that the turn is to be
    /// [judged](Self::judge).
    pub fn waits(&mut self, block: u32, thread: u32) -> bool {
        let now = self.now();
        let note = self.blocks[block];
        self.soon += usize::from(note & 0x0F != 0 && now.wrapping_sub(note >> 4) % 16 <= SOON);
        self.faults += 1;
        if let Some(place) = self.touched(block, thread) {
            self.threads[place].faults += 1;
        }
        self.faults >= self.window
    }

    /// The thread that has the turn.
    pub fn holder(&self) -> Option<u32> {
        self.turn.map(|(place, _)| self.threads[place].id)
    }

    /// At the end of a window. `ran_percent`: for how much of it the thread that has the turn ran.
    pub fn judge(&mut self, ran_percent: u64) {
        let least = self.faults / WAITS_PART;
        let waits = |place: usize| self.threads[place].faults > least;
        let thrash =
            |percent: usize| self.soon * 100 >= self.faults * percent && self.streamed * 4 < self.faults;
        let next = |after: usize| (1..=MOST).map(|step| (after + step) % MOST).find(|&place| waits(place));
        self.turn = match self.turn {
            None if thrash(BEGIN_PERCENT) && (0..MOST).filter(|&place| waits(place)).count() > 1 => {
                next(MOST - 1).map(|place| (place, 0))
            }
            None => None,
            Some(_) if !thrash(ON_PERCENT) => None,
            // Where nobody else waits it would only be in the policy's way.
            Some((place, _)) if next(place) == Some(place) => None,
            Some((place, windows)) => {
                let idle = !waits(place) && ran_percent < RUNS_PERCENT;
                if idle || windows + 1 >= TURN {
                    next(place).map(|place| (place, 0))
                } else {
                    Some((place, windows + 1))
                }
            }
        };
        (self.faults, self.soon, self.streamed) = (0, 0, 0);
        for thread in &mut self.threads {
            thread.quiet = if thread.faults > 0 { 0 } else { thread.quiet.saturating_add(1) };
            thread.faults = 0;
        }
    }

    /// A victim of the policy's, but none of the thread that has the turn where there are others.
    pub fn victim(&self, policy: &mut dyn Replacement) -> Option<u32> {
        let mut victim = policy.victim()?;
        let Some((place, _)) = self.turn else { return Some(victim) };
        for _ in 0..PASSED_OVER {
            let note = self.blocks[victim];
            if usize::from(note & 0x0F) != place + 1 {
                break;
            }
            policy.back(victim);
            victim = policy.victim()?;
        }
        Some(victim)
    }
}

#[cfg(test)]
mod tests {
    use super::{TURN, Turns};
    use crate::replacement::by_name;

    const FRAMES: usize = 1024;

    /// Threads that touch blocks at random, one million times in all, and pay 1 for a touch of what
    /// is in and 2000 for a fault: hard faults, and how often the turn was held by each.
    fn play(policy: &str, threads: u32, block: impl Fn(u32, u32) -> u32, turns: bool) -> (usize, Vec<usize>) {
        let mut policy = by_name(policy, FRAMES).expect("a policy");
        let mut turns = turns.then(|| Turns::new(FRAMES));
        let (mut is_in, mut held) = (vec![false; 8 * FRAMES], vec![0; threads as usize]);
        let mut clocks = vec![0u64; threads as usize];
        let (mut random, mut faults) = (1u64, 0);
        for _ in 0..1_000_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let thread = (0..threads).min_by_key(|&thread| clocks[thread as usize]).expect("a thread");
            let block = block(thread, (random >> 33) as u32);
            clocks[thread as usize] += 1;
            if is_in[block as usize] {
                continue;
            }
            clocks[thread as usize] += 2000;
            faults += 1;
            if policy.len() == FRAMES {
                let victim = match &mut turns {
                    Some(turns) => {
                        let victim = turns.victim(&mut *policy).expect("one that is in");
                        turns.gone(victim);
                        victim
                    }
                    None => policy.victim().expect("one that is in"),
                };
                is_in[victim as usize] = false;
                policy.gone(victim);
            }
            is_in[block as usize] = true;
            policy.insert(block);
            if let Some(turns) = &mut turns
                && turns.waits(block, thread + 1)
            {
                if let Some(holder) = turns.holder() {
                    held[holder as usize - 1] += 1;
                }
                turns.judge(100);
            }
        }
        (faults, held)
    }

    fn apart(blocks: u32) -> impl Fn(u32, u32) -> u32 {
        move |thread, random| thread * blocks + random % blocks
    }

    #[test]
    fn threads_that_do_not_fit_together_take_turns() {
        for policy in ["auto", "fifo"] {
            for blocks in [640, 768, 896] {
                let (without, _) = play(policy, 2, apart(blocks), false);
                let (with, _) = play(policy, 2, apart(blocks), true);
                assert!(
                    with * 4 < without,
                    "{policy}, {blocks} blocks each: {with} faults with turns, {without} without"
                );
            }
        }
    }

    #[test]
    fn threads_that_share_their_blocks_lose_nothing() {
        for blocks in [1200, 2000, 4000] {
            let (without, _) = play("auto", 2, |_, random| random % blocks, false);
            let (with, _) = play("auto", 2, |_, random| random % blocks, true);
            assert!(
                with * 100 <= without * 103,
                "{blocks} blocks: {with} faults with turns, {without} without"
            );
        }
    }

    #[test]
    fn one_thread_has_no_turn_to_take() {
        let (_, held) = play("auto", 1, apart(2000), true);
        assert_eq!(held, [0]);
    }

    #[test]
    fn where_little_comes_back_soon_nobody_has_the_turn() {
        let (_, held) = play("auto", 2, apart(4 * FRAMES as u32 - 1), true);
        assert_eq!(held, [0, 0]);
    }

    #[test]
    fn a_turn_ends_when_its_thread_does_nothing() {
        let mut turns = Turns::new(FRAMES);
        let mut window = |ran_percent, who: &[u32]| {
            for at in 0.. {
                let block = at % 100;
                turns.touched(block, who[at as usize % who.len()]);
                turns.gone(block);
                if turns.waits(block, who[at as usize % who.len()]) {
                    break;
                }
            }
            turns.judge(ran_percent);
            turns.holder()
        };
        let first = window(0, &[7, 8]);
        assert_eq!(first, Some(7));
        assert_eq!(window(90, &[8]), Some(7));
        // It neither runs nor waits for blocks.
        assert_eq!(window(0, &[8]), Some(8));
        // It waits for blocks.
        for _ in 1..TURN {
            assert_eq!(window(0, &[7, 8]), Some(8));
        }
        // For long enough.
        assert_eq!(window(0, &[7, 8]), Some(7));
        // And nobody else does.
        assert_eq!(window(0, &[7]), None);
    }
}
