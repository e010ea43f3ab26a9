//! Figures 5, 6 and 7 of the report on SCSI and NVMe.

use super::figures;
use crate::stack::options::{Options, machine_lines, parameters};
use crate::stack::whisker;
use serde_json::Value;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::progress::Progress;
use terapage_stack::{
    Activity, Experiment, Findings, Highest, MULTIPLICITIES, Outcome, Point, Spread, Stack,
};

/// The stacks of the figures.
const STACKS: [Stack; 2] = [Stack::Scsi, Stack::Nvme];

/// The simulated figures.
struct Simulated {
    highest: Vec<Highest>,
    curve: Vec<Point>,
}

fn simulate(experiment: &Experiment) -> anyhow::Result<Simulated> {
    let progress = Progress::new("simulating", experiment.runs());
    let tick = || progress.add(1);
    let highest = experiment.highest(&STACKS, &tick)?;
    let curve = experiment.curve(&highest, &tick)?;
    drop(progress);
    Ok(Simulated { highest, curve })
}

impl Simulated {
    fn results(&self, seed: u64) -> Value {
        let of = |one: &Point| figures(one.stack, Some(one.kiops), one.multiplicity, &one.repeated, seed);
        self.curve.iter().map(of).collect()
    }

    fn of(&self, stack: Stack) -> impl Iterator<Item = &Point> {
        self.curve.iter().filter(move |point| point.stack == stack)
    }

    fn series(&self, stack: Stack, what: &str, value: impl Fn(&Outcome) -> f64) -> Series {
        let spreads: Vec<(u32, Spread)> =
            self.of(stack).map(|point| (point.kiops, point.repeated.spread(&value))).collect();
        Series {
            name: format!("{}{what}", stack.title()),
            mark: Mark::Simulated,
            points: spreads
                .iter()
                .map(|(kiops, spread)| (X::Number(f64::from(*kiops)), spread.mean))
                .collect(),
            whiskers: spreads.iter().map(|(_, spread)| whisker(spread)).collect(),
            ..Series::default()
        }
    }
}

/// A study of the report's experiment.
fn study(options: &Options, experiment: &Experiment, title: &str, command: &str) -> anyhow::Result<Study> {
    let mut study = options.study(title, command);
    study.machine = machine_lines(experiment);
    study.parameters = parameters(&experiment.costs, &["haswell", "load"])?;
    Ok(study)
}

fn kiops_axis() -> Axis {
    Axis { name: "rate".into(), unit: "kIOPS".into(), log: false }
}

/// A value with its margin.
fn with_margin(point: &Point, value: impl Fn(&Outcome) -> f64, digits: usize) -> String {
    point.repeated.spread(value).shown(1.0, digits)
}

/// CPU use against IOPS.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn fig5(options: &Options) -> anyhow::Result<(Study, Value)> {
    let experiment = options.experiment()?;
    let simulated = simulate(&experiment)?;
    let found = Findings::of(&simulated.highest, &simulated.curve);
    let mut study = study(options, &experiment, "CPU use against IOPS (figure 5)", "paper run sato fig5")?;
    study.summary = vec![
        format!(
            "The report: SCSI takes about twice the CPU of NVMe at equal IOPS, and NVMe up to 50 % less. The \
                 model: {:.2} times at 200 kIOPS, {:.2} times at 800 kIOPS.",
            found.ratio_low, found.ratio_high
        ),
        "From 1000 kIOPS on each stack takes the least multiplicity that reaches the rate. The report's own \
             points are not public; only what its text says is compared."
            .into(),
    ];
    study.plots = vec![cpu_plot(&simulated), ratio_plot(&simulated)];
    study.tables = vec![cpu_table(&simulated)];
    Ok((study, simulated.results(options.seed)))
}

fn cpu_plot(simulated: &Simulated) -> Plot {
    let percent = |value: fn(&Outcome) -> f64| move |outcome: &Outcome| value(outcome) * 100.0;
    let series = STACKS.into_iter().flat_map(|stack| {
        let total = simulated.series(stack, ", total", percent(Outcome::cpu_use));
        [total, simulated.series(stack, ", kernel", percent(Outcome::kernel_use))]
    });
    Plot {
        title: "CPU use".into(),
        kind: PlotKind::Line,
        x: kiops_axis(),
        y: Axis { name: "CPU use".into(), unit: "%".into(), log: false },
        series: series.collect(),
        note: "Of all logical CPUs.".into(),
    }
}

fn ratio_plot(simulated: &Simulated) -> Plot {
    let nvme = |kiops| simulated.of(Stack::Nvme).find(|point| point.kiops == kiops);
    let ratio = |scsi: &Point| {
        let nvme = nvme(scsi.kiops)?;
        Some((X::Number(f64::from(scsi.kiops)), scsi.busy_us() / nvme.busy_us()))
    };
    let points: Vec<(X, f64)> = simulated.of(Stack::Scsi).filter_map(ratio).collect();
    let ends = [points.first(), points.last()].into_iter().flatten();
    let published = ends.map(|(x, _)| (x.clone(), 2.0)).collect();
    Plot {
        title: "SCSI over NVMe".into(),
        kind: PlotKind::Line,
        x: kiops_axis(),
        y: Axis { name: "ratio of CPU use".into(), ..Axis::default() },
        series: vec![
            Series { name: "model".into(), mark: Mark::Simulated, points, ..Series::default() },
            Series {
                name: "about 2 (section 3.2)".into(),
                mark: Mark::Published,
                points: published,
                ..Series::default()
            },
        ],
        note: "The published line is a sentence of the text, not points of the figure.".into(),
    }
}

fn cpu_table(simulated: &Simulated) -> Table {
    let columns = ["kIOPS", "stack", "multiplicity", "CPU %", "kernel %", "latency us", "p99 us"];
    let row = |point: &Point| {
        let mean = |value: fn(&Outcome) -> f64| point.repeated.mean(value);
        vec![
            point.kiops.to_string(),
            point.stack.name().into(),
            point.multiplicity.to_string(),
            with_margin(point, |outcome| outcome.cpu_use() * 100.0, 1),
            format!("{:.1}", mean(Outcome::kernel_use) * 100.0),
            format!("{:.0}", mean(|outcome| outcome.latency_mean_us)),
            format!("{:.0}", mean(|outcome| outcome.latency_p99_us)),
        ]
    };
    Table {
        title: "CPU use".into(),
        columns: columns.map(String::from).into(),
        rows: simulated.curve.iter().map(row).collect(),
        note: "± is half of the 95 % interval over the seeds.".into(),
    }
}

/// Busy time for an I/O against IOPS.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn fig6(options: &Options) -> anyhow::Result<(Study, Value)> {
    let experiment = options.experiment()?;
    let simulated = simulate(&experiment)?;
    let found = Findings::of(&simulated.highest, &simulated.curve);
    let mut study =
        study(options, &experiment, "Busy time for an I/O against IOPS (figure 6)", "paper run sato fig6")?;
    study.summary = vec![
        format!(
            "The report: busy time of SCSI rises with the rate, peaks at 600 to 900 kIOPS, and falls when the \
                 multiplicity grows from 1000 kIOPS on. The model: {:.2} us at 200 kIOPS, {:.2} us at {} kIOPS, \
                 {:.2} us at {} kIOPS with multiplicity {}.",
            found.scsi_low_us,
            found.scsi_peak_us,
            found.scsi_peak_kiops,
            found.scsi_last_us,
            found.scsi_last_kiops,
            found.scsi_last_multiplicity
        ),
        nvme_finding(found.nvme_change),
    ];
    let series = STACKS.into_iter().flat_map(|stack| {
        let user = simulated.series(stack, ", user", |outcome| outcome.us(Activity::User));
        [simulated.series(stack, "", Outcome::total_us), user]
    });
    study.plots = vec![Plot {
        title: "Busy time for an I/O".into(),
        kind: PlotKind::Line,
        x: kiops_axis(),
        y: Axis { name: "busy time".into(), unit: "us".into(), log: false },
        series: series.collect(),
        note: "Of logical CPUs; spinning at locks is busy.".into(),
    }];
    study.tables = vec![busy_table(&simulated)];
    Ok((study, simulated.results(options.seed)))
}

/// A sentence on NVMe's busy time from 200 to 900 kIOPS, which changes by a factor of `change`, and
/// on what the model may lack if it falls.
fn nvme_finding(change: f64) -> String {
    let percent = (change - 1.0) * 100.0;
    let found = format!("The report: NVMe rises little. The model: {percent:+.0} % from 200 to 900 kIOPS");
    if change >= 1.0 {
        return format!("{found}: as published.");
    }
    format!(
        "{found}: it falls, NOT as published. The more there is to do, the seldomer a thread sleeps and sets a timer \
         (without these costs most of the fall is gone: --cost switch=0.001 --cost timer=0.001), and the more completions \
         an interrupt brings. Missing is a mechanism by which an I/O costs more at a higher rate: a load tool that does not \
         sleep, cores whose clock falls as more of them work, or busier memory would be one. The report names none, so the \
         model has none."
    )
}

fn busy_table(simulated: &Simulated) -> Table {
    let head = ["kIOPS", "stack", "mult.", "busy us"].map(String::from);
    let shown = [
        Activity::User,
        Activity::Kernel,
        Activity::Transfer,
        Activity::QueueSpin,
        Activity::HostSpin,
        Activity::OtherSpin,
    ];
    let row = |point: &Point| {
        let head = [
            point.kiops.to_string(),
            point.stack.name().into(),
            point.multiplicity.to_string(),
            with_margin(point, Outcome::total_us, 2),
        ];
        let parts =
            shown.map(|activity| format!("{:.2}", point.repeated.mean(|outcome| outcome.us(activity))));
        head.into_iter().chain(parts).collect()
    };
    Table {
        title: "Where the time goes, us for an I/O".into(),
        columns: head.into_iter().chain(shown.map(|activity| activity.name().into())).collect(),
        rows: simulated.curve.iter().map(row).collect(),
        note: "Queue lock, host lock: spinning. Lines: waiting for those that other cores wrote.".into(),
    }
}

/// The highest rate at each multiplicity.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn fig7(options: &Options) -> anyhow::Result<(Study, Value)> {
    let experiment = options.experiment()?;
    let progress = Progress::new("simulating", 2 * MULTIPLICITIES.len() as u64 * experiment.seeds);
    let highest = experiment.highest(&STACKS, &|| progress.add(1))?;
    drop(progress);
    let found = Findings::of(&highest, &[]);
    let mut study =
        study(options, &experiment, "Multiplicity against IOPS (figure 7)", "paper run sato fig7")?;
    study.summary = vec![format!(
        "The report: at multiplicities 2 to 4 NVMe reaches up to about 80 kIOPS more. The model: {:.0} kIOPS \
             more.",
        found.gap_kiops
    )];
    study.plots = vec![highest_plot(&highest), gap_plot(&highest)];
    study.tables = vec![highest_table(&highest)];
    let of = |one: &Highest| figures(one.stack, None, one.multiplicity, &one.repeated, options.seed);
    Ok((study, highest.iter().map(of).collect()))
}

fn kiops(highest: &[Highest], stack: Stack) -> Vec<(X, f64)> {
    let of_stack = highest.iter().filter(|highest| highest.stack == stack);
    of_stack.map(|high| (X::Number(f64::from(high.multiplicity)), high.iops().mean / 1e3)).collect()
}

fn multiplicity_axis() -> Axis {
    Axis { name: "multiplicity".into(), unit: "I/Os a call".into(), log: true }
}

fn highest_plot(highest: &[Highest]) -> Plot {
    let in_k = |spread: Spread| Spread { mean: spread.mean / 1e3, margin: spread.margin.map(|of| of / 1e3) };
    let series = STACKS.map(|stack| Series {
        name: stack.title().into(),
        mark: Mark::Simulated,
        points: kiops(highest, stack),
        whiskers: highest
            .iter()
            .filter(|highest| highest.stack == stack)
            .map(|highest| whisker(&in_k(highest.iops())))
            .collect(),
        ..Series::default()
    });
    Plot {
        title: "Highest rate".into(),
        kind: PlotKind::Line,
        x: multiplicity_axis(),
        y: Axis { name: "rate".into(), unit: "kIOPS".into(), log: false },
        series: series.into(),
        note: String::new(),
    }
}

fn gap_plot(highest: &[Highest]) -> Plot {
    let pairs = kiops(highest, Stack::Nvme).into_iter().zip(kiops(highest, Stack::Scsi));
    let points = pairs.map(|((x, nvme), (_, scsi))| (x, nvme - scsi)).collect();
    let published = [2.0, 4.0].map(|multiplicity| (X::Number(multiplicity), 80.0)).into();
    Plot {
        title: "NVMe ahead of SCSI".into(),
        kind: PlotKind::Line,
        x: multiplicity_axis(),
        y: Axis { name: "NVMe less SCSI".into(), unit: "kIOPS".into(), log: false },
        series: vec![
            Series { name: "model".into(), mark: Mark::Simulated, points, ..Series::default() },
            Series {
                name: "at most about 80 (section 3.2)".into(),
                mark: Mark::Published,
                points: published,
                ..Series::default()
            },
        ],
        note: "The published line is a sentence of the text, not points of the figure.".into(),
    }
}

fn highest_table(highest: &[Highest]) -> Table {
    let of = |stack: Stack, multiplicity: u32| {
        let mut of = highest.iter().filter(|high| high.stack == stack && high.multiplicity == multiplicity);
        of.next().map(Highest::iops)
    };
    let row = |multiplicity| {
        let (scsi, nvme) = (of(Stack::Scsi, multiplicity)?, of(Stack::Nvme, multiplicity)?);
        let shown = |spread: Spread| spread.shown(1e3, 0);
        let gap = format!("{:.0}", (nvme.mean - scsi.mean) / 1e3);
        Some(vec![multiplicity.to_string(), shown(scsi), shown(nvme), gap])
    };
    Table {
        title: "Highest rate, kIOPS".into(),
        columns: ["multiplicity", "SCSI", "NVMe", "NVMe ahead"].map(String::from).into(),
        rows: MULTIPLICITIES.into_iter().filter_map(row).collect(),
        note: "± is half of the 95 % interval over the seeds.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::nvme_finding;

    #[test]
    fn a_fall_that_was_not_published_is_said_to_be_one() {
        let said = nvme_finding(0.9);
        assert!(
            said.contains("-10 %") && said.contains("NOT as published") && said.contains("Missing"),
            "{said}"
        );
        assert!(nvme_finding(1.03).ends_with("+3 % from 200 to 900 kIOPS: as published."));
    }
}
