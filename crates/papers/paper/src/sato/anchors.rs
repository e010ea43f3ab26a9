//! Published results of other authors, beside the model's.

use crate::stack::Figures;
use crate::stack::options::{Options, parameters};
use serde_json::{Value, json};
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::progress::Progress;
use terapage_stack::{
    Anchor, Experiment, GUEST_MULTIPLICITIES, GUEST_PATHS, GUEST_SOURCE, LOCK_THREADS, LockKind, Outcome,
    Quantity, Repeated, anchors, cycles_bound, guest_setup, kernel_cycles, lock_scaling, repeat, run,
};

/// Published results of other authors, beside the model's.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn anchored(options: &Options) -> anyhow::Result<(Study, Value)> {
    let experiment = options.experiment()?;
    let mut anchors = anchors(&experiment.costs);
    for anchor in &mut anchors {
        anchor.setup.mechanisms = experiment.mechanisms;
        anchor.setup.measure_ns = experiment.measure_ns;
    }
    let setups: Vec<_> = anchors.iter().map(|anchor| anchor.setup.clone()).collect();
    let progress =
        Progress::new("simulating", (setups.len() + 3 * LOCK_THREADS.len()) as u64 * options.seeds());
    let tick = || progress.add(1);
    let repeated = repeat(&setups, options.seeds(), options.seed, &tick)?;
    let scaling = lock_scaling(&experiment, &tick)?;
    let counted = counted(&experiment, options.seed)?;
    drop(progress);
    let mut study = options.study("Published results, and the model", "paper run sato anchors");
    study.summary = vec![
        "Rows marked 'fitted' gave the model a cost; the others test it.".into(),
        format!(
            "The bound of the report's machine: 10 cores x 2.6 GHz / 1300 kIOPS = {:.0} cycles for an I/O.",
            cycles_bound()
        ),
        counted_finding(&counted),
    ];
    study.parameters = parameters(&experiment.costs, &["desktop", "polled"])?;
    study.tables = vec![table(&anchors, &repeated), counted_table(&counted), scaling_table(&scaling)];
    study.plots = vec![scaling_plot(&scaling)];
    let result = |(anchor, repeated): (&Anchor, &Repeated)| {
        let value = repeated.mean(|outcome| anchor.value(outcome));
        let seeds = Figures::all(repeated, options.seed);
        json!({ "anchor": anchor.name, "published": anchor.published, "model": value, "seeds": seeds })
    };
    Ok((study, anchors.iter().zip(&repeated).map(result).collect()))
}

fn table(anchors: &[Anchor], repeated: &[Repeated]) -> Table {
    let row = |(anchor, repeated): (&Anchor, &Repeated)| {
        let (low, high) = anchor.published;
        let spread = repeated.spread(|outcome| anchor.value(outcome));
        let unit = match anchor.quantity {
            Quantity::Kiops => "kIOPS",
            Quantity::Contention => "% contention",
            Quantity::Cycles => "cycles",
        };
        let digits = if anchor.quantity == Quantity::Contention { 1 } else { 0 };
        let published = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let model = spread.shown(1.0, digits);
        let role = if anchor.fitted { "fitted" } else { "test" };
        vec![anchor.name.into(), unit.into(), published, model, role.into()]
    };
    Table {
        title: "Anchors".into(),
        columns: ["result", "unit", "published", "model", "role"].map(String::from).into(),
        rows: anchors.iter().zip(repeated).map(row).collect(),
        note: "± is half of the 95 % interval over the seeds.".into(),
    }
}

/// The greatest difference allowed between the model's work and the counted work.
const GOAL: f64 = 0.15;

/// Counted instructions of a path, beside the model's cycles.
struct Counted {
    path: &'static str,
    multiplicity: u32,
    instructions: f64,
    cycles: f64,
    /// Both as shares of those of the first path with one I/O per call.
    shares: [f64; 2],
}

impl Counted {
    fn off(&self) -> f64 {
        self.shares[1] / self.shares[0] - 1.0
    }
}

fn counted(experiment: &Experiment, seed: u64) -> anyhow::Result<Vec<Counted>> {
    let mut all: Vec<Counted> = Vec::new();
    for path in &GUEST_PATHS {
        for (multiplicity, instructions) in GUEST_MULTIPLICITIES.into_iter().zip(path.instructions) {
            let mut setup = guest_setup(&experiment.costs, experiment.mechanisms, path, multiplicity);
            setup.measure_ns = experiment.measure_ns;
            let (instructions, cycles) =
                (f64::from(instructions), kernel_cycles(&setup, &run(&setup, seed)?));
            let first = all.first().map_or((instructions, cycles), |one| (one.instructions, one.cycles));
            let shares = [instructions / first.0, cycles / first.1];
            all.push(Counted { path: path.name, multiplicity, instructions, cycles, shares });
        }
    }
    Ok(all)
}

fn counted_finding(counted: &[Counted]) -> String {
    let held_out = &counted[1..];
    let within = held_out.iter().filter(|one| one.off().abs() <= GOAL).count();
    let worst = held_out.iter().max_by(|a, b| a.off().abs().total_cmp(&b.off().abs()));
    let worst = worst.map_or_else(String::new, |one| {
        let (off, path, ios) = (one.off() * 100.0, one.path, one.multiplicity);
        format!("; the largest difference is {off:+.0} %, of {path} with {ios} I/Os a call")
    });
    format!(
        "Held out: of {} ratios between paths that were counted in a guest, the model gives {within} within {:.0} %{worst}.",
        held_out.len(),
        GOAL * 100.0
    )
}

fn counted_table(counted: &[Counted]) -> Table {
    let row = |one: &Counted| {
        vec![
            one.path.into(),
            one.multiplicity.to_string(),
            format!("{:.0}", one.instructions),
            format!("{:.0}", one.cycles),
            format!("{:.2}", one.shares[0]),
            format!("{:.2}", one.shares[1]),
            format!("{:+.0} %{}", one.off() * 100.0, if one.off().abs() > GOAL { "  OUTSIDE" } else { "" }),
        ]
    };
    let columns = ["path", "I/Os a call", "instructions", "cycles", "counted", "model", "off"];
    let why = why_low(counted).unwrap_or_default();
    Table {
        title: "The kernel's work for an I/O, counted in a guest and in the model".into(),
        columns: columns.map(String::from).into(),
        rows: counted.iter().map(row).collect(),
        note: format!(
            "Instructions: {GUEST_SOURCE}. Cycles: the model's, of the kernel, on one CPU. Instructions are not cycles, so \
             the last columns compare shares of the first row. No cost was fitted to these. An exit to the host costs the \
             guest no instruction, and nothing here.{why}"
        ),
    }
}

/// Why all shares of the model are too low, if its calls are dearer than those of the guest.
fn why_low(counted: &[Counted]) -> Option<String> {
    let first = counted.first()?;
    let last = counted.iter().rfind(|one| one.path == first.path)?;
    let [guest, model] = [0, 1].map(|at| (1.0 - last.shares[at]) * 100.0);
    (model > guest).then(|| {
        format!(
            " With {} I/Os a call instead of one, {} takes {model:.0} % less in the model, and {guest:.0} % less in the guest: a \
             call and the wake-up of its thread have a larger part of the model's cycles than of the guest's instructions. The \
             first row has one I/O a call, so the model's shares of it are low.",
            last.multiplicity, first.path
        )
    })
}

type Scaling = (LockKind, u32, Repeated);

fn scaling_table(scaling: &[Scaling]) -> Table {
    let kiops = |kind, threads| {
        let mut of = scaling.iter().filter(|case| case.0 == kind && case.1 == threads);
        of.next().map_or(f64::NAN, |case| case.2.mean(|outcome| outcome.iops / 1e3))
    };
    let row = |threads: u32| {
        let rates = LockKind::ALL.map(|kind| format!("{:.0}", kiops(kind, threads)));
        std::iter::once(threads.to_string()).chain(rates).collect()
    };
    Table {
        title: "One lock under more and more threads, kIOPS (mq-deadline)".into(),
        columns: std::iter::once("threads".into())
            .chain(LockKind::ALL.map(|kind| kind.name().into()))
            .collect(),
        rows: LOCK_THREADS.into_iter().map(row).collect(),
        note: "What the same machine would do with other spinlocks; its kernel's is the queued one.".into(),
    }
}

fn scaling_plot(scaling: &[Scaling]) -> Plot {
    let series = LockKind::ALL.map(|kind| Series {
        name: kind.name().into(),
        mark: Mark::Simulated,
        points: scaling
            .iter()
            .filter(|case| case.0 == kind)
            .map(|case| (X::Number(f64::from(case.1)), case.2.mean(|outcome: &Outcome| outcome.iops / 1e3)))
            .collect(),
        ..Series::default()
    });
    let published = Series {
        name: "published".into(),
        mark: Mark::Published,
        points: vec![(X::Number(32.0), 879.0)],
        ..Series::default()
    };
    Plot {
        title: "One lock, mq-deadline".into(),
        kind: PlotKind::Line,
        x: Axis { name: "threads".into(), unit: String::new(), log: true },
        y: Axis { name: "rate".into(), unit: "kIOPS".into(), log: false },
        series: series.into_iter().chain([published]).collect(),
        note: "The published point: 879 kIOPS under 32 threads.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, why_low};

    #[test]
    fn dear_calls_are_why_shares_are_low() {
        let row = |multiplicity, shares| Counted {
            path: "nvme",
            multiplicity,
            instructions: 1.0,
            cycles: 1.0,
            shares,
        };
        let said = why_low(&[row(1, [1.0, 1.0]), row(32, [0.78, 0.55])]).expect("a reason");
        assert!(
            said.contains("With 32 I/Os a call instead of one, nvme takes 45 % less in the model, and 22 %"),
            "{said}"
        );
        assert_eq!(why_low(&[row(1, [1.0, 1.0]), row(32, [0.55, 0.78])]), None);
        assert_eq!(why_low(&[]), None);
    }
}
