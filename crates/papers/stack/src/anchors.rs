//! Anchors: published results of other authors, and the model's values for them.

use crate::costs::Costs;
use crate::findings::Experiment;
use crate::lock::Kind;
use crate::machines::machine;
use crate::mechanism::Mechanisms;
use crate::meter::Outcome;
use crate::repeat::Repeated;
use crate::setup::{Error, Load, Setup};
use crate::stacks::Stack;
use terapage_event::MILLISECOND;

/// The quantity that an anchor compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Thousands of I/Os a second.
    Kiops,
    /// The percentage of the busy time that is spent waiting for the lock.
    Contention,
    /// CPU cycles for an I/O.
    Cycles,
}

/// A published result.
#[derive(Clone, Debug)]
pub struct Anchor {
    /// What was measured.
    pub name: &'static str,
    /// What is compared.
    pub quantity: Quantity,
    /// The published range: the least and the greatest value.
    pub published: (f64, f64),
    /// Whether a cost was fitted to it. Otherwise it is a test of the model.
    pub fitted: bool,
    /// Who published it.
    pub source: &'static str,
    /// The setup of the same experiment in the model.
    pub setup: Setup,
}

impl Anchor {
    /// The model's value.
    pub fn value(&self, outcome: &Outcome) -> f64 {
        match self.quantity {
            Quantity::Kiops => outcome.iops / 1e3,
            Quantity::Contention => outcome.contention() * 100.0,
            Quantity::Cycles => outcome.total_us() * 1e3 * self.setup.machine.ghz,
        }
    }
}

const DEADLINE: &str = "patches to mq-deadline, linux-block, 18 Jan 2024 (16 cores, 32 threads)";
const BFQ: &str = "commit to bfq: separate insertion lists, 2024 (on an NVMe device)";
const URING: &str = "io_uring, polled, one core, as reported; the machine is not given";

fn setup(name: &str, stack: Stack, (threads, calls_in_flight, multiplicity): (u32, u32, u32)) -> Setup {
    Setup {
        stack,
        machine: machine(name).expect("a machine of the model"),
        load: Load::unpaced(threads, calls_in_flight, multiplicity),
        costs: Costs::builtin(),
        mechanisms: Mechanisms::all(),
        warm_ns: 4 * MILLISECOND,
        measure_ns: 20 * MILLISECOND,
    }
}

/// All anchors, with these costs.
pub fn anchors(costs: &Costs) -> Vec<Anchor> {
    let desktop = |stack| setup("desktop", stack, (32, 1, 4));
    let anchor = |name, quantity, published: f64, fitted, source, setup| Anchor {
        name,
        quantity,
        published: (published, published),
        fitted,
        source,
        setup,
    };
    let polled = |calls, multiplicity| setup("polled", Stack::Uring, (1, calls, multiplicity));
    let direct = Experiment::paper().setup(Stack::Nvme, Some(100e3), 1);
    let mut anchors = vec![
        anchor("mq-deadline", Quantity::Kiops, 879.0, true, DEADLINE, desktop(Stack::Deadline)),
        anchor("mq-deadline", Quantity::Contention, 94.0, true, DEADLINE, desktop(Stack::Deadline)),
        anchor("BFQ", Quantity::Kiops, 567.0, true, BFQ, desktop(Stack::Bfq)),
        anchor("BFQ", Quantity::Contention, 96.0, false, BFQ, desktop(Stack::Bfq)),
        anchor("io_uring, depth 128", Quantity::Kiops, 2600.0, true, URING, polled(4, 32)),
        anchor("io_uring, depth 1", Quantity::Kiops, 290.0, true, URING, polled(1, 1)),
        Anchor {
            name: "O_DIRECT, NVMe at 100 kIOPS",
            quantity: Quantity::Cycles,
            published: (10_000.0, 20_000.0),
            fitted: false,
            source: "direct I/O on Haswell, as reported: 10 to 20 thousand cycles",
            setup: direct,
        },
    ];
    anchors.iter_mut().for_each(|anchor| anchor.setup.costs = costs.clone());
    anchors
}

/// Runs of mq-deadline on the desktop, with each kind of lock and more and more threads: (kind,
/// threads, runs).
///
/// # Errors
/// A setup that cannot be.
pub fn lock_scaling(
    experiment: &Experiment,
    tick: &(dyn Fn() + Sync),
) -> Result<Vec<(Kind, u32, Repeated)>, Error> {
    let cases: Vec<(Kind, u32)> =
        Kind::ALL.into_iter().flat_map(|kind| LOCK_THREADS.map(|threads| (kind, threads))).collect();
    let setups: Vec<Setup> = cases
        .iter()
        .map(|&(kind, threads)| {
            let mut setup = setup("desktop", Stack::Deadline, (threads, 1, 4));
            setup.machine.lock = kind;
            setup.costs = experiment.costs.clone();
            setup.mechanisms = experiment.mechanisms;
            setup.measure_ns = experiment.measure_ns;
            setup
        })
        .collect();
    let repeated = experiment.repeat(&setups, tick)?;
    Ok(cases.into_iter().zip(repeated).map(|((kind, threads), repeated)| (kind, threads, repeated)).collect())
}

/// The numbers of threads of [`lock_scaling`].
pub const LOCK_THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// The bound of the report's machine: cycles of all cores for each of 1300 k I/Os a second.
pub fn cycles_bound() -> f64 {
    let machine = Experiment::paper().machine;
    f64::from(machine.cores) * machine.ghz * 1e9 / machine.front_end_iops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_what_was_published() {
        for anchor in anchors(&Costs::builtin()) {
            let value = anchor.value(&crate::run(&anchor.setup, 1).unwrap());
            let (low, high) = anchor.published;
            let slack = 0.02 * high;
            assert!(
                (low - slack..=high + slack).contains(&value),
                "{} {:?}: {value}",
                anchor.name,
                anchor.quantity
            );
        }
        assert!((cycles_bound() - 20_000.0).abs() < 1e-6);
    }
}
