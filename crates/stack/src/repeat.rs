//! The same setup with several seeds, on all CPUs of this machine.

use crate::meter::Outcome;
use crate::setup::{Error, Setup};
use crate::simulator::run;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A value over several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % interval of the mean (Student's t); 0 for one seed.
    pub margin: f64,
}

/// The outcomes of a setup, one a seed.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// In the order of the seeds.
    pub outcomes: Vec<Outcome>,
}

/// The 97.5 % points of Student's t for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

impl Repeated {
    /// A value of the outcomes, with its margin.
    pub fn spread(&self, value: impl Fn(&Outcome) -> f64) -> Spread {
        let values: Vec<f64> = self.outcomes.iter().map(value).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let Some(freedom) = values.len().checked_sub(2) else { return Spread { mean, margin: 0.0 } };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let t = STUDENT.get(freedom).copied().unwrap_or(1.96);
        Spread { mean, margin: t * (squares / (count - 1.0) / count).sqrt() }
    }

    /// The mean of a value.
    pub fn mean(&self, value: impl Fn(&Outcome) -> f64) -> f64 {
        self.spread(value).mean
    }
}

/// Simulates each setup with `seeds` seeds from `seed` on. Calls `tick` after each run.
///
/// # Errors
/// The first setup that cannot be.
pub fn repeat(
    setups: &[Setup],
    seeds: u64,
    seed: u64,
    tick: &(dyn Fn() + Sync),
) -> Result<Vec<Repeated>, Error> {
    setups.iter().try_for_each(Setup::check)?;
    let seeds = seeds.max(1) as usize;
    let jobs = setups.len() * seeds;
    let (next, done) = (AtomicUsize::new(0), Mutex::new((0..jobs).map(|_| None).collect::<Vec<_>>()));
    let work = || {
        loop {
            let job = next.fetch_add(1, Relaxed);
            if job >= jobs {
                return;
            }
            let outcome = run(&setups[job / seeds], seed.wrapping_add((job % seeds) as u64));
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[job] = Some(outcome);
            tick();
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        (1..workers.min(jobs)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let outcomes = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect::<Result<_, _>>()?;
    Ok(outcomes.chunks(seeds).map(|outcomes| Repeated { outcomes: outcomes.to_vec() }).collect())
}
