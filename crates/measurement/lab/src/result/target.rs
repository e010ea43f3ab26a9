//! Targets: how a value is computed from several runs, and whether it meets the target.

use crate::contender::run::Run;
use crate::experiment::unit::{Side, Unit};
use crate::result::number::number;
use crate::workload::Pass;
use serde::Serialize;
use terapage_figures::median;

/// A target and the measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is measured.
    pub what: String,
    /// The side of the target on which the value must be.
    pub side: Side,
    /// The target.
    pub target: f64,
    /// The measured value; `None` if a contender is missing.
    pub value: Option<f64>,
    /// Whether the target is met; `None` if it was not measured, or is not decided.
    pub met: Option<bool>,
    /// Why the value does not decide.
    pub undecided: Option<Undecided>,
    /// Of a target that compares times: whether the runs behind it were disturbed.
    #[serde(skip)]
    pub disturbed: Option<bool>,
}

/// Why a value that was measured does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undecided {
    /// The runs were disturbed.
    Disturbed,
    /// The noise is larger than the distance from the bound.
    Noise,
}

impl Target {
    fn holds(&self, value: f64) -> bool {
        match self.side {
            Side::AtLeast => value >= self.target,
            Side::AtMost => value <= self.target,
            Side::Below => value < self.target,
            Side::Within => (value - 1.0).abs() <= self.target,
        }
    }

    /// Leaves open what disturbed runs, or a ratio nearer to the bound than the noise floor, would
    /// decide.
    pub fn judge(&mut self, disturbed: bool, floor: f64) {
        let Some(value) = self.value else { return };
        let (low, high) = (value / floor, value * floor);
        let misses = match self.side {
            Side::AtLeast => high < self.target,
            Side::AtMost => low > self.target,
            Side::Below => low >= self.target,
            Side::Within => high < 1.0 - self.target || low > 1.0 + self.target,
        };
        let is_clear = misses || self.holds(low) && self.holds(high);
        self.undecided = match (disturbed, is_clear) {
            (true, _) => Some(Undecided::Disturbed),
            (false, false) => Some(Undecided::Noise),
            (false, true) => return,
        };
        self.met = None;
    }
}

/// The runs of a cell, to be compared with targets.
pub struct Held<'a> {
    runs: &'a [Run],
    unit: Unit,
    /// The targets, in order.
    pub targets: Vec<Target>,
}

impl<'a> Held<'a> {
    /// No targets yet.
    pub fn new(unit: Unit, runs: &'a [Run]) -> Held<'a> {
        Held { runs, unit, targets: Vec::new() }
    }

    /// A contender's figure of a pass in each round.
    fn by_round(&self, contender: &str, pass: &str) -> Vec<Option<f64>> {
        self.by_round_with(contender, pass, |pass| Some(self.unit.of(pass)))
    }

    fn by_round_with(
        &self,
        contender: &str,
        pass: &str,
        figure: impl Fn(&Pass) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let rounds = self.runs.iter().map(|run| run.round).max().unwrap_or(0);
        let find = |round| {
            let run = self.runs.iter().find(|run| run.round == round && run.contender == contender)?;
            figure(run.passes.iter().find(|known| known.pass == pass)?)
        };
        (1..=rounds).map(find).collect()
    }

    /// Holds a value against a target.
    pub fn target(&mut self, what: impl Into<String>, side: Side, target: f64, value: Option<f64>) {
        let what = what.into();
        let mut held = Target { what, side, target, value, met: None, undecided: None, disturbed: None };
        held.met = value.map(|value| held.holds(value));
        self.targets.push(held);
    }

    /// Holds the median of per-round ratios of two (contender, pass) against a target.
    pub fn ratio(&mut self, one: (&str, &str), other: (&str, &str), side: Side, target: f64) {
        let name = |(contender, pass): (&str, &str)| format!("{contender} {pass}").trim_end().to_owned();
        let value =
            median_of_rounds(&self.by_round(one.0, one.1), &self.by_round(other.0, other.1), |a, b| a / b);
        self.target(format!("{} / {}", name(one), name(other)), side, target, value);
    }

    /// Like [`Held::ratio`] with `least`, or with 95 % of the device's bound if that is less. A
    /// pass over the data reads and writes all of them, for `depth` steps that each touch them
    /// once.
    pub fn bound(&mut self, one: (&str, &str), other: &str, device: &str, depth: f64, least: f64) {
        let in_memory = self.by_round(other, one.1);
        let value = median_of_rounds(&self.by_round(one.0, one.1), &in_memory, |a, b| a / b);
        let bound = median_of_rounds(&self.by_round(device, "rmw"), &in_memory, |a, b| a * depth / 2.0 / b);
        let what = format!("{} {} / {other}", one.0, one.1);
        match bound {
            Some(bound) => {
                let what = format!("{what}; the device's bound is {}", number(bound));
                self.target(what, Side::AtLeast, least.min(0.95 * bound), value);
            }
            None => self.target(what, Side::AtLeast, least, value),
        }
    }

    /// As [`Held::ratio`], for the difference.
    pub fn difference(&mut self, one: (&str, &str), other: (&str, &str), side: Side, target: f64) {
        let value =
            median_of_rounds(&self.by_round(one.0, one.1), &self.by_round(other.0, other.1), |a, b| a - b);
        let what = format!("{} {} - {} {}, {}", one.0, one.1, other.0, other.1, self.unit.name());
        self.target(what, side, target, value);
    }

    /// Compares the number of reads by `threads` threads in a time, as a multiple of that by one
    /// thread, with a target, or with the number that `device` itself does with the same number in
    /// flight, if that is less.
    pub fn scaling(&mut self, contender: &str, device: &str, threads: u32, target: f64) {
        let pass = format!("threads-{threads}");
        let of = |contender: &str| {
            let (one, several) = (self.by_round(contender, "threads-1"), self.by_round(contender, &pass));
            median_of_rounds(&one, &several, |one, several| f64::from(threads) * one / several)
        };
        let (value, most) = (of(contender), of(device));
        let what = format!("{contender}: reads/s of {threads} threads / 1");
        match most {
            Some(most) if most < target => {
                self.target(format!("{what}, as {device}"), Side::AtLeast, most, value);
            }
            _ => self.target(what, Side::AtLeast, target, value),
        }
    }

    /// Compares the ratio of bytes written to bytes read in a pass with a target.
    pub fn written_share(&mut self, contender: &str, pass: &str, target: f64) {
        let of = |get: fn(&Pass) -> Option<u64>| {
            self.by_round_with(contender, pass, |pass| get(pass).map(|bytes| bytes as f64))
        };
        let (read, written) = (of(|pass| pass.page_in_bytes), of(|pass| pass.page_out_bytes));
        let value = median_of_rounds(&written, &read, |written, read| written / read);
        self.target(
            format!("{contender} {pass}: written / read from the store"),
            Side::AtMost,
            target,
            value,
        );
    }

    /// Compares the peak memory of each contender that has a limit with that limit, in MiB.
    pub fn residents(&mut self) {
        for contender in in_order(self.runs.iter().map(|run| &run.contender)) {
            let runs = self.runs.iter().filter(|run| run.contender == contender);
            let worst = runs
                .filter_map(|run| Some((run.resident_peak_bytes, run.resident_limit_bytes?)))
                .max_by_key(|(peak, _)| *peak);
            if let Some((peak, limit)) = worst {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                self.target(format!("{contender}: resident, MiB"), Side::AtMost, mib(limit), Some(mib(peak)));
            }
        }
    }
}

/// The names in order of appearance, each once.
pub fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for name in names {
        if !known.contains(name) {
            known.push(name.clone());
        }
    }
    known
}

/// The median of the values that `combine` computes from both figures of a round. A round that
/// lacks one of them does not count; `None` if no round is left.
pub fn median_of_rounds(
    one: &[Option<f64>],
    other: &[Option<f64>],
    combine: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let both = one.iter().zip(other).filter_map(|(a, b)| Some(combine((*a)?, (*b)?)));
    median(&both.filter(|value| value.is_finite()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{Held, Undecided, median_of_rounds};
    use crate::contender::run::Run;
    use crate::experiment::unit::{Side, Unit};
    use crate::ground::runner::End;
    use crate::workload::Pass;

    fn run(round: u32, contender: &str, seconds: f64) -> Run {
        let pass = Pass {
            pass: "read".into(),
            seconds,
            bytes: 100 << 20,
            threads: 1,
            page_in_bytes: Some(1000),
            page_out_bytes: Some(5),
            ..Pass::default()
        };
        Run {
            round,
            contender: contender.into(),
            end: if seconds > 0.0 { End::Done } else { End::Killed },
            passes: if seconds > 0.0 { vec![pass] } else { Vec::new() },
            resident_peak_bytes: 3 << 20,
            resident_limit_bytes: (contender == "terapage").then_some(2 << 20),
            ..Run::default()
        }
    }

    #[test]
    fn targets_are_met_missed_or_not_measured() {
        let runs = [
            run(1, "fio", 1.0),
            run(1, "terapage", 2.0),
            run(1, "swap", 0.0),
            run(2, "terapage", 1.0),
            run(2, "fio", 1.0),
        ];
        let mut held = Held::new(Unit::Rate, &runs);
        held.ratio(("terapage", "read"), ("fio", "read"), Side::AtLeast, 0.7);
        held.ratio(("terapage", "read"), ("swap", "read"), Side::AtLeast, 5.0);
        held.written_share("terapage", "read", 0.01);
        held.residents();
        let met: Vec<_> = held.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(true), None, Some(true), Some(false)]);
        assert_eq!(held.targets[0].value, Some(0.75));
    }

    #[test]
    fn threads_are_held_against_what_the_device_gives() {
        let latency = |contender: &str, us: [f64; 3]| {
            let mut run = run(1, contender, 1.0);
            let one = run.passes.remove(0);
            let passes = [1, 2, 4].into_iter().zip(us).map(|(threads, us)| {
                let (pass, seconds) = (format!("threads-{threads}"), us / 1e6 / threads as f64);
                Pass { pass, seconds, bytes: 8, threads, ..one.clone() }
            });
            run.passes = passes.collect();
            run
        };
        let runs = vec![latency("terapage", [50.0, 50.0, 100.0]), latency("fio", [60.0, 75.0, 60.0])];
        let mut held = Held::new(Unit::Latency, &runs);
        for (threads, least) in [(2, 1.8), (4, 3.0)] {
            held.scaling("terapage", "fio", threads, least);
            held.scaling("terapage", "absent", threads, least);
        }
        let found: Vec<_> = held.targets.iter().map(|found| (found.value, found.target, found.met)).collect();
        let (double, less) = (Some(2.0), Some(false));
        let wanted =
            [(double, 1.6, Some(true)), (double, 1.8, Some(true)), (double, 3.0, less), (double, 3.0, less)];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found.1 - wanted.1).abs() < 1e-9 && found.2 == wanted.2, "{found:?}, not {wanted:?}");
            assert!(found.0.zip(wanted.0).is_some_and(|(one, other)| (one - other).abs() < 1e-9));
        }
        assert!(held.targets[0].what.ends_with("as fio") && !held.targets[2].what.contains("fio"));
    }

    #[test]
    fn noise_and_disturbed_runs_decide_nothing() {
        let judged = |value: f64, side: Side, target: f64, disturbed: bool, floor: f64| {
            let mut held = Held::new(Unit::Rate, &[]);
            held.target("a / b", side, target, Some(value));
            let mut one = held.targets.remove(0);
            one.judge(disturbed, floor);
            (one.met, one.undecided)
        };
        assert_eq!(judged(0.8, Side::AtLeast, 0.7, false, 1.1), (Some(true), None));
        assert_eq!(judged(0.8, Side::AtLeast, 0.7, false, 1.2), (None, Some(Undecided::Noise)));
        assert_eq!(judged(0.8, Side::AtLeast, 0.7, true, 1.0), (None, Some(Undecided::Disturbed)));
        assert_eq!(judged(0.5, Side::AtLeast, 0.7, false, 1.2), (Some(false), None));
        assert_eq!(judged(1.0, Side::Within, 0.05, false, 1.2), (None, Some(Undecided::Noise)));
        assert_eq!(judged(1.0, Side::Within, 0.05, false, 1.01), (Some(true), None));
        assert_eq!(judged(1.06, Side::Within, 0.05, false, 1.2), (None, Some(Undecided::Noise)));
        assert_eq!(judged(2.0, Side::Within, 0.05, false, 1.2), (Some(false), None));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The ratio of the medians would be 1; each round has another ratio.
        let a = [Some(1.0), Some(2.0), Some(3.0)];
        let b = [Some(2.0), Some(1.0), Some(3.0)];
        assert_eq!(median_of_rounds(&a, &b, |a, b| a / b), Some(1.0));
        let c = [Some(2.0), Some(8.0), None];
        assert_eq!(median_of_rounds(&c, &b, |a, b| a / b), Some(4.5));
        assert_eq!(median_of_rounds(&[None], &[Some(1.0)], |a, b| a / b), None);
        assert_eq!(median_of_rounds(&[Some(1.0)], &[Some(0.0)], |a, b| a / b), None);
    }
}
