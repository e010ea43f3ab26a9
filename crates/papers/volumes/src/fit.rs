//! The fit of the unknown parameters of the paper's simulation to its seven gains.

use crate::case::{Case, CaseError};
use crate::estimate::{Uncertainty, least_squares_step, uncertainties};
use crate::gains::{MeanGain, gain_percent, simulate_all};
use crate::minimum::minimum;
use crate::published::{FG_TLC_PERCENT, GAINS};
use crate::workload::Workload;
use serde::Serialize;

/// A parameter of the fit that can have any value in its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Unknown {
    /// Its name.
    pub name: &'static str,
    /// The name of its setting.
    pub setting: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The least and the greatest value that the fit tries.
    pub bounds: (f64, f64),
    /// The value at which the fit begins.
    pub start: f64,
}

/// The unknowns: the size of the SCM, and three properties of 3D CT TLC. The other properties of
/// that chip come from its profile, like all those of 2D FG MLC.
pub const UNKNOWNS: [Unknown; 4] = [
    Unknown { name: "SCM / NAND", setting: "scm", unit: "%", bounds: (1.0, 10.0), start: 5.0 },
    Unknown {
        name: "3D CT TLC program time of a page",
        setting: "program",
        unit: "us",
        bounds: (550.0, 800.0),
        start: 700.0,
    },
    Unknown { name: "3D CT TLC read time", setting: "read", unit: "us", bounds: (60.0, 95.0), start: 78.0 },
    Unknown { name: "3D CT TLC bus", setting: "bus", unit: "MB/s", bounds: (330.0, 600.0), start: 430.0 },
];

/// The number of whole numbers that are fitted besides [`UNKNOWNS`]: those of a [`Structure`].
pub const WHOLE_NUMBERS: usize = 3;

/// The remaining degrees of freedom: gains less fitted values, including the whole numbers.
pub const FREEDOM: usize = GAINS.len().saturating_sub(UNKNOWNS.len() + WHOLE_NUMBERS);

/// The whole numbers of the fit. All combinations are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Structure {
    /// Channels of the SSD.
    pub channels: u32,
    /// Dies of a channel.
    pub dies: u32,
    /// Pages that 3D CT TLC programs at the same time.
    pub write_unit: u32,
}

/// The options of a fit.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything that is not fitted.
    pub base: Case,
    /// The structures to try.
    pub structures: Vec<Structure>,
    /// The calls for each structure in the first search.
    pub calls_first: usize,
    /// The seeds for the best structure. Its gains are means over these, since single gains vary by
    /// tenths of a percentage point.
    pub seeds: u64,
    /// The number of threads that simulate.
    pub threads: usize,
}

impl Plan {
    /// The usual fit.
    pub fn new(base: Case, threads: usize) -> Plan {
        let shapes = [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (4, 2, 1), (1, 2, 3)];
        let structures =
            shapes.map(|(channels, dies, write_unit)| Structure { channels, dies, write_unit }).to_vec();
        Plan { base, structures, calls_first: 9, seeds: 3, threads }
    }

    /// Roughly the number of simulations for the fit.
    pub fn simulations(&self) -> u64 {
        let steps = STEPS_MAX * (2 * UNKNOWNS.len() + 2);
        let calls = self.structures.len() * (self.calls_first + 2) + steps * self.seeds as usize;
        (calls * GAINS.len() * 2 + 2 * READING_STEPS * GAINS.len()) as u64
    }
}

/// The result of a fit.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// Each structure with its sum of squared residuals in the first search, in squared percentage
    /// points; gains of the wrong sign have more weight.
    pub structures: Vec<(Structure, f64)>,
    /// The best structure.
    pub structure: Structure,
    /// The value of each of [`UNKNOWNS`].
    pub values: Vec<f64>,
    /// How well each unknown would be determined if the structure were given; `None` if the data
    /// cannot distinguish them.
    #[serde(skip)]
    pub uncertainties: Option<Vec<Uncertainty>>,
    /// The correlations of the unknowns.
    pub correlations: Vec<Vec<f64>>,
    /// The gains, in percent, in the order of [`GAINS`].
    pub gains: Vec<f64>,
    /// The standard deviations of the gains over seeds, in percentage points.
    pub spreads: Vec<f64>,
    /// The change of each gain, in percentage points, if an unknown grows by one unit.
    pub jacobian: Vec<Vec<f64>>,
    /// The sum of squared residuals, in squared percentage points.
    pub squares: f64,
    /// Both readings of the paper's 54 %.
    pub readings: Vec<Reading>,
}

/// A reading of "up to 54 %" for 3D FG TLC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The text of the reading.
    pub text: &'static str,
    /// The gain of the volume that falls most, in percent.
    pub percent: f64,
    /// The program time of a page with this gain, in microseconds; `None` if no time in the range
    /// has it.
    pub program_us: Option<f64>,
    /// The volume that falls most.
    pub volume: String,
}

/// Steps of the search for a reading's program time. Chosen, not measured.
const READING_STEPS: usize = 9;
/// The range of that search, in microseconds.
const READING_US: (f64, f64) = (700.0, 6000.0);

/// Fits [`UNKNOWNS`] and a [`Structure`] to [`GAINS`]. `workloads` are the volumes of the gains, in
/// the same order. `progress` is called after each simulation.
///
/// # Errors
/// The first simulation that fails.
pub fn fit(plan: &Plan, workloads: &[Workload], mut progress: impl FnMut()) -> Result<Fit, CaseError> {
    let mut error = None;
    let mut model = Model { plan, workloads, progress: &mut progress, error: &mut error };
    let start: Vec<f64> = UNKNOWNS.iter().map(|unknown| unknown.start).collect();
    let mut first: Vec<(Structure, f64, Vec<f64>)> = Vec::new();
    for &structure in &plan.structures {
        let found = model.search(structure, &start, plan.calls_first);
        first.push((structure, found.value, found.point));
    }
    let best = first.iter().min_by(|a, b| a.1.total_cmp(&b.1)).cloned();
    let (structure, _, mut point) =
        best.unwrap_or((Structure { channels: 1, dies: 1, write_unit: 1 }, 0.0, start));
    let mut gains = model.gains(structure, &point, plan.seeds);
    let mut jacobian = model.jacobian(structure, &point);
    for _ in 0..STEPS_MAX {
        let Some(better) = model.step(structure, &point, &means(&gains), &jacobian) else { break };
        (point, gains) = better;
        jacobian = model.jacobian(structure, &point);
    }
    let readings = model.readings(structure, &point);
    if let Some(error) = error {
        return Err(error);
    }
    let spreads = gains.iter().map(|gain| gain.spread).collect();
    let gains = means(&gains);
    let residuals = residuals(&gains);
    let (uncertainties, correlations) = match uncertainties(&jacobian, &residuals, ROUNDING) {
        Some((uncertainties, correlations)) => (Some(uncertainties), correlations),
        None => (None, Vec::new()),
    };
    Ok(Fit {
        structures: first.iter().map(|(structure, squares, _)| (*structure, *squares)).collect(),
        structure,
        values: point,
        uncertainties,
        correlations,
        squares: residuals.iter().map(|residual| residual * residual).sum(),
        gains,
        spreads,
        jacobian,
        readings,
    })
}

/// Gauss-Newton steps after the search. Chosen, not measured.
const STEPS_MAX: usize = 3;

fn means(gains: &[MeanGain]) -> Vec<f64> {
    gains.iter().map(|gain| gain.mean).collect()
}

fn residuals(gains: &[f64]) -> Vec<f64> {
    gains.iter().zip(GAINS).map(|(gain, target)| gain - target.percent).collect()
}

fn total_cost(gains: &[f64]) -> f64 {
    gains.iter().zip(GAINS).map(|(gain, target)| cost(*gain, target.percent)).sum()
}

/// The squared residual. Signs are published, too: a gain of the wrong sign costs half a squared
/// percentage point more, and its square counts twenty times.
fn cost(gain: f64, published: f64) -> f64 {
    let square = (gain - published).powi(2);
    if gain * published > 0.0 { square } else { 0.5 + 20.0 * square }
}

/// The standard deviation of rounding to a tenth.
const ROUNDING: f64 = 0.029;

impl Fit {
    /// Whether the data would determine an unknown if the structure were given: its interval is
    /// less than half of the searched range, and its value is not at an end of the range.
    pub fn is_determined(&self, unknown: usize) -> bool {
        let (low, high) = UNKNOWNS[unknown].bounds;
        let value = self.values[unknown];
        let inside = value > low + 0.01 * (high - low) && value < high - 0.01 * (high - low);
        let half = self.uncertainties.as_ref().map_or(f64::INFINITY, |all| all[unknown].half_interval);
        inside && 2.0 * half < 0.5 * (high - low)
    }
}

struct Model<'a> {
    plan: &'a Plan,
    workloads: &'a [Workload],
    progress: &'a mut dyn FnMut(),
    error: &'a mut Option<CaseError>,
}

impl Model<'_> {
    fn search(&mut self, structure: Structure, start: &[f64], calls: usize) -> crate::Minimum {
        let bounds: Vec<(f64, f64)> = UNKNOWNS.iter().map(|unknown| unknown.bounds).collect();
        minimum(&bounds, start, 0.12, 2e-3, calls, |point| {
            total_cost(&means(&self.gains(structure, point, 1)))
        })
    }

    /// The seven gains over several seeds. After an error, which is kept, they have no meaning.
    fn gains(&mut self, structure: Structure, point: &[f64], seeds: u64) -> Vec<MeanGain> {
        let first = self.plan.base.seed;
        let cases: Vec<Case> = (first..first + seeds)
            .flat_map(|seed| [false, true].map(|ct| Case { seed, ..self.case(structure, point, ct) }))
            .collect();
        self.outcomes(&cases).iter().map(|outcomes| MeanGain::of(outcomes)).collect()
    }

    fn outcomes(&mut self, cases: &[Case]) -> Vec<Vec<terapage_hybrid::Outcome>> {
        if self.error.is_some() {
            return Vec::new();
        }
        let outcomes = simulate_all(cases, self.workloads, self.plan.threads, &mut *self.progress);
        outcomes.unwrap_or_else(|error| {
            *self.error = Some(error);
            Vec::new()
        })
    }

    fn case(&self, structure: Structure, point: &[f64], ct: bool) -> Case {
        let mut case = self.plan.base.clone();
        case.ssd.channels = structure.channels;
        case.ssd.dies_per_channel = structure.dies;
        case.scm = crate::Amount::Share(point[0] / 100.0);
        if ct {
            if let Ok(chips) = terapage_ssd::Profile::by_name("3d-ct-tlc") {
                case.ssd.nand = chips;
            }
            let nand = &mut case.ssd.nand;
            nand.set_write_unit(structure.write_unit);
            nand.program_ns = vec![(point[1] * 1e3 * f64::from(structure.write_unit)) as u64];
            nand.read_ns = vec![(point[2] * 1e3) as u64];
            nand.bus_bytes_per_second = (point[3] * 1e6) as u64;
        }
        case
    }

    /// A better point and its gains, in the direction of the least sum of squares for linear gains.
    fn step(
        &mut self,
        structure: Structure,
        point: &[f64],
        gains: &[f64],
        jacobian: &[Vec<f64>],
    ) -> Option<(Vec<f64>, Vec<MeanGain>)> {
        let step = least_squares_step(jacobian, &residuals(gains))?;
        for part in [1.0, 0.5, 0.25] {
            let moved = point.iter().zip(&step).zip(UNKNOWNS);
            let next: Vec<f64> = moved
                .map(|((at, step), Unknown { bounds: (low, high), .. })| {
                    // The gains are linear only for small steps.
                    let far = 0.12 * (high - low);
                    (at + part * step.clamp(-far, far)).clamp(low, high)
                })
                .collect();
            let gains_next = self.gains(structure, &next, self.plan.seeds);
            if self.error.is_none() && total_cost(&means(&gains_next)) < total_cost(gains) {
                return Some((next, gains_next));
            }
        }
        None
    }

    /// By central differences over an eighth of each range: smaller steps would be lost in the
    /// jumps of the gains when two requests change their order.
    fn jacobian(&mut self, structure: Structure, point: &[f64]) -> Vec<Vec<f64>> {
        let mut columns = Vec::new();
        for (number, unknown) in UNKNOWNS.iter().enumerate() {
            let (low, high) = unknown.bounds;
            let step = 0.0625 * (high - low);
            let (mut below, mut above) = (point.to_vec(), point.to_vec());
            below[number] = (point[number] - step).max(low);
            above[number] = (point[number] + step).min(high);
            let seeds = self.plan.seeds;
            let lower = means(&self.gains(structure, &below, seeds));
            let upper = means(&self.gains(structure, &above, seeds));
            let width = above[number] - below[number];
            columns.push(upper.iter().zip(&lower).map(|(u, l)| (u - l) / width).collect::<Vec<f64>>());
        }
        (0..columns[0].len()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
    }

    /// The program times of 3D FG TLC for both readings, by bisection: slower programs give fewer
    /// IOPS.
    fn readings(&mut self, structure: Structure, point: &[f64]) -> Vec<Reading> {
        let texts =
            [("falls by 54 % at most", -FG_TLC_PERCENT), ("falls to 54 % at most", FG_TLC_PERCENT - 100.0)];
        let base = self.case(structure, point, false);
        let bases = self.outcomes(std::slice::from_ref(&base));
        let mut readings = Vec::new();
        for (text, percent) in texts {
            let (mut low, mut high) = READING_US;
            let mut volume = String::new();
            for _ in 0..READING_STEPS {
                let middle = (low * high).sqrt();
                let mut case = base.clone();
                if let Ok(chips) = terapage_ssd::Profile::by_name("3d-fg-tlc") {
                    case.ssd.nand = chips;
                }
                let unit = u64::from(case.ssd.nand.write_unit);
                case.ssd.nand.program_ns = vec![(middle * 1e3) as u64 * unit];
                let outcomes = self.outcomes(&[case]);
                let gains =
                    bases.iter().zip(&outcomes).map(|(base, other)| gain_percent(&base[0], &other[0]));
                let names = self.workloads.iter().map(|workload| &workload.name);
                let Some((worst, name)) = gains.zip(names).min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
                volume.clone_from(name);
                if worst < percent { high = middle } else { low = middle }
            }
            let found = low > READING_US.0 && high < READING_US.1;
            let program_us = found.then_some((low * high).sqrt());
            readings.push(Reading { text, percent, program_us, volume });
        }
        readings
    }
}
