//! A prediction beyond the report: the multi-queue stacks at the load of its figures, with the
//! model's uncertainty.

use crate::costs::Costs;
use crate::findings::Experiment;
use crate::repeat::repeat;
use crate::setup::{Error, Setup};
use crate::stacks::Stack;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use terapage_figures::Origin;

/// The stacks that are compared.
pub const COMPARED: [Stack; 4] = [Stack::Scsi, Stack::Nvme, Stack::MqScsi, Stack::MqNvme];

/// The uncertainty of an unpublished value: it is multiplied by a factor from 1 / `DOUBT` to
/// `DOUBT`, logarithmically uniform. Chosen, not measured.
pub const DOUBT: f64 = 1.4;

/// The rate at which the stacks are compared, IOPS: within figure 6's peak, and reached by all at
/// multiplicity 1.
pub const RATE_IOPS: f64 = 700e3;

/// The published finding that a draw must reproduce: SCSI takes about twice the CPU of NVMe.
pub const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.7..=2.3;

/// One draw of the unknown values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Busy time for an I/O, us, of [`COMPARED`].
    pub busy_us: [f64; 4],
}

impl Draw {
    /// Busy time of a stack divided by that of NVMe on bios.
    pub fn over_nvme(&self, stack: Stack) -> f64 {
        let place = COMPARED.iter().position(|&compared| compared == stack).unwrap_or(1);
        self.busy_us[place] / self.busy_us[1]
    }

    /// Whether the draw agrees with the published finding.
    pub fn is_plausible(&self) -> bool {
        PLAUSIBLE.contains(&self.over_nvme(Stack::Scsi))
    }
}

/// Simulates `count` draws of all unpublished costs and machine values.
///
/// # Errors
/// A setup that cannot be.
pub fn draws(experiment: &Experiment, count: u32, tick: &(dyn Fn() + Sync)) -> Result<Vec<Draw>, Error> {
    let mut rng = Pcg64Mcg::seed_from_u64(experiment.seed);
    let setups: Vec<Setup> = (0..count)
        .flat_map(|_| {
            let drawn = draw(experiment, &mut rng);
            COMPARED.map(|stack| drawn.setup(stack, Some(RATE_IOPS), 1))
        })
        .collect();
    let repeated = repeat(&setups, 1, experiment.seed, tick)?;
    let busy_us: Vec<f64> =
        repeated.iter().map(|repeated| repeated.mean(crate::meter::Outcome::total_us)).collect();
    let (draws, _) = busy_us.as_chunks::<4>();
    Ok(draws.iter().map(|&busy_us| Draw { busy_us }).collect())
}

/// The experiment with other unpublished values.
fn draw(experiment: &Experiment, rng: &mut impl Rng) -> Experiment {
    let mut factor = || DOUBT.powf(rng.random_range(-1.0..1.0));
    let mut drawn = experiment.clone();
    drawn.costs = draw_costs(&experiment.costs, &mut factor);
    drawn.machine.transfer_ns *= factor();
    // The range from no gain by a sibling to nearly a whole core.
    drawn.machine.smt_speed = (drawn.machine.smt_speed * factor().sqrt()).clamp(0.5, 0.95);
    drawn
}

fn draw_costs(costs: &Costs, factor: &mut impl FnMut() -> f64) -> Costs {
    let unsure = costs.all().filter(|(_, cost)| cost.origin != Origin::Published);
    let mut drawn = costs.clone();
    for (name, cost) in unsure {
        drawn.set(name, cost.value * factor()).expect("a known cost, and in range");
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_come_again_with_the_seed() {
        let experiment = Experiment { measure_ns: 2_000_000, ..Experiment::paper() };
        let first = draws(&experiment, 3, &|| {}).unwrap();
        assert_eq!(first, draws(&experiment, 3, &|| {}).unwrap());
        assert_ne!(first[0], first[1]);
    }
}
