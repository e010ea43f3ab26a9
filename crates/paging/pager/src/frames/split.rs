//! One budget for several pagers of a process: each leases a part of it, and has more where more
//! saves most, by the same rules as processes of a job (`terapage_policy::shares`).
//!
//! The pagers look at their leases 40 times a second, and when frames are lacking. A lease is
//! little more than what its pager holds, so that all of the budget is used, wherever the program's
//! data lie. Nothing waits: who finds another one reckoning goes on with what it heard last.

use super::lease::{FRAMES_MIN, Share, Use};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, TryLockError};
use terapage_policy::appetite::{Appetite, Done};
use terapage_policy::shares::{Bound, Claimant, next_lease, shares};
use terapage_stats::Counters;
use terapage_sys::thread;

/// The least of a pager, bytes, if the budget is large.
const LEAST: usize = 2 << 20;
/// Of a small budget it is one part in this many of what each would have.
const LEAST_PART: usize = 4;

/// What pagers have done is looked at so often, ns: less tells little.
const LOOK_NS: u64 = 250_000_000;
/// What a pager's frames save is a mean over so many looks: in one, few blocks are touched that
/// have just left.
const MEAN_LOOKS: f64 = 16.0;
/// A pager that works gives nothing as long as its share is at least this part of its lease: each
/// frame that moves costs a block that has to come back.
const KEEPS: (u64, u64) = (4, 5);

/// A lease is at most what its pager holds, one part in so many of it, and one in so many of the
/// budget: a pager that grows asks often, and none keeps frames from others that it does not make.
const GROWTH_PART: usize = 32;
const STEP_PART: usize = 128;

/// A pager needs more frames for so many ticks after it has lacked some.
const NEEDY_TICKS: u32 = 4;

/// What one pager has, and wants.
#[derive(Clone, Copy, Debug)]
struct Claim {
    appetite: Appetite,
    /// Bytes that are its own: it has no more.
    lease: usize,
    held: usize,
    fixed: usize,
    soft: usize,
    /// What it had done at the last look.
    done: Done,
    /// What a MiB more would save, in the mean; `None` before the first look.
    gain: Option<f64>,
    /// Frames were lacking since the process last asked for its budget.
    short: bool,
    /// The same, since the last look.
    lacked: bool,
    /// Blocks that had come, or been touched first, at the last tick.
    came: u64,
    /// Ticks for which it needs more frames.
    needy: u32,
}

/// The budget of a process, for all its pagers.
#[derive(Debug)]
pub(crate) struct Split {
    /// Where the budget comes from, if other processes share it.
    outer: Option<&'static dyn Share>,
    /// Bytes of the budget now.
    total: AtomicUsize,
    /// The least of each pager, bytes, without what it cannot give.
    least: usize,
    /// The time from one look at what pagers have done to the next, ns.
    look_ns: u64,
    claims: Mutex<Vec<Claim>>,
    /// What all pagers count together, for the outer share.
    sums: Sums,
}

/// Counters, of which a few are in use.
struct Sums(&'static Counters);

impl std::fmt::Debug for Sums {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Sums")
    }
}

/// One pager's part of the budget.
#[derive(Debug)]
pub(crate) struct Slice {
    split: &'static Split,
    number: usize,
    /// What it may have, as heard last, bytes.
    heard: AtomicUsize,
}

impl Split {
    /// Divides a budget of `total` bytes, in blocks of `block`, among `count` pagers. It lasts as
    /// long as the process.
    pub fn new(
        outer: Option<&'static dyn Share>,
        total: usize,
        block: usize,
        count: usize,
    ) -> (&'static Split, Vec<&'static Slice>) {
        Split::looking(LOOK_NS, outer, total, block, count)
    }

    fn looking(
        look_ns: u64,
        outer: Option<&'static dyn Share>,
        total: usize,
        block: usize,
        count: usize,
    ) -> (&'static Split, Vec<&'static Slice>) {
        let least = LEAST.min(total / count / LEAST_PART).max(FRAMES_MIN * block);
        // Who has no data does not want frames: the first to have them takes what it needs.
        let appetite = Appetite::of_child();
        let done = Done::default();
        let claim = Claim {
            appetite,
            lease: least,
            held: 0,
            fixed: 0,
            soft: 0,
            done,
            gain: None,
            short: false,
            lacked: false,
            came: 0,
            needy: 0,
        };
        let split: &'static Split = Box::leak(Box::new(Split {
            outer,
            total: AtomicUsize::new(total),
            least,
            look_ns,
            claims: Mutex::new(vec![claim; count]),
            sums: Sums(Box::leak(Box::default())),
        }));
        let slice = |number| {
            let slice: &'static Slice =
                Box::leak(Box::new(Slice { split, number, heard: AtomicUsize::new(least) }));
            slice
        };
        (split, (0..count).map(slice).collect())
    }

    /// Whether other processes share the budget.
    pub fn is_shared(&self) -> bool {
        self.outer.is_some()
    }

    /// The least bytes that the budget can be.
    pub fn least(&self) -> usize {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).len() * self.least
    }

    /// Sets the budget, which no other process shares. The pagers hear of it soon.
    pub fn set_total(&self, bytes: usize) {
        self.total.store(bytes, SeqCst);
    }

    /// The budget, if no other process shares it.
    pub fn own_total(&self) -> Option<usize> {
        self.outer.is_none().then(|| self.total.load(SeqCst))
    }

    /// In the child of a fork, whose pagers have all that their parent's had.
    pub fn in_child(&self) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        for claim in claims.iter_mut() {
            claim.appetite = Appetite::of_child();
            claim.done = Done::default();
            claim.gain = None;
        }
    }

    /// Asks the outer share for all pagers together.
    fn ask_outer(&self, claims: &mut [Claim], use_: &Use, is_tick: bool) {
        let Some(outer) = self.outer else { return };
        let sum = |of: fn(&Claim) -> usize| claims.iter().map(of).sum::<usize>();
        let sums = self.sums.0;
        for (to, of) in [
            (&sums.hard_faults, (|claim| claim.done.came) as fn(&Claim) -> u64),
            (&sums.soft_faults, |claim| claim.done.soft),
            (&sums.hard_wait_us, |claim| claim.done.waited_us),
            (&sums.first_touches, |claim| claim.done.first),
        ] {
            to.store(claims.iter().map(of).sum(), Relaxed);
        }
        let short = use_.short || claims.iter().any(|claim| claim.short);
        let all = Use {
            counters: sums,
            held: sum(|claim| claim.held),
            fixed: sum(|claim| claim.fixed),
            soft: sum(|claim| claim.soft),
            short,
            tick: is_tick,
        };
        self.total.store(outer.update(&all), SeqCst);
        if is_tick {
            claims.iter_mut().for_each(|claim| claim.short = false);
            for (from, to) in
                [(&sums.job, &use_.counters.job), (&sums.job_processes, &use_.counters.job_processes)]
            {
                to.store(from.load(Relaxed), Relaxed);
            }
        }
    }

    /// The most bytes that a pager can have until it asks again.
    fn most(&self, claim: &Claim) -> usize {
        claim.held + claim.held / GROWTH_PART + self.total.load(SeqCst) / STEP_PART
    }

    /// The bytes that a pager may have from now on.
    fn reckon(&self, claims: &mut [Claim], number: usize) -> usize {
        let total = self.total.load(SeqCst);
        // All together never have more than the budget.
        let most = total / claims.len();
        let claimant = |claim: &Claim| Claimant {
            job: 0,
            least: (self.least + claim.fixed).min(most) as u64,
            held: claim.held as u64,
            wants: match claim.needy > 0 {
                true => total as u64,
                false => self.most(claim) as u64,
            },
            gain: claim.gain.unwrap_or_default(),
            idle: claim.appetite.is_idle(),
        };
        let claimants: Vec<Claimant> = claims.iter().map(claimant).collect();
        let share = shares(&[Bound { bytes: total as u64, parent: None }], &claimants)[number];
        let leased: usize = claims.iter().map(|claim| claim.lease).sum();
        let lease = claims[number].lease as u64;
        let free = total as i64 - leased as i64;
        let keeps = lease * KEEPS.0 / KEEPS.1;
        let share = if free >= 0 && (keeps..lease).contains(&share) { lease } else { share };
        let allowed = next_lease(&claimants[number], share, lease, free) as usize;
        let claim = &claims[number];
        let allowed = allowed.min(self.most(claim).max(self.least + claim.fixed));
        // What it still has is not free, until it says that it has less.
        claims[number].lease = allowed.max(claims[number].held);
        allowed
    }
}

impl Share for Slice {
    fn update(&self, use_: &Use) -> usize {
        let (split, number) = (self.split, self.number);
        let mut claims = match split.claims.try_lock() {
            Ok(claims) => claims,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.heard.load(SeqCst),
        };
        // The processor time of the whole program: threads that work on what is there have no
        // faults that tell.
        let ran_ns = thread::used_by_all_ns().saturating_sub(thread::used_ns());
        let claim = &mut claims[number];
        (claim.held, claim.fixed, claim.soft) = (use_.held, use_.fixed, use_.soft);
        claim.short |= use_.short;
        claim.lacked |= use_.short;
        let now = use_.done(ran_ns);
        let came = now.came + now.first;
        if use_.short && came > claim.came {
            claim.needy = NEEDY_TICKS;
        } else if use_.tick {
            claim.needy = claim.needy.saturating_sub(1);
        }
        if use_.tick {
            claim.came = came;
        }
        let looks = use_.tick && now.now_ns.saturating_sub(claim.done.now_ns) >= split.look_ns;
        if looks {
            claim.done = now;
            claim.appetite.look(now, std::mem::take(&mut claim.lacked), use_.soft);
            let (gain, before) = (claim.appetite.gain(), claim.gain);
            claim.gain = Some(before.map_or(gain, |before| before + (gain - before) / MEAN_LOOKS));
        } else if use_.short {
            claim.appetite.lacks();
        }
        let asks_for_all = number == 0 && looks;
        if asks_for_all || !use_.tick {
            split.ask_outer(&mut claims, use_, asks_for_all);
        }
        let allowed = split.reckon(&mut claims, number);
        self.heard.store(allowed, SeqCst);
        allowed
    }
}

#[cfg(all(test, not(terapage_model)))]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const MIB: usize = 1 << 20;
    const BLOCK: usize = 16 << 10;

    fn use_of(counters: &'static Counters, held: usize, short: bool, tick: bool) -> Use {
        Use { counters, held, fixed: held / 100, soft: held / 50, short, tick }
    }

    #[test]
    fn leases_together_are_within_the_budget_whatever_pagers_do() {
        let seed = rand::rng().random();
        eprintln!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for count in [2, 4, 8] {
            let mut total = 64 * MIB;
            let (split, slices) = Split::looking(0, None, total, BLOCK, count);
            let counters: Vec<&'static Counters> =
                (0..count).map(|_| &*Box::leak(Box::<Counters>::default())).collect();
            let (mut held, mut allowed) = (vec![0; count], vec![0; count]);
            for step in 0..20_000 {
                let one = random.random_range(0..count);
                if step % 5000 == 0 && step > 0 {
                    total = random.random_range(48..64) * MIB;
                    split.set_total(total);
                }
                let wants = random.random_range(0..4) > 0;
                counters[one].hard_faults.fetch_add(random.random_range(0..100), Relaxed);
                counters[one].hard_wait_us.fetch_add(random.random_range(0..1000), Relaxed);
                counters[one].soft_faults.fetch_add(random.random_range(0..30), Relaxed);
                let now = use_of(counters[one], held[one], wants, random.random());
                allowed[one] = slices[one].update(&now);
                // It takes what it may have, and gives at once what is too much.
                held[one] = if wants { allowed[one] } else { held[one].min(allowed[one]) };
                let all: usize = held.iter().sum();
                if step % 5000 > 3000 || step < 5000 {
                    assert!(all <= total + total / 50, "step {step}: {all} of {total}: {held:?}");
                }
            }
        }
    }

    #[test]
    fn who_waits_gets_what_another_does_not_use() {
        let (_, slices) = Split::looking(0, None, 64 * MIB, BLOCK, 2);
        let counters: [&'static Counters; 2] = [Box::leak(Box::default()), Box::leak(Box::default())];
        let mut held = 0;
        for _ in 0..100 {
            counters[0].first_touches.fetch_add(1000, Relaxed);
            held = slices[0].update(&use_of(counters[0], held, true, true));
            slices[1].update(&use_of(counters[1], 0, false, true));
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        assert!(held > 58 * MIB, "it has {} MiB", held / MIB);
    }

    /// Part of a lease is for buffers that are not made yet. It is not taken for unused.
    #[test]
    fn who_lacks_nothing_keeps_what_it_holds() {
        let (_, slices) = Split::looking(0, None, 64 * MIB, BLOCK, 2);
        let counters: &'static Counters = Box::leak(Box::default());
        let mut held = 30 * MIB;
        for _ in 0..1000 {
            let allowed = slices[0].update(&use_of(counters, held, false, true));
            held = held.min(allowed - allowed / 32);
        }
        assert!(held >= 29 * MIB, "{held} bytes are left");
    }

    /// Pagers whose blocks are touched alike keep what they have, though what each tick tells is
    /// mostly chance.
    #[test]
    fn equals_do_not_take_frames_from_each_other() {
        let seed = rand::rng().random();
        eprintln!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (_, slices) = Split::looking(0, None, 64 * MIB, BLOCK, 4);
        let counters: Vec<&'static Counters> =
            (0..4).map(|_| &*Box::leak(Box::<Counters>::default())).collect();
        let (mut held, mut moved) = ([0_usize; 4], 0);
        for step in 0..1200 {
            for one in 0..4 {
                counters[one].hard_faults.fetch_add(random.random_range(200..300), Relaxed);
                counters[one].hard_wait_us.fetch_add(random.random_range(20_000..30_000), Relaxed);
                counters[one].soft_faults.fetch_add(random.random_range(0..20), Relaxed);
                let allowed = slices[one].update(&use_of(counters[one], held[one], true, true));
                moved += if step > 200 { allowed.abs_diff(held[one]) } else { 0 };
                held[one] = allowed;
            }
        }
        assert!(moved < 64 * MIB, "{} MiB were moved, {held:?}", moved / MIB);
        assert!(held.iter().sum::<usize>() > 62 * MIB, "all of the budget is used: {held:?}");
    }

    #[derive(Debug)]
    struct Job(AtomicUsize);

    impl Share for Job {
        fn update(&self, now: &Use) -> usize {
            assert!(now.held >= now.fixed);
            now.counters.job.store(7, Relaxed);
            self.0.load(Relaxed)
        }
    }

    #[test]
    fn a_job_gives_to_all_pagers_together() {
        let job: &'static Job = Box::leak(Box::new(Job(AtomicUsize::new(32 * MIB))));
        let (split, slices) = Split::looking(0, Some(job), 64 * MIB, BLOCK, 2);
        assert!(split.is_shared());
        let counters: [&'static Counters; 2] = [Box::leak(Box::default()), Box::leak(Box::default())];
        let mut held = [0; 2];
        let turn = |held: &mut [usize; 2]| {
            for ((counters, slice), held) in counters.iter().zip(&slices).zip(held) {
                counters.first_touches.fetch_add(1000, Relaxed);
                *held = slice.update(&use_of(counters, *held, true, true));
            }
        };
        (0..50).for_each(|_| turn(&mut held));
        assert!((31 * MIB..=32 * MIB).contains(&held.iter().sum()), "{held:?}");
        assert_eq!(counters[0].job.load(Relaxed), 7);
        job.0.store(16 * MIB, Relaxed);
        (0..50).for_each(|_| turn(&mut held));
        assert!(held.iter().sum::<usize>() <= 16 * MIB + MIB, "{held:?}");
    }
}
