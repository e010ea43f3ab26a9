//! Runs a setup with several seeds, on all CPUs of this machine.

use crate::meter::Outcome;
use crate::setup::{Error, Setup};
use crate::simulator::run;
use terapage_figures::{Mean, try_map};

/// A value over several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % interval of the mean (Student's t); `None` for one seed.
    pub margin: Option<f64>,
}

impl Spread {
    /// The mean and, if known, its margin, in units of `unit`.
    pub fn shown(&self, unit: f64, digits: usize) -> String {
        let mean = format!("{:.digits$}", self.mean / unit);
        match self.margin {
            Some(margin) => format!("{mean} ±{:.digits$}", margin / unit),
            None => mean,
        }
    }
}

/// The outcomes of a setup, one for each seed.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// The outcomes in the order of the seeds.
    pub outcomes: Vec<Outcome>,
}

impl Repeated {
    /// A value of the outcomes, with its margin.
    pub fn spread(&self, value: impl Fn(&Outcome) -> f64) -> Spread {
        let values: Vec<f64> = self.outcomes.iter().map(value).collect();
        let Mean { mean, margin, .. } = terapage_figures::mean(&values);
        Spread { mean, margin }
    }

    /// The mean of a value.
    pub fn mean(&self, value: impl Fn(&Outcome) -> f64) -> f64 {
        self.spread(value).mean
    }
}

/// Simulates each setup with `seeds` seeds from `seed` on. Calls `tick` after each run.
///
/// # Errors
/// The first setup that is impossible.
pub fn repeat(
    setups: &[Setup],
    seeds: u64,
    seed: u64,
    tick: &(dyn Fn() + Sync),
) -> Result<Vec<Repeated>, Error> {
    setups.iter().try_for_each(Setup::check)?;
    let seeds = seeds.max(1) as usize;
    let outcomes = try_map(setups.len() * seeds, |job| {
        let outcome = run(&setups[job / seeds], seed.wrapping_add((job % seeds) as u64));
        tick();
        outcome
    })?;
    Ok(outcomes.chunks(seeds).map(|outcomes| Repeated { outcomes: outcomes.to_vec() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Experiment;
    use crate::stacks::Stack;

    #[test]
    fn a_margin_takes_two_seeds() {
        let outcome = run(&Experiment::paper().setup(Stack::Nvme, Some(100e3), 1), 1).unwrap();
        let with_iops = |iops| Outcome { iops, ..outcome.clone() };
        let one = Repeated { outcomes: vec![with_iops(2e3)] }.spread(|outcome| outcome.iops);
        assert_eq!((one.margin, one.shown(1e3, 1)), (None, "2.0".to_string()));
        let two = Repeated { outcomes: vec![with_iops(1e3), with_iops(3e3)] }.spread(|outcome| outcome.iops);
        assert_eq!(two.shown(1e3, 1), "2.0 ±12.7");
    }

    #[test]
    fn outcomes_come_in_the_order_of_setups_and_seeds() {
        let experiment = Experiment { measure_ns: 1_000_000, ..Experiment::paper() };
        let setups = [100e3, 300e3].map(|rate| experiment.setup(Stack::Nvme, Some(rate), 1));
        let repeated = repeat(&setups, 2, 7, &|| {}).unwrap();
        assert_eq!(repeated[1].outcomes[1], run(&setups[1], 8).unwrap());
        assert_eq!(repeated[0].outcomes[0], run(&setups[0], 7).unwrap());
    }
}
