//! Turns: threads take turns if their blocks do not fit into memory together.
//!
//! If two threads each touch their own blocks at random, and there are more blocks than frames,
//! each thread displaces the other's blocks. With frames for two thirds of the blocks, every third
//! touch is a fault, and both threads wait nearly all of the time. If one of them had all its
//! blocks, it would run as if there were no pager. A policy that sees every touch reaches this
//! state by itself (the thread that waits less touches more, so it keeps more), but a pager sees
//! too few touches. So one thread has the turn: the blocks that it touched last do not leave, until
//! other threads have waited long enough, or it does nothing itself. Jiang and Zhang gave processes
//! such a token (Token-ordered LRU, Performance Evaluation 60, 2005); Linux had it from 2.6.9 to
//! 3.5.

use crate::replacement::{Replacement, Times};
use crate::sparse::Sparse;
use std::ops::Range;

/// The most threads that are distinguished.
const MOST: usize = 15;

/// The number of major faults in a window is the number of frames divided by this. At the end of a
/// window the turn is judged. The time at which a block left is noted in windows, counted in blocks
/// that left.
const WINDOWS: usize = 4;

/// Windows in one turn.
const TURN: u32 = 16;

/// A block that comes back after more windows than this does not count as one that should have
/// stayed.
const SOON: u8 = 4;

/// Turns begin if at least this part of a window's major faults is of blocks that should have
/// stayed, per cent.
const BEGIN_PERCENT: usize = 50;
/// Turns continue while at least this part of the major faults is of such blocks, per cent.
const ON_PERCENT: usize = 30;

/// A thread counts as waiting if it has at least a window's major faults divided by this.
const WAITS_PART: usize = 8;

/// To keep its turn, a thread must run for at least this part of the time, per cent, unless it
/// waits for blocks.
const RUNS_PERCENT: u64 = 10;

/// The most victims that are skipped before one leaves.
const PASSED_OVER: usize = 32;

/// A thread of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    id: u32,
    /// The thread's major faults in this window.
    faults: usize,
    /// Windows since the thread's last major fault.
    quiet: u32,
}

/// The turns: which thread has the turn, and the data for that decision.
#[derive(Debug)]
struct Turns {
    window: usize,
    /// For each block, in the lower four bits: one more than the place of the thread that touched
    /// it last, as far as is known. In the upper four bits: the window in which it left memory,
    /// modulo 16.
    blocks: Sparse<u8>,
    threads: [Thread; MOST],
    /// The place of the thread that has the turn, and the number of windows for which it has had
    /// the turn.
    turn: Option<(usize, u32)>,
    faults: usize,
    /// Major faults of blocks that left a short time before.
    soon: usize,
    /// The number of uses of a prefetched block.
    streamed: usize,
    gone: usize,
}

impl Turns {
    /// Turns for `frames` frames.
    fn new(frames: usize) -> Self {
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

    /// The place of a thread among the distinguished threads.
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
        // A thread that has not waited for a long time may have ended.
        if self.threads[place].id != 0 && self.threads[place].quiet < TURN {
            return None;
        }
        self.threads[place] = Thread { id: thread, ..Thread::default() };
        Some(place)
    }

    fn now(&self) -> u8 {
        (self.gone / self.window % 16) as u8
    }

    /// Notes that a thread (0: unknown) touched a block. Returns the thread's place.
    fn touched(&mut self, block: u32, thread: u32) -> Option<usize> {
        let place = self.place(thread)?;
        let note = &mut self.blocks[block];
        *note = *note & 0xF0 | (place as u8 + 1);
        Some(place)
    }

    /// A block left memory.
    fn gone(&mut self, block: u32) {
        self.gone += 1;
        let now = self.now();
        let note = &mut self.blocks[block];
        *note = *note & 0x0F | now << 4;
    }

    /// Notes that a prefetched block was used.
    fn streamed(&mut self) {
        self.streamed += 1;
    }

    /// Notes that a thread waits for a block. Whether a window has ended: then call
    /// [`judge`](Self::judge).
    fn waits(&mut self, block: u32, thread: u32) -> bool {
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
    fn holder(&self) -> Option<u32> {
        self.turn.map(|(place, _)| self.threads[place].id)
    }

    /// Judges the turn at the end of a window. `ran_percent` is the part of the window for which
    /// the thread with the turn ran.
    fn judge(&mut self, ran_percent: u64) {
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
            // If no other thread waits, the turn would only disturb the policy.
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

    /// A victim of the policy; not a block of the thread that has the turn, if there are other
    /// victims.
    fn victim(&self, policy: &mut impl Replacement) -> Option<u32> {
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

/// A policy whose victims depend on the turn.
pub struct InTurns<P> {
    policy: P,
    turns: Turns,
    /// The times at which the turn was last judged, ns, and the processor time that its thread had
    /// used until then, ns.
    judged: (u64, u64),
}

impl<P: Replacement> InTurns<P> {
    /// `policy`, which is for `frames` frames, with turns.
    pub fn new(policy: P, frames: usize) -> Self {
        InTurns { policy, turns: Turns::new(frames), judged: (0, 0) }
    }

    /// Judges the turn at the end of a window.
    #[cold]
    fn judge(&mut self, clock: &dyn Times) {
        let holder = self.turns.holder();
        let used_ns = |thread: Option<u32>| thread.and_then(|thread| clock.used_by(thread)).unwrap_or(0);
        let (now_ns, ran_ns) = (clock.now_ns(), used_ns(holder));
        let (judged_ns, had_run_ns) = self.judged;
        let passed_ns = now_ns.saturating_sub(judged_ns).max(1);
        self.turns.judge(ran_ns.saturating_sub(had_run_ns) * 100 / passed_ns);
        let next = self.turns.holder();
        self.judged = (now_ns, if next == holder { ran_ns } else { used_ns(next) });
    }
}

impl<P: Replacement> Replacement for InTurns<P> {
    fn insert(&mut self, block: u32) {
        self.policy.insert(block);
    }

    fn rescue(&mut self, block: u32) {
        self.policy.rescue(block);
    }

    fn neighbours(&self, block: u32) -> Range<u32> {
        self.policy.neighbours(block)
    }

    fn back(&mut self, block: u32) {
        self.policy.back(block);
    }

    fn touched(&mut self, block: u32) {
        self.policy.touched(block);
    }

    fn touched_by(&mut self, block: u32, thread: u32) {
        self.turns.touched(block, thread);
    }

    fn waits(&mut self, block: u32, thread: u32, clock: &dyn Times) {
        if self.turns.waits(block, thread) {
            self.judge(clock);
        }
    }

    fn streamed(&mut self) {
        self.policy.streamed();
        self.turns.streamed();
    }

    fn unused(&mut self, block: u32) {
        self.policy.unused(block);
    }

    fn watch(&mut self) -> Option<u32> {
        self.policy.watch()
    }

    fn seen(&mut self, block: u32) {
        self.policy.seen(block);
    }

    fn victim(&mut self) -> Option<u32> {
        self.turns.victim(&mut self.policy)
    }

    fn gone(&mut self, block: u32) {
        self.policy.gone(block);
        self.turns.gone(block);
    }

    fn remove(&mut self, block: u32) {
        self.policy.remove(block);
    }

    fn resize(&mut self, frames: usize) {
        self.policy.resize(frames);
    }

    fn len(&self) -> usize {
        self.policy.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{InTurns, TURN, Turns};
    use crate::replacement::{Auto, Fifo, Replacement, Times, by_name};
    use std::cell::Cell;

    /// A machine on which every thread runs all the time.
    #[derive(Default)]
    struct Busy {
        now_ns: Cell<u64>,
        /// The policy asked for a thread's time: that thread has the turn.
        asked: Cell<bool>,
    }

    impl Times for Busy {
        fn now_ns(&self) -> u64 {
            self.now_ns.set(self.now_ns.get() + 1000);
            self.now_ns.get()
        }

        fn used_by(&self, _: u32) -> Option<u64> {
            self.asked.set(true);
            Some(self.now_ns.get())
        }
    }

    const FRAMES: usize = 1024;

    /// Simulates threads that touch blocks at random, one million times in all. A touch of a block
    /// in memory costs 1, a fault 2000. Returns the major faults, and whether any thread has had
    /// the turn.
    fn play(policy: &mut dyn Replacement, threads: u32, block: impl Fn(u32, u32) -> u32) -> (usize, bool) {
        let clock = Busy::default();
        let mut is_in = vec![false; 8 * FRAMES];
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
                let victim = policy.victim().expect("one that is in");
                is_in[victim as usize] = false;
                policy.gone(victim);
            }
            is_in[block as usize] = true;
            policy.insert(block);
            policy.waits(block, thread + 1, &clock);
        }
        (faults, clock.asked.get())
    }

    fn without(policy: &str, threads: u32, block: impl Fn(u32, u32) -> u32) -> usize {
        play(&mut *by_name(policy, FRAMES).expect("a policy"), threads, block).0
    }

    fn apart(blocks: u32) -> impl Fn(u32, u32) -> u32 {
        move |thread, random| thread * blocks + random % blocks
    }

    #[test]
    fn threads_that_do_not_fit_together_take_turns() {
        for blocks in [640, 768, 896] {
            let policies: [(_, Box<dyn Replacement>); 2] = [
                ("auto", Box::new(InTurns::new(Auto::new(FRAMES), FRAMES))),
                ("fifo", Box::new(InTurns::new(Fifo::default(), FRAMES))),
            ];
            for (name, mut policy) in policies {
                let without = without(name, 2, apart(blocks));
                let (with, held) = play(&mut *policy, 2, apart(blocks));
                assert!(held, "nobody had the turn");
                assert!(
                    with * 4 < without,
                    "{name}, {blocks} blocks each: {with} faults with turns, {without} without"
                );
            }
        }
    }

    #[test]
    fn threads_that_share_their_blocks_lose_nothing() {
        for blocks in [1200, 2000, 4000] {
            let mut policy = InTurns::new(Auto::new(FRAMES), FRAMES);
            let without = without("auto", 2, |_, random| random % blocks);
            let (with, _) = play(&mut policy, 2, |_, random| random % blocks);
            assert!(
                with * 100 <= without * 103,
                "{blocks} blocks: {with} faults with turns, {without} without"
            );
        }
    }

    #[test]
    fn one_thread_has_no_turn_to_take() {
        let (_, held) = play(&mut InTurns::new(Auto::new(FRAMES), FRAMES), 1, apart(2000));
        assert!(!held);
    }

    #[test]
    fn where_little_comes_back_soon_nobody_has_the_turn() {
        let blocks = apart(4 * FRAMES as u32 - 1);
        let (_, held) = play(&mut InTurns::new(Auto::new(FRAMES), FRAMES), 2, blocks);
        assert!(!held);
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
        // The thread neither runs nor waits for blocks.
        assert_eq!(window(0, &[8]), Some(8));
        // The thread waits for blocks.
        for _ in 1..TURN {
            assert_eq!(window(0, &[7, 8]), Some(8));
        }
        // The thread has had the turn for long enough.
        assert_eq!(window(0, &[7, 8]), Some(7));
        // No other thread waits.
        assert_eq!(window(0, &[7]), None);
    }
}
