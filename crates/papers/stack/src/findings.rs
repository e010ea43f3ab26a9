//! The findings of the report on SCSI and NVMe (figures 5, 6 and 7), in the model.

use crate::costs::Costs;
use crate::machines::{machine, paper_load};
use crate::mechanism::Mechanisms;
use crate::meter::Outcome;
use crate::repeat::{Repeated, Spread, repeat};
use crate::setup::{Error, Load, Machine, Setup};
use crate::stacks::Stack;
use terapage_event::{MILLISECOND, Nanos};

/// The multiplicities to try, ascending.
pub const MULTIPLICITIES: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

/// The rates of the experiment, kIOPS.
pub const RATES_KIOPS: [u32; 13] = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1250];

/// A rate counts as reached if at least this share of it is. Chosen, not measured.
const REACHED: f64 = 0.995;

/// The report's experiment, or a variation of it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The machine.
    pub machine: Machine,
    /// The load, apart from rate and multiplicity.
    pub load: Load,
    /// What stages cost.
    pub costs: Costs,
    /// The enabled mechanisms.
    pub mechanisms: Mechanisms,
    /// Seeds for each point.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// Simulated time that is measured for each point, after a fifth of this as warm-up.
    pub measure_ns: Nanos,
}

impl Experiment {
    /// The report's experiment, with three seeds of 25 ms for each point.
    pub fn paper() -> Self {
        Experiment {
            machine: machine("haswell").expect("a machine of the model"),
            load: paper_load(),
            costs: Costs::builtin(),
            mechanisms: Mechanisms::all(),
            seeds: 3,
            seed: 1,
            measure_ns: 25 * MILLISECOND,
        }
    }

    /// One point of the experiment; without a rate, as many I/Os as possible.
    pub fn setup(&self, stack: Stack, rate_iops: Option<f64>, multiplicity: u32) -> Setup {
        Setup {
            stack,
            machine: self.machine.clone(),
            load: Load { rate_iops, multiplicity, ..self.load.clone() },
            costs: self.costs.clone(),
            mechanisms: self.mechanisms,
            warm_ns: self.measure_ns / 5,
            measure_ns: self.measure_ns,
        }
    }

    /// The points of `setups`.
    ///
    /// # Errors
    /// A setup is impossible.
    pub fn repeat(&self, setups: &[Setup], tick: &(dyn Fn() + Sync)) -> Result<Vec<Repeated>, Error> {
        repeat(setups, self.seeds, self.seed, tick)
    }

    /// The highest rate of each stack at each multiplicity (figure 7).
    ///
    /// # Errors
    /// A setup is impossible.
    pub fn highest(&self, stacks: &[Stack], tick: &(dyn Fn() + Sync)) -> Result<Vec<Highest>, Error> {
        let cases: Vec<_> = stacks
            .iter()
            .flat_map(|&stack| MULTIPLICITIES.map(|multiplicity| (stack, multiplicity)))
            .collect();
        let setups: Vec<_> =
            cases.iter().map(|&(stack, multiplicity)| self.setup(stack, None, multiplicity)).collect();
        let repeated = self.repeat(&setups, tick)?;
        let pairs = cases.into_iter().zip(repeated);
        let highest =
            pairs.map(|((stack, multiplicity), repeated)| Highest { stack, multiplicity, repeated });
        Ok(highest.collect())
    }

    /// Every rate of [`RATES_KIOPS`] that a stack reaches, at the least multiplicity that reaches
    /// it (figures 5 and 6).
    ///
    /// # Errors
    /// A setup is impossible.
    pub fn curve(&self, highest: &[Highest], tick: &(dyn Fn() + Sync)) -> Result<Vec<Point>, Error> {
        let mut cases = Vec::new();
        for first in highest.iter().filter(|highest| highest.multiplicity == MULTIPLICITIES[0]) {
            for kiops in RATES_KIOPS {
                let of_stack = highest.iter().filter(|highest| highest.stack == first.stack);
                let mut reach =
                    of_stack.filter(|highest| highest.iops().mean >= f64::from(kiops) * 1e3 * REACHED);
                cases.extend(reach.next().map(|highest| (first.stack, kiops, highest.multiplicity)));
            }
        }
        let setups: Vec<_> = cases
            .iter()
            .map(|&(stack, kiops, multiplicity)| {
                self.setup(stack, Some(f64::from(kiops) * 1e3), multiplicity)
            })
            .collect();
        let repeated = self.repeat(&setups, tick)?;
        let pairs = cases.into_iter().zip(repeated);
        let points = pairs.map(|((stack, kiops, multiplicity), repeated)| Point {
            stack,
            kiops,
            multiplicity,
            repeated,
        });
        Ok(points.collect())
    }

    /// The most runs of [`Experiment::findings`].
    pub fn runs(&self) -> u64 {
        2 * (MULTIPLICITIES.len() + RATES_KIOPS.len()) as u64 * self.seeds
    }

    /// Simulates figures 5 to 7 for SCSI and NVMe. It returns the results.
    ///
    /// # Errors
    /// A setup is impossible.
    pub fn findings(&self, tick: &(dyn Fn() + Sync)) -> Result<Findings, Error> {
        let highest = self.highest(&[Stack::Scsi, Stack::Nvme], tick)?;
        let curve = self.curve(&highest, tick)?;
        Ok(Findings::of(&highest, &curve))
    }
}

/// The highest rate of a stack at a multiplicity.
#[derive(Clone, Debug)]
pub struct Highest {
    /// The stack.
    pub stack: Stack,
    /// I/Os of a system call.
    pub multiplicity: u32,
    /// The runs.
    pub repeated: Repeated,
}

impl Highest {
    /// The rate, IOPS.
    pub fn iops(&self) -> Spread {
        self.repeated.spread(|outcome| outcome.iops)
    }
}

/// A stack at a rate.
#[derive(Clone, Debug)]
pub struct Point {
    /// The stack.
    pub stack: Stack,
    /// The rate that was asked for, kIOPS.
    pub kiops: u32,
    /// The least multiplicity that reaches it.
    pub multiplicity: u32,
    /// The runs.
    pub repeated: Repeated,
}

impl Point {
    /// Busy time for an I/O, us.
    pub fn busy_us(&self) -> f64 {
        self.repeated.mean(Outcome::total_us)
    }
}

/// The results of the report's figures, as numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// CPU use of SCSI divided by that of NVMe at 200 kIOPS.
    pub ratio_low: f64,
    /// The same at 800 kIOPS (figure 5: about 2).
    pub ratio_high: f64,
    /// Busy time for an I/O of SCSI at 200 kIOPS, us.
    pub scsi_low_us: f64,
    /// The highest busy time of SCSI up to 1000 kIOPS, us.
    pub scsi_peak_us: f64,
    /// The rate at which it is highest (figure 6: 600 to 900), kIOPS.
    pub scsi_peak_kiops: u32,
    /// The busy time of SCSI at the highest rate that is reached, us.
    pub scsi_last_us: f64,
    /// The highest rate that SCSI reaches, kIOPS.
    pub scsi_last_kiops: u32,
    /// The multiplicity that this rate needs.
    pub scsi_last_multiplicity: u32,
    /// Busy time of NVMe at 900 kIOPS divided by that at 200.
    pub nvme_change: f64,
    /// The greatest lead of NVMe over SCSI at multiplicities 2 to 4 (figure 7: 80), kIOPS.
    pub gap_kiops: f64,
}

impl Findings {
    /// The findings of one experiment's figures.
    pub fn of(highest: &[Highest], curve: &[Point]) -> Findings {
        let busy_us = |stack, kiops| {
            let mut points = curve.iter().filter(|point| point.stack == stack && point.kiops == kiops);
            points.next().map_or(f64::NAN, Point::busy_us)
        };
        let scsi = || curve.iter().filter(|point| point.stack == Stack::Scsi);
        let up_to_1000 = scsi().filter(|point| point.kiops <= 1000);
        let peak = up_to_1000.max_by(|a, b| a.busy_us().total_cmp(&b.busy_us()));
        let last = scsi().next_back();
        let rate = |stack, multiplicity| {
            let mut of =
                highest.iter().filter(|high| high.stack == stack && high.multiplicity == multiplicity);
            of.next().map_or(f64::NAN, |high| high.iops().mean / 1e3)
        };
        let gaps =
            (2..=4).map(|multiplicity| rate(Stack::Nvme, multiplicity) - rate(Stack::Scsi, multiplicity));
        Findings {
            ratio_low: busy_us(Stack::Scsi, 200) / busy_us(Stack::Nvme, 200),
            ratio_high: busy_us(Stack::Scsi, 800) / busy_us(Stack::Nvme, 800),
            scsi_low_us: busy_us(Stack::Scsi, 200),
            scsi_peak_us: peak.map_or(f64::NAN, Point::busy_us),
            scsi_peak_kiops: peak.map_or(0, |point| point.kiops),
            scsi_last_us: last.map_or(f64::NAN, Point::busy_us),
            scsi_last_kiops: last.map_or(0, |point| point.kiops),
            scsi_last_multiplicity: last.map_or(0, |point| point.multiplicity),
            nvme_change: busy_us(Stack::Nvme, 900) / busy_us(Stack::Nvme, 200),
            gap_kiops: gaps.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}
