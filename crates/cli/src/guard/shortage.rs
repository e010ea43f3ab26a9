//! When memory is short: the kernel would soon end a program.

use std::time::Duration;
use terapage_config::Level;
use terapage_policy::elastic::{CALM, caution};

/// Memory must last for this many seconds, at the pace at which it is taken now: to see that it is
/// short, to stop a program, and until the program's pager is at work.
const LEAD_S: f64 = 1.0;
/// Bytes that an adopted program has beside its budget: its host and its pager.
const BESIDE: u64 = 32 << 20;
/// The pace is not computed for less time than this.
const BRIEF_S: f64 = 0.02;

/// Why memory is short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// Bytes that the level has.
    pub limit: u64,
    /// Bytes that are free there.
    pub free: u64,
    /// Bytes that are taken in a second; negative if they are given back.
    pub taken_per_s: i64,
}

/// How the free memory of a level changes.
#[derive(Clone, Debug)]
pub struct Trend {
    last: Option<(Duration, Level)>,
    taken_per_s: f64,
    caution: u64,
}

impl Default for Trend {
    fn default() -> Trend {
        Trend::new(0.0)
    }
}

impl Trend {
    /// The trend of a level that nobody has looked at yet, and of which programs take this number
    /// of bytes in a second.
    pub fn new(taken_per_s: f64) -> Trend {
        Trend { last: None, taken_per_s, caution: CALM }
    }

    /// For how long the memory lasts at the present pace, s.
    pub fn lasts_s(&self) -> f64 {
        let available = self.last.map_or(f64::INFINITY, |(_, level)| level.available as f64);
        if self.taken_per_s > 0.0 { available / self.taken_per_s } else { f64::INFINITY }
    }

    /// Looks at a level, at a time since the command began. Memory is short if less is free than
    /// `percent` of the level, and what is taken until there is help. Without `percent`, that is
    /// half of the reserve that budgets that follow the free memory keep, so these shrink before,
    /// and what adoption itself needs. Tasks that wait for memory raise the reserve, as there.
    pub fn look(&mut self, level: &Level, now: Duration, percent: Option<u64>) -> Option<Shortage> {
        // Another limit is not memory that was taken.
        let is_other = self.last.is_some_and(|(_, before)| before.limit != level.limit);
        if let Some((then, before)) = self.last.filter(|_| !is_other) {
            let passed_s = now.saturating_sub(then).as_secs_f64();
            if passed_s >= BRIEF_S {
                let taken = before.available as f64 - level.available as f64;
                self.taken_per_s = (self.taken_per_s + taken / passed_s) / 2.0;
                let stalled_us = level.stalled_us.saturating_sub(before.stalled_us);
                self.caution = caution(self.caution, stalled_us as f64 / 1e6 / passed_s);
                self.last = Some((now, *level));
            }
        } else {
            let taken_per_s = if is_other { 0.0 } else { self.taken_per_s };
            *self = Trend { last: Some((now, *level)), ..Trend::new(taken_per_s) };
        }
        let least = match percent {
            Some(percent) => level.limit / 100 * percent,
            None => level.reserve() / 2 * self.caution / CALM + BESIDE,
        };
        let is_short = (level.available as f64) < least as f64 + self.taken_per_s * LEAD_S;
        is_short.then_some(Shortage {
            limit: level.limit,
            free: level.available,
            taken_per_s: self.taken_per_s as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The first step of 100 ms at which memory is short, and what is free then, MiB; the free
    /// memory of each step is given.
    fn first(
        limit: u64,
        percent: Option<u64>,
        free: impl Fn(u64) -> u64,
        stalled_us: u64,
    ) -> Option<(u64, u64)> {
        let mut trend = Trend::default();
        (0..100).find_map(|step| {
            let level =
                Level { limit: limit * MIB, available: free(step) * MIB, stalled_us: step * stalled_us };
            let short = trend.look(&level, Duration::from_millis(100 * step), percent)?;
            Some((step, short.free / MIB))
        })
    }

    #[test]
    fn memory_that_is_taken_fast_is_short_early() {
        // The reserve of 8 GiB is 512 MiB: half of it, and 32 MiB.
        assert_eq!(first(8192, None, |_| 289, 0), None);
        assert_eq!(first(8192, None, |_| 287, 0), Some((0, 287)));
        let at = |begin: u64, pace: u64| first(8192, None, |step| begin - step * pace, 0).unwrap().1;
        assert!((387..=398).contains(&at(900, 11)), "110 MiB each second");
        assert!((1188..=1288).contains(&at(5000, 100)), "1,000 MiB each second");
        let small = first(200, None, |step| 200_u64.saturating_sub(step * 4), 0).unwrap().1;
        assert!((76..=88).contains(&small), "{small} of 40 MiB each second");
    }

    #[test]
    fn a_program_is_noticed_before_all_is_taken() {
        for limit in [128, 512, 4096, 65536, 1 << 20] {
            for seconds in [2, 5, 9] {
                let pace = limit / (10 * seconds);
                let (_, free) = first(limit, None, |step| limit.saturating_sub(step * pace), 0).unwrap();
                assert!(free * MIB >= BESIDE / 2 && free >= pace * 4, "{free} of {limit} MiB in {seconds} s");
            }
        }
    }

    #[test]
    fn memory_that_comes_back_is_not_short() {
        assert_eq!(first(8192, None, |step| 289 + 5 * step, 0), None);
        let back = |step: u64| if step == 0 { 300 } else { 200 + 30 * step };
        let mut trend = Trend::default();
        let short: Vec<bool> = (0..6)
            .map(|step| {
                let level = Level { limit: 8192 * MIB, available: back(step) * MIB, stalled_us: 0 };
                trend.look(&level, Duration::from_millis(100 * step), None).is_some()
            })
            .collect();
        assert!(short[1] && !short[5], "{short:?}");
    }

    #[test]
    fn tasks_that_wait_for_memory_raise_the_threshold() {
        assert_eq!(first(8192, None, |_| 500, 5_000), None);
        let waits = first(8192, None, |_| 500, 50_000).unwrap();
        assert!(waits.0 > 1, "{waits:?}");
    }

    #[test]
    fn a_limit_that_is_lowered_takes_nothing() {
        let mut trend = Trend::default();
        for (step, limit) in [8000, 8000, 4000, 4000].into_iter().enumerate() {
            let level = Level { limit: limit * MIB, available: limit / 2 * MIB, stalled_us: 0 };
            let short = trend.look(&level, Duration::from_millis(100 * step as u64), None);
            assert_eq!(short, None, "step {step}");
        }
    }

    #[test]
    fn memory_of_which_a_program_takes_much_is_short_at_the_first_look() {
        let level = Level { limit: 200 * MIB, available: 150 * MIB, stalled_us: 0 };
        let pace = |mib: u64| Trend::new((mib * MIB) as f64);
        assert_eq!(pace(0).look(&level, Duration::ZERO, None), None);
        let mut fast = pace(200);
        assert_eq!(fast.lasts_s(), f64::INFINITY);
        let short = fast.look(&level, Duration::ZERO, None).map(|short| short.taken_per_s);
        assert_eq!((short, fast.lasts_s()), (Some(200 << 20), 0.75));
        // It has stopped taking.
        let shorts = (1..9).map(|step| fast.look(&level, Duration::from_millis(100 * step), None));
        assert_eq!(shorts.last(), Some(None));
    }

    #[test]
    fn a_given_share_is_the_threshold() {
        assert_eq!(first(1000, Some(10), |_| 101, 0), None);
        assert_eq!(first(1000, Some(10), |_| 99, 50_000), Some((0, 99)));
    }
}
