//! A budget that follows the free memory: how many bytes a run may have, judged by what the machine
//! and each cgroup around the run have left.
//!
//! A run sees only its own memory and what is free; it knows no other run. All runs see the same
//! free memory, as a price: the more memory a run has, the more must stay free for it. So if memory
//! is short, large runs shrink while small ones still grow, until all that want more have the same.
//! docs/design/pager-shares.md, "A budget that follows the machine", has the reasons.

/// The reserve of a level is its limit divided by this, ...
const RESERVE_PART: u64 = 16;
/// ... but at least these bytes, as long as they are at most an eighth of the limit, ...
const RESERVE_LEAST: u64 = 64 << 20;
const RESERVE_LEAST_PART: u64 = 8;
/// ... and at most these.
const RESERVE_MOST: u64 = 2 << 30;

/// A run takes at most the excess divided by this before it looks again: so sixteen runs that grow
/// at once cannot take more than there is.
const STEP_PART: u64 = 16;
/// A run whose step has fewer bytes than a huge page has all that it can have.
pub const STEP_LEAST: u64 = 2 << 20;
/// Between the excess at which a run grows, and the lack at which it shrinks, lies the reserve
/// divided by this.
const BAND_PART: u64 = 32;

/// Tasks that wait for memory for this share of the time show that less is free than it seems.
const STALLED: f64 = 0.1;
/// The caution, by which reserves are multiplied, in eighths.
pub const CALM: u64 = 8;
const CAUTION_MOST: u64 = 3 * CALM;

/// No run shrinks below the smaller of these bytes and a part of its ceiling: each makes progress.
const FLOOR: u64 = 64 << 20;
const FLOOR_PART: u64 = 8;

/// The excess below which a run looks often: these reserves, ...
const NEAR: i64 = 3;
/// ... and what programs can take until the next usual look.
const NEAR_LEAST: i64 = 1 << 30;

/// The memory of the machine, or of a cgroup with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Bytes that it has.
    pub limit: u64,
    /// Bytes that could be taken now: free ones, and those that the kernel can drop at once.
    pub available: u64,
    /// Microseconds in which a task of this level has waited for memory, since it began.
    pub stalled_us: u64,
}

impl Level {
    /// Bytes of this level that no run takes while all is calm, divided among runs by size.
    pub fn reserve(&self) -> u64 {
        let least = RESERVE_LEAST.min(self.limit / RESERVE_LEAST_PART);
        (self.limit / RESERVE_PART).clamp(least, RESERVE_MOST.max(least))
    }

    /// The bytes that must stay free while a run has `used`, in a calm or less calm time: half of
    /// the reserve, and more by the run's share of the level.
    fn threshold(&self, used: u64, caution: u64) -> u64 {
        let reserve = (self.reserve() * caution / CALM) as f64;
        let share = used.min(self.limit) as f64 / self.limit.max(1) as f64;
        (reserve * (0.5 + share)) as u64
    }
}

/// What a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes that it can return.
    pub frames: u64,
    /// Bytes beside them, which it cannot return.
    pub fixed: u64,
    /// The most bytes that it may have, except for those that count twice: processes that were
    /// forked share memory.
    pub ceiling: u64,
}

/// The budget of a run from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Bytes that it may have, with the fixed ones.
    pub budget: u64,
    /// Memory is nearly short: the run looks again soon.
    pub near: bool,
    /// There is memory for more: nothing needs to be paged out.
    pub grows: bool,
}

/// The caution after a look: `stalled` is the share of the time since the last one in which a task
/// waited for memory.
pub fn caution(before: u64, stalled: f64) -> u64 {
    let before = before.clamp(CALM, CAUTION_MOST);
    if stalled > STALLED { (before + 2).min(CAUTION_MOST) } else { (before - 1).max(CALM) }
}

/// The number of bytes that a run may take from a level; negative if it must return some.
fn excess(level: &Level, used: u64, caution: u64) -> i64 {
    level.available as i64 - level.threshold(used, caution) as i64
}

/// The number of the level that has the least left for a run with these bytes. Only waits for
/// memory of this level concern the run: where another is short, the run does not help.
pub fn tightest(levels: &[Level], held: &Held, caution: u64) -> Option<usize> {
    let used = held.frames + held.fixed;
    (0..levels.len()).min_by_key(|&at| excess(&levels[at], used, caution))
}

/// The budget for what a run has, and what the levels around it have left. Without levels, which
/// means that nothing could be read, the run keeps what it has.
pub fn decide(levels: &[Level], held: &Held, caution: u64) -> Verdict {
    let used = held.frames + held.fixed;
    let Some(level) = tightest(levels, held, caution).map(|at| &levels[at]) else {
        return Verdict { budget: used, near: true, grows: false };
    };
    let (excess, band) = (excess(level, used, caution), (level.reserve() / BAND_PART) as i64);
    let step = (excess - band).max(0) as u64 / STEP_PART;
    let budget = if excess < 0 {
        let floor = FLOOR.min(held.ceiling / FLOOR_PART) + held.fixed;
        (used - lacking(excess.unsigned_abs(), level, held)).max(floor.min(used))
    } else {
        used + step
    };
    let near = excess < NEAR_LEAST.max(NEAR * level.reserve() as i64);
    let grows = step >= STEP_LEAST;
    // If more is free although the run seems to have all, memory counts twice.
    let most = if grows && used + STEP_LEAST > held.ceiling { budget } else { held.ceiling.max(held.fixed) };
    Verdict { budget: budget.min(most), near, grows }
}

/// The bytes that a run returns if `lack` bytes are lacking: its share, so that all runs together
/// do not return more than is needed. At least an eighth: memory that belongs to no run does not
/// return any.
fn lacking(lack: u64, level: &Level, held: &Held) -> u64 {
    let share = (held.frames as f64 / level.limit.max(1) as f64).clamp(0.125, 1.0);
    ((lack as f64 * share) as u64).min(held.frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn level(limit: u64, available: u64) -> Level {
        Level { limit: limit * MIB, available: available * MIB, stalled_us: 0 }
    }

    fn held(frames: u64) -> Held {
        Held { frames: frames * MIB, fixed: 0, ceiling: 1 << 40 }
    }

    #[test]
    fn the_reserve_is_a_part_of_the_level() {
        for (limit, reserve) in [(64, 8), (400, 50), (512, 64), (1024, 64), (8192, 512), (1 << 20, 2048)] {
            assert_eq!(level(limit, 0).reserve(), reserve * MIB, "{limit} MiB");
        }
    }

    #[test]
    fn a_run_grows_while_memory_is_free_and_shrinks_when_it_is_not() {
        let free = decide(&[level(8192, 8000)], &held(100), CALM);
        assert!(free.budget > 500 * MIB && !free.near && free.grows, "{free:?}");
        let short = decide(&[level(8192, 100)], &held(4000), CALM);
        assert!(short.budget < 3900 * MIB && short.near && !short.grows, "{short:?}");
        let calm = level(8192, 512);
        assert_eq!(decide(&[calm], &held(4090), CALM).budget, 4090 * MIB, "the band");
        assert!(decide(&[calm], &held(4090), 2 * CALM).budget < 4000 * MIB, "pressure");
    }

    #[test]
    fn a_run_that_fits_grows_until_it_has_all_but_the_reserve() {
        for limit in [256, 1024, 8192, 1 << 20] {
            let (mut used, mut looks) = (0, 0);
            let left = loop {
                let level = level(limit, limit - used / MIB);
                let verdict = decide(&[level], &Held { frames: used, ..held(0) }, CALM);
                if !verdict.grows {
                    break level.available - level.threshold(used, CALM) - level.reserve() / BAND_PART;
                }
                assert!(verdict.budget >= used + STEP_LEAST, "{verdict:?} for {used} of {limit} MiB");
                (used, looks) = (verdict.budget, looks + 1);
            };
            assert!(
                left <= STEP_LEAST * STEP_PART + MIB && looks < 200,
                "{left} left of {limit} MiB, {looks} looks"
            );
        }
    }

    #[test]
    fn the_tightest_level_decides() {
        let levels = [level(8192, 8000), level(1024, 10), level(4096, 4000)];
        assert_eq!(decide(&levels, &held(500), CALM), decide(&levels[1..2], &held(500), CALM));
    }

    #[test]
    fn what_cannot_be_returned_and_a_floor_remain() {
        let all = Held { frames: 10 * MIB, fixed: 300 * MIB, ceiling: 4096 * MIB };
        assert_eq!(decide(&[level(4096, 0)], &all, CALM).budget, 310 * MIB);
        assert!(decide(&[level(1 << 20, 1 << 20)], &all, CALM).budget <= all.ceiling);
        let shared = Held { frames: 1200 * MIB, fixed: 0, ceiling: 1024 * MIB };
        let verdict = decide(&[level(1024, 300)], &shared, CALM);
        assert!(verdict.grows && verdict.budget > shared.frames, "memory that counts twice: {verdict:?}");
        assert_eq!(decide(&[], &held(500), CALM).budget, 500 * MIB, "nothing could be read");
    }

    #[test]
    fn pressure_raises_the_caution_and_calm_lowers_it() {
        let mut now = CALM;
        (0..20).for_each(|_| now = caution(now, 0.5));
        assert_eq!(now, CAUTION_MOST);
        (0..20).for_each(|_| now = caution(now, 0.0));
        assert_eq!(now, CALM);
        assert_eq!(caution(0, 0.0), CALM, "a table that is new");
    }

    /// A run of the simulation.
    #[derive(Clone, Debug)]
    struct Run {
        frames: u64,
        wants: u64,
        budget: u64,
        /// Looks happen each this many steps, from this step on.
        period: usize,
        phase: usize,
    }

    /// A machine with runs, and memory of others.
    #[derive(Clone, Debug)]
    struct Machine {
        limit: u64,
        runs: Vec<Run>,
        others: u64,
        /// Bytes that a run fills in a step, and that the disk takes in a step, from all together.
        fill: u64,
        disk: u64,
    }

    impl Machine {
        fn available(&self) -> u64 {
            let used: u64 = self.runs.iter().map(|run| run.frames).sum();
            self.limit.saturating_sub(used + self.others)
        }

        fn level(&self) -> Level {
            Level { limit: self.limit, available: self.available(), stalled_us: 0 }
        }

        /// A step of 5 ms: some look, all fill or return.
        fn step(&mut self, now: usize) {
            let mut disk = self.disk;
            for at in 0..self.runs.len() {
                let level = self.level();
                let run = &mut self.runs[at];
                // A run that lacks frames looks at once.
                if (now + run.phase).is_multiple_of(run.period)
                    || run.frames == run.budget && run.wants > run.budget
                {
                    let held = Held { frames: run.frames, fixed: 0, ceiling: self.limit };
                    run.budget = decide(&[level], &held, CALM).budget;
                }
                if run.frames > run.budget {
                    let gone = disk.min(run.frames - run.budget);
                    (run.frames, disk) = (run.frames - gone, disk - gone);
                } else {
                    run.frames += self.fill.min(run.budget.min(run.wants.max(run.frames)) - run.frames);
                }
            }
        }
    }

    prop_compose! {
        fn machine()(
            limit in 256..16384u64,
            runs in proptest::collection::vec((5..12usize, 0..12usize, 0..100u64), 1..16),
            fill in 1..16u64,
            disk in 1..16u64,
        ) -> Machine {
            let limit = limit * MIB;
            let mut left = limit / 10 * 8;
            let runs = runs.into_iter().map(|(period, phase, percent)| {
                let frames = left * percent / 100;
                left -= frames;
                Run { frames, wants: u64::MAX / 4, budget: frames, period, phase }
            }).collect();
            Machine { limit, runs, others: limit / 20, fill: fill * MIB, disk: disk * MIB }
        }
    }

    /// The steps within which a machine's disk could take all of its memory a few times, and a run
    /// could fill it as often.
    fn steps(machine: &Machine) -> usize {
        2000 + (4 * machine.limit / machine.disk.min(machine.fill)) as usize
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn runs_that_want_all_have_the_same_and_rest(mut machine in machine()) {
            let reserve = machine.level().reserve();
            let steps = steps(&machine);
            for now in 0..steps {
                machine.step(now);
                prop_assert!(machine.available() > 0, "step {now}: {machine:?}");
            }
            let least = machine.runs.iter().map(|run| run.frames).min().unwrap();
            let most = machine.runs.iter().map(|run| run.frames).max().unwrap();
            let floor = FLOOR.min(machine.limit / FLOOR_PART);
            // A band is this part of the level.
            prop_assert!(most <= least.max(floor) + machine.limit / 8, "{} of {} MiB: {machine:?}", most / MIB, least / MIB);
            if floor * machine.runs.len() as u64 + machine.others + 2 * reserve < machine.limit {
                let left = machine.available();
                prop_assert!((reserve / 2..=reserve * 2).contains(&left), "{} MiB: {machine:?}", left / MIB);
            }
            // From now on nothing moves, apart from the width of a band.
            let then: Vec<u64> = machine.runs.iter().map(|run| run.frames).collect();
            for now in steps..steps + 1000 {
                machine.step(now);
                for (run, then) in machine.runs.iter().zip(&then) {
                    prop_assert!(run.frames.abs_diff(*then) <= machine.limit / 16, "{run:?} had {then}");
                }
            }
        }

        #[test]
        fn who_wants_little_has_it_and_who_comes_late_gets_a_share(mut machine in machine(), wants in 1..64u64) {
            for run in &mut machine.runs {
                run.frames = 0;
                run.budget = 0;
            }
            let floor = FLOOR.min(machine.limit / FLOOR_PART);
            prop_assume!(floor * machine.runs.len() as u64 + machine.others < machine.limit / 2);
            machine.runs[0].wants = 0;
            let steps = steps(&machine);
            (0..steps).for_each(|now| machine.step(now));
            machine.runs[0].wants = wants * MIB;
            (steps..2 * steps).for_each(|now| machine.step(now));
            let fair = machine.limit / 2 / machine.runs.len() as u64;
            prop_assert!(machine.runs[0].frames >= (wants * MIB).min(fair / 2), "{machine:?}");
        }

        #[test]
        fn others_that_take_half_get_it_as_fast_as_the_disk_allows(mut machine in machine()) {
            let floor = FLOOR.min(machine.limit / FLOOR_PART) * machine.runs.len() as u64;
            prop_assume!(floor < machine.limit / 4);
            let steps = steps(&machine);
            (0..steps).for_each(|now| machine.step(now));
            // The others take as much in a step as the disk does, in half of the time in which it
            // could.
            let goal = machine.others + machine.limit / 2;
            for now in steps.. {
                machine.others = goal.min(machine.others + machine.disk / 2);
                machine.step(now);
                prop_assert!(machine.available() > 0, "step {now}: {machine:?}");
                if machine.others == goal {
                    break;
                }
            }
        }
    }
}
