//! `terapage paper run fukuchi-fit` determines the paper's unknowns from the gains that it printed.

use anyhow::Context;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use terapage_config::Size;
use terapage_figures::processors;
use terapage_report::{
    Axis, Ends, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, Whisker, X,
};
use terapage_sim::progress::Progress;
use terapage_sim::publish::{self, command_line};
use terapage_sim::quantity::traffic;
use terapage_sim::show::Show;
use terapage_volumes::fit::{FREEDOM, Fit, Plan, UNKNOWNS, WHOLE_NUMBERS, fit};
use terapage_volumes::published::{GAINS, SOURCE};
use terapage_volumes::{Case, Fitted, Workload};

/// The arguments of `terapage paper run fukuchi-fit`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage paper run fukuchi-fit
  terapage paper run fukuchi-fit --traffic 2G --seed 3
  terapage paper run fukuchi-fit -o mine.toml && terapage paper run fukuchi table2 --fitted mine.toml")]
pub struct FitCommand {
    /// Bytes that the requests of each volume read and write, in each simulation
    #[arg(long, value_name = "SIZE", default_value = "3G", value_parser = traffic)]
    traffic: Size,
    /// The seed of the synthetic requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result, for `terapage paper run fukuchi --fitted`
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

impl FitCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// If a simulation fails or a file cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(None)?;
        if let Some(path) = &self.output {
            publish::check(path, &[]).context("--output")?;
        }
        let base = Case { traffic_bytes: self.traffic.0, seed: self.seed, ..Case::default() };
        let plan = Plan::new(base, processors());
        let workloads =
            GAINS.iter().map(|gain| Workload::synthetic(gain.volume)).collect::<Result<Vec<_>, _>>()?;
        let progress = Progress::new("fitting", plan.simulations());
        let found = fit(&plan, &workloads, || progress.add(1))?;
        drop(progress);
        if let Some(path) = &self.output {
            publish::write(path, &self.fitted(&found).text()).context("--output")?;
        }
        self.show.study(&self.study(&found))
    }

    fn fitted(&self, found: &Fit) -> Fitted {
        let pairs = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        let values = &found.values;
        let common = pairs(&[
            ("channels", found.structure.channels.to_string()),
            ("dies", found.structure.dies.to_string()),
            ("scm", format!("{:.2}%", values[0])),
        ]);
        let ct = pairs(&[
            ("write-unit", found.structure.write_unit.to_string()),
            ("program", format!("{:.1}us", values[1])),
            ("read", format!("{:.2}us", values[2])),
            ("bus", format!("{:.0}", values[3] * 1e6)),
        ]);
        let mut chips = BTreeMap::from([("3d-ct-tlc".to_owned(), ct)]);
        if let Some(program_us) = found.readings.first().and_then(|reading| reading.program_us) {
            let program = pairs(&[("program", format!("{program_us:.0}us"))]);
            chips.insert("3d-fg-tlc".to_owned(), program);
        }
        let source = format!(
            "fitted to {SOURCE}, on synthetic volumes, traffic {}, seed {}; 3D FG TLC so that it falls by 54 %",
            self.traffic, self.seed
        );
        Fitted::new(source, common, chips)
    }

    fn study(&self, found: &Fit) -> Study {
        let mut study = Study {
            title: "A fit of the hybrid SSD paper's unknowns".to_owned(),
            summary: summary(found),
            command: command_line(),
            parameters: parameters(found),
            plots: vec![plot(found)],
            tables: vec![residuals(found), determination(found)],
            ..Study::default()
        };
        if !found.correlations.is_empty() {
            study.tables.push(correlations(found));
        }
        study.tables.extend([structures(found), readings(found)]);
        study
    }
}

fn summary(found: &Fit) -> Vec<String> {
    let worst = found.gains.iter().zip(GAINS).map(|(gain, target)| (gain - target.percent).abs());
    let worst = worst.fold(0.0, f64::max);
    let free = UNKNOWNS.len();
    let open: Vec<&str> =
        (0..free).filter(|&unknown| !found.is_determined(unknown)).map(|u| UNKNOWNS[u].name).collect();
    let open = match open.len() {
        0 => "If the whole numbers were given, all others would be determined.".to_owned(),
        _ => format!(
            "Even if the whole numbers were given, these would not be determined: {}.",
            open.join("; ")
        ),
    };
    let values = free + WHOLE_NUMBERS;
    vec![
        format!(
            "Least squares: {values} values ({free} of any value, {WHOLE_NUMBERS} whole numbers) from {} published gains leave \
             {FREEDOM} degrees of freedom. So the residuals do not show whether the model is right, and the gains alone determine \
             no value. After the fit, each gain is off by at most {worst:.2} percentage points. {open}",
            GAINS.len()
        ),
        "The gains are of synthetic volumes, and of a model with assumptions of its own (see terapage paper run fukuchi table2 \
         --parameters): the fitted values are those with which this model gives these gains, not those of the paper's Table 1. \
         The bus stands for everything that makes long transfers faster."
            .to_owned(),
    ]
}

fn parameters(found: &Fit) -> Vec<Parameter> {
    let source = format!("least squares from {SOURCE}");
    let one = |name: &str, value: String, unit: &str| Parameter {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        origin: Origin::Fitted,
        source: source.clone(),
    };
    let structure = found.structure;
    let mut all: Vec<Parameter> = UNKNOWNS
        .iter()
        .zip(&found.values)
        .map(|(unknown, value)| one(unknown.name, format!("{value:.4}"), unknown.unit))
        .collect();
    all.push(one("channels", structure.channels.to_string(), ""));
    all.push(one("dies of a channel", structure.dies.to_string(), ""));
    all.push(one("3D CT TLC write unit", structure.write_unit.to_string(), "pages"));
    all
}

fn plot(found: &Fit) -> Plot {
    let bars = |value: &dyn Fn(usize) -> f64| -> Vec<(X, f64)> {
        GAINS.iter().enumerate().map(|(n, gain)| (X::Name(gain.volume.to_owned()), value(n))).collect()
    };
    let published = bars(&|n| GAINS[n].percent);
    let fitted = bars(&|n| found.gains[n]);
    let spread = found.gains.iter().zip(&found.spreads);
    let whiskers =
        spread.map(|(gain, spread)| Some(Whisker::around(*gain, *spread, Ends::Deviation))).collect();
    Plot {
        title: "Gain of 3D CT TLC over 2D FG MLC".to_owned(),
        kind: PlotKind::Bar,
        x: Axis { name: "volume".to_owned(), ..Axis::default() },
        y: Axis { name: "gain in IOPS".to_owned(), unit: "%".to_owned(), log: false },
        series: vec![
            Series {
                name: "published".to_owned(),
                mark: Mark::Published,
                points: published,
                ..Series::default()
            },
            Series {
                name: "fitted, synthetic".to_owned(),
                mark: Mark::Synthetic,
                points: fitted,
                whiskers,
                ..Series::default()
            },
        ],
        note: String::new(),
    }
}

fn table(title: &str, columns: &[&str], rows: Vec<Vec<String>>, note: String) -> Table {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    Table { title: title.to_owned(), columns, rows, note }
}

fn residuals(found: &Fit) -> Table {
    let rows = found.gains.iter().zip(&found.spreads).zip(GAINS).map(|((gain, spread), target)| {
        vec![
            target.volume.to_owned(),
            format!("{:+.1}", target.percent),
            format!("{gain:+.2}"),
            format!("{spread:.2}"),
            format!("{:+.2}", gain - target.percent),
        ]
    });
    let note = format!(
        "Sum of squared residuals {:.3}, root of their mean {:.2} percentage points. {} values were fitted to {} gains: {FREEDOM} \
         degrees of freedom.",
        found.squares,
        (found.squares / GAINS.len() as f64).sqrt(),
        UNKNOWNS.len() + WHOLE_NUMBERS,
        GAINS.len()
    );
    table("Gains", &["volume", "published, %", "fitted, %", "+- (seeds)", "residual"], rows.collect(), note)
}

fn determination(found: &Fit) -> Table {
    let rows = UNKNOWNS.iter().enumerate().map(|(number, unknown)| {
        let (error, half) = match &found.uncertainties {
            Some(all) => (all[number].standard_error, all[number].half_interval),
            None => (f64::INFINITY, f64::INFINITY),
        };
        let shown = |value: f64| if value.is_finite() { format!("{value:.3}") } else { "-".to_owned() };
        vec![
            unknown.name.to_owned(),
            format!("{:.3}", found.values[number]),
            unknown.unit.to_owned(),
            shown(error),
            shown(half),
            format!("{} to {}", unknown.bounds.0, unknown.bounds.1),
            if found.is_determined(number) {
                "only if the whole numbers were given"
            } else {
                "NOT DETERMINED"
            }
            .to_owned(),
        ]
    });
    let columns = ["parameter (fitted)", "value", "unit", "std. error", "95 % +-", "searched", "by the data"];
    let note = format!(
        "The errors assume that channels, dies and write unit were given, not fitted. They are those of a linear model at the \
         optimum, with the variance of the residuals ({} degrees of freedom) and Student's t. Since all values are fitted, {FREEDOM} \
         degrees are left, and there are no true errors. A value is determined if its interval is less than half of the searched \
         range, and the value is not at an end of that range.",
        GAINS.len() - UNKNOWNS.len()
    );
    table("How well the parameters are determined", &columns, rows.collect(), note)
}

fn correlations(found: &Fit) -> Table {
    let rows = UNKNOWNS.iter().zip(&found.correlations).map(|(unknown, row)| {
        let mut cells = vec![unknown.name.to_owned()];
        cells.extend(row.iter().map(|correlation| format!("{correlation:+.2}")));
        cells
    });
    let mut columns = vec![""];
    columns.extend(["SCM", "program", "read", "bus"]);
    table("Correlations of the estimates", &columns, rows.collect(), String::new())
}

fn structures(found: &Fit) -> Table {
    let rows = found.structures.iter().map(|(structure, squares)| {
        vec![
            structure.channels.to_string(),
            structure.dies.to_string(),
            structure.write_unit.to_string(),
            format!("{squares:.1}"),
            format!("{:.2}", (squares / GAINS.len() as f64).sqrt()),
            if *structure == found.structure { "taken" } else { "" }.to_owned(),
        ]
    });
    let columns = ["channels", "dies", "write unit", "squares", "points, r.m.s.", ""];
    let note = "Each row had a short search; the search goes on from the best one. The data do not tell whole numbers apart if their \
         squares are nearly equal."
        .to_owned();
    table("Whole numbers that were tried", &columns, rows.collect(), note)
}

fn readings(found: &Fit) -> Table {
    let rows = found.readings.iter().map(|reading| {
        vec![
            format!("3D FG TLC {}", reading.text),
            format!("{:+.0}", reading.percent),
            reading.program_us.map_or_else(|| "none".to_owned(), |us| format!("{us:.0}")),
            reading.volume.clone(),
        ]
    });
    let columns = ["reading", "worst gain, %", "program time of a page, us", "falls most"];
    table("The two readings of 54 %", &columns, rows.collect(), String::new())
}
