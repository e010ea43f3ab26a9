//! Published results of others, beside the model's.

use super::options::{Options, parameters};
use crate::progress::Progress;
use clap::Args;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_stack::{
    Anchor, LOCK_THREADS, LockKind, Outcome, Quantity, Repeated, anchors, cycles_bound, lock_scaling, repeat,
};

/// Published results of others, beside the model's.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage sim stack anchors
  terapage sim stack anchors --seeds 10 --json -")]
pub struct Anchors {
    #[command(flatten)]
    pub options: Options,
}

impl Anchors {
    /// Simulates it.
    pub fn study(&self) -> anyhow::Result<Study> {
        let options = &self.options;
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
        let scaling = lock_scaling(&experiment.costs, options.seeds(), options.seed, &tick)?;
        drop(progress);
        let mut study = options.study("Published results, and the model", "anchors");
        study.summary = vec![
            "Rows marked 'fitted' gave the model a cost; the others test it.".into(),
            format!(
                "The bound of the report's machine: 10 cores x 2.6 GHz / 1300 kIOPS = {:.0} cycles for an I/O.",
                cycles_bound()
            ),
        ];
        study.parameters = parameters(&experiment.costs, &["desktop", "polled"])?;
        study.tables = vec![table(&anchors, &repeated), scaling_table(&scaling)];
        study.plots = vec![scaling_plot(&scaling)];
        Ok(study)
    }
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
