//! The multi-queue stacks at the load of the report, which predicted this and did not measure it.

use super::figures;
use crate::stack::options::{Options, machine_lines, parameters};
use crate::stack::whisker;
use serde_json::Value;
use terapage_figures::quantile;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::progress::Progress;
use terapage_stack::{
    COMPARED, DOUBT, Draw, Experiment, Outcome, PLAUSIBLE, RATE_IOPS, Repeated, Spread, Stack, draws,
};

/// Draws of all values that are not published. Chosen, not measured.
const DRAWS: u32 = 100;

/// The rates of the curves, kIOPS, all at multiplicity 1.
const RATES_KIOPS: [u32; 9] = [100, 200, 300, 400, 500, 600, 700, 800, 900];

/// The multi-queue stacks at the same load, with the model's uncertainty.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn predict(options: &Options) -> anyhow::Result<(Study, Value)> {
    let experiment = options.experiment()?;
    let points = (RATES_KIOPS.len() * COMPARED.len()) as u64;
    let progress =
        Progress::new("simulating", points * options.seeds() + u64::from(DRAWS) * COMPARED.len() as u64);
    let tick = || progress.add(1);
    let curves = curves(&experiment, &tick)?;
    let drawn = draws(&experiment, DRAWS, &tick)?;
    drop(progress);
    let plausible: Vec<Draw> = drawn.iter().copied().filter(Draw::is_plausible).collect();
    let mut study = options.study("Multi-queue SCSI and NVMe at equal load", "paper run sato predict");
    study.summary = summary(&plausible, drawn.len());
    study.machine = machine_lines(&experiment);
    study.parameters = parameters(&experiment.costs, &["haswell", "load"])?;
    study.plots = vec![plot(&curves)];
    study.tables = vec![curve_table(&curves), draw_table(&plausible)];
    let of_stack = |(stack, repeated): &(Stack, Vec<Repeated>)| {
        let rates = RATES_KIOPS.iter().zip(repeated);
        let of = |(kiops, one): (&u32, &Repeated)| figures(*stack, Some(*kiops), 1, one, options.seed);
        rates.map(of).collect::<Vec<_>>()
    };
    Ok((study, curves.iter().flat_map(of_stack).collect()))
}

type Curves = Vec<(Stack, Vec<Repeated>)>;

fn curves(experiment: &Experiment, tick: &(dyn Fn() + Sync)) -> anyhow::Result<Curves> {
    let of = |stack| {
        let setups = RATES_KIOPS.map(|kiops| experiment.setup(stack, Some(f64::from(kiops) * 1e3), 1));
        Ok((stack, experiment.repeat(&setups, tick)?))
    };
    COMPARED.into_iter().map(of).collect()
}

fn summary(plausible: &[Draw], drawn: usize) -> Vec<String> {
    let ratios = |stack| plausible.iter().map(|draw| draw.over_nvme(stack)).collect::<Vec<_>>();
    let (scsi, nvme) = (ratios(Stack::MqScsi), ratios(Stack::MqNvme));
    let between = plausible.iter().filter(|draw| {
        let ratio = draw.over_nvme(Stack::MqScsi);
        ratio > 1.0 && ratio - 1.0 < draw.over_nvme(Stack::Scsi) - ratio
    });
    let share = between.count() as f64 / plausible.len().max(1) as f64;
    vec![
        "The report expects multi-queue SCSI close to NVMe, slightly behind, and did not measure it.".into(),
        format!(
            "The model, at {:.0} kIOPS: multi-queue SCSI takes {:.2} times the CPU of NVMe on bios (5 to 95 %: {:.2} \
             to {:.2}), multi-queue NVMe {:.2} times ({:.2} to {:.2}). SCSI is behind NVMe and nearer to it than to \
             SCSI on the single queue in {:.0} % of the draws.",
            RATE_IOPS / 1e3,
            at(&scsi, 0.5),
            at(&scsi, 0.05),
            at(&scsi, 0.95),
            at(&nvme, 0.5),
            at(&nvme, 0.05),
            at(&nvme, 0.95),
            share * 100.0
        ),
        format!(
            "Each value that is not published was drawn between 1/{DOUBT} and {DOUBT} times its own; {} of {drawn} \
             draws show what is published (SCSI over NVMe from {} to {}) and are counted. That is the model's \
             uncertainty, not that of a measurement.",
            plausible.len(),
            PLAUSIBLE.start(),
            PLAUSIBLE.end()
        ),
    ]
}

fn plot(curves: &Curves) -> Plot {
    let series = curves.iter().map(|(stack, repeated)| {
        let spreads: Vec<Spread> = repeated.iter().map(|of_rate| of_rate.spread(Outcome::total_us)).collect();
        let points = RATES_KIOPS.iter().zip(&spreads);
        Series {
            name: stack.title().into(),
            mark: Mark::Simulated,
            points: points.map(|(&kiops, spread)| (X::Number(f64::from(kiops)), spread.mean)).collect(),
            whiskers: spreads.iter().map(whisker).collect(),
            ..Series::default()
        }
    });
    Plot {
        title: "Busy time for an I/O".into(),
        kind: PlotKind::Line,
        x: Axis { name: "rate".into(), unit: "kIOPS".into(), log: false },
        y: Axis { name: "busy time".into(), unit: "us".into(), log: false },
        series: series.collect(),
        note: "Multiplicity 1.".into(),
    }
}

fn curve_table(curves: &Curves) -> Table {
    let row = |(place, kiops): (usize, &u32)| {
        let busy = curves.iter().map(|(_, repeated)| repeated[place].spread(Outcome::total_us).shown(1.0, 2));
        std::iter::once(kiops.to_string()).chain(busy).collect()
    };
    Table {
        title: "Busy time for an I/O, us, multiplicity 1".into(),
        columns: std::iter::once("kIOPS".into())
            .chain(curves.iter().map(|(stack, _)| stack.title().into()))
            .collect(),
        rows: RATES_KIOPS.iter().enumerate().map(row).collect(),
        note: "± is half of the 95 % interval over the seeds.".into(),
    }
}

/// The value below which this share of `values` lies; NaN if there are none.
fn at(values: &[f64], share: f64) -> f64 {
    quantile(values, share).unwrap_or(f64::NAN)
}

fn draw_table(plausible: &[Draw]) -> Table {
    let row = |stack: Stack| {
        let ratios: Vec<f64> = plausible.iter().map(|draw| draw.over_nvme(stack)).collect();
        let shown = [0.05, 0.25, 0.5, 0.75, 0.95].map(|p| format!("{:.2}", at(&ratios, p)));
        std::iter::once(stack.title().to_string()).chain(shown).collect()
    };
    Table {
        title: format!("CPU over that of NVMe on bios, at {:.0} kIOPS", RATE_IOPS / 1e3),
        columns: ["stack", "5 %", "25 %", "median", "75 %", "95 %"].map(String::from).into(),
        rows: [Stack::Scsi, Stack::MqScsi, Stack::MqNvme].into_iter().map(row).collect(),
        note: "Over the draws that show what is published.".into(),
    }
}
