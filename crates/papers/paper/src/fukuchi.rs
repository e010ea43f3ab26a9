//! `terapage paper run fukuchi`: the figures of Fukuchi, Sakaki, Matsui and Takeuchi on hybrid SSDs
//! with four kinds of NAND.

mod collected;
mod fig3;
mod fig5;
mod fig6;
mod fit;
mod sensitivity;
mod settled;
mod sweep;
mod table2;
mod volumes;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use terapage_config::Size;
use terapage_figures::processors;
use terapage_hybrid::Outcome;
use terapage_report::{Mark, Origin, Parameter, Study};
use terapage_sim::progress::Progress;
use terapage_sim::publish::command_line;
use terapage_sim::quantity::{signed, traffic};
use terapage_sim::show::Show;
use terapage_ssd::{Profile, Value};
use terapage_volumes::published::{GAINS, NANDS};
use terapage_volumes::{Amount, Case, Fitted, Workload, settings, simulate_all};

pub use fit::FitCommand;
pub use sweep::SweepCommand;
pub use volumes::VolumeCommand;

/// Arguments of `terapage paper run fukuchi`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage paper run fukuchi table2
  terapage paper run fukuchi fig3 --html fig3.html
  terapage paper run fukuchi fig5-reverse
  terapage paper run fukuchi table2 --trace hm_0=hm_0.csv.gz --trace prxy_0=prxy_0.csv.gz
  terapage paper run fukuchi table2 --fitted none --set over-provisioning=7%

Without --trace requests are synthetic, and the results say so. terapage paper run fukuchi-sweep
--list lists the parameters for --set.")]
pub struct Figures {
    /// What to draw
    figure: Figure,
    /// A real trace of a volume
    #[arg(long, value_name = "VOLUME=FILE")]
    trace: Vec<String>,
    /// Bytes that the requests of each synthetic volume read and write; traces are used whole
    /// [default: 3G, and more for volumes whose gains have not converged]
    #[arg(long, value_name = "SIZE", value_parser = traffic)]
    traffic: Option<Size>,
    /// The seed of synthetic requests [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..1 << 63))]
    seed: Option<u64>,
    /// table2: simulate synthetic volumes with this many seeds, for means and their spread
    /// [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Change a parameter for all kinds of NAND, after the fitted values
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Read fitted values from a file that `terapage paper run fukuchi-fit -o` wrote, or none: use
    /// the profiles as they are [default: built-in values]
    #[arg(long, value_name = "FILE|none")]
    fitted: Option<PathBuf>,
    /// table2: leave out how the gains change with seeds, traffic, depth, spare flash and fill
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    show: Show,
}

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// IOPS of four kinds of NAND by volume, relative to 2D FG MLC
    Fig3,
    /// One characteristic of 3D CT TLC at a time: block size, latency, write unit
    Fig5,
    /// The same the other way round: one characteristic of 2D FG MLC at a time, in 3D CT TLC
    Fig5Reverse,
    /// The gain of 3D CT TLC against the share of reads among the bytes that reach the flash
    Fig6,
    /// The gains of 3D CT TLC, with their signs and order
    Table2,
}

/// Seeds of table2, unless others are asked for.
const SEEDS: u64 = 3;
/// Parameters that the figures set themselves, and what sets them.
const OWN: [(&str, &str); 3] = [
    ("nand", "the figures compare chips; fukuchi-sweep simulates one"),
    ("seed", "use --seed"),
    ("traffic", "use --traffic"),
];
/// The source of values that the user changes.
const SET: &str = "--set";

/// What all figures use: volumes, fitted values, changes.
struct Bench {
    base: Case,
    fitted: Fitted,
    changes: Vec<(String, String)>,
    /// Whether the user has chosen the length of the runs.
    long: bool,
    workloads: Vec<Workload>,
}

impl Figures {
    /// Runs the command.
    ///
    /// # Errors
    /// If a trace, a setting or a setup is wrong.
    pub fn run(self) -> anyhow::Result<()> {
        let traces = self.trace.iter().filter_map(|pair| Some(Path::new(pair.split_once('=')?.1)));
        self.show.check(traces)?;
        self.check_used()?;
        let bench = self.bench()?;
        let mut study = match self.figure {
            Figure::Fig3 => fig3::study(&bench)?,
            Figure::Fig5 => fig5::study(&bench, false)?,
            Figure::Fig5Reverse => fig5::study(&bench, true)?,
            Figure::Fig6 => fig6::study(&bench)?,
            Figure::Table2 => table2::study(&bench, self.seeds.unwrap_or(SEEDS), !self.quick)?,
        };
        study.command = command_line();
        study.summary.extend(bench.chips());
        study.summary.push(bench.origin_of_requests());
        study.parameters = bench.parameters();
        self.show.study(&study)
    }

    /// Refuses options that the figure has no use for.
    fn check_used(&self) -> anyhow::Result<()> {
        let options = [("--seeds", self.seeds.is_some()), ("--quick", self.quick)];
        let given = options.iter().find(|(_, given)| *given && self.figure != Figure::Table2);
        given.map_or(Ok(()), |(option, _)| bail!("{option}: it is for table2"))
    }

    fn bench(&self) -> anyhow::Result<Bench> {
        let mut base = Case { seed: self.seed.unwrap_or(1), ..Case::default() };
        if let Some(traffic) = self.traffic {
            base.traffic_bytes = traffic.0;
        }
        let fitted = fitted(self.fitted.as_deref())?;
        let changes: Vec<(String, String)> =
            self.set.iter().map(|text| pair(text, "--set", "NAME=VALUE")).collect::<Result<_, _>>()?;
        for (name, instead) in OWN {
            ensure!(!changes.iter().any(|(changed, _)| changed == name), "--set {name}: {instead}");
        }
        let counted = changes.iter().any(|(changed, _)| changed == "requests");
        ensure!(!counted || self.traffic.is_none(), "--traffic: --set requests gives their number already");
        let workloads = workloads(&self.trace)?;
        let synthetic = workloads.iter().any(Workload::is_synthetic);
        ensure!(synthetic || self.traffic.is_none(), "--traffic: real traces are used whole");
        Ok(Bench { base, fitted, changes, long: self.traffic.is_some(), workloads })
    }
}

/// The values that `--fitted` names.
pub fn fitted(named: Option<&Path>) -> anyhow::Result<Fitted> {
    match named {
        Some(path) if is_none(path) => Ok(Fitted::default()),
        Some(path) => read_fitted(path),
        None => Ok(Fitted::built_in()),
    }
}

/// Whether `--fitted` asks for no fitted values.
pub fn is_none(named: &Path) -> bool {
    named == Path::new("none")
}

/// Reads a file that `terapage paper run fukuchi-fit -o` wrote.
fn read_fitted(path: &Path) -> anyhow::Result<Fitted> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--fitted {}", path.display()))?;
    Ok(Fitted::parse(&text, &path.display().to_string())?)
}

/// The two parts of a text that has the form `form`, such as NAME=VALUE.
pub fn pair(text: &str, option: &str, form: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => bail!("{option} {text}: {form} is expected"),
    }
}

/// The paper's seven volumes: a real trace if one is given (VOLUME=FILE), else synthetic.
fn workloads(traces: &[String]) -> anyhow::Result<Vec<Workload>> {
    let traces: Vec<(String, String)> =
        traces.iter().map(|text| pair(text, "--trace", "VOLUME=FILE")).collect::<Result<_, _>>()?;
    let known = |name: &str| GAINS.iter().any(|gain| gain.volume == name);
    if let Some((name, _)) = traces.iter().find(|(name, _)| !known(name)) {
        let names: Vec<&str> = GAINS.iter().map(|gain| gain.volume).collect();
        bail!("--trace {name}: the paper has no such volume; it has {}", names.join(", "));
    }
    for (at, (name, _)) in traces.iter().enumerate() {
        ensure!(!traces[..at].iter().any(|(other, _)| other == name), "--trace {name}: it is given twice");
    }
    let one = |volume: &str| match traces.iter().find(|(name, _)| name == volume) {
        Some((_, path)) => Ok(Workload::trace(volume, Path::new(path))?),
        None => Ok(Workload::synthetic(volume)?),
    };
    GAINS.iter().map(|gain| one(gain.volume)).collect()
}

impl Bench {
    /// The paper's SSD with these chips.
    fn case(&self, nand: &str) -> anyhow::Result<Case> {
        let mut case = self.fitted.case(&self.base, nand)?;
        settings::apply(&mut case, &self.changes)?;
        Ok(case)
    }

    /// The same with one more parameter changed.
    fn case_with(&self, nand: &str, name: &str, value: &str) -> anyhow::Result<Case> {
        let mut case = self.case(nand)?;
        settings::apply(&mut case, &[(name.to_owned(), value.to_owned())])?;
        Ok(case)
    }

    /// The name of a kind of chips on the page: with values that the fit moved, the chips are not
    /// the profile's any more.
    fn chip(&self, nand: &str) -> String {
        if self.fitted.chips.contains_key(nand) { format!("{nand}-fitted") } else { nand.to_owned() }
    }

    /// Says which chips are meant.
    fn chips(&self) -> Option<String> {
        let values = |(nand, values): (&String, &std::collections::BTreeMap<String, String>)| {
            let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
            format!("{} is the profile {nand} with {}", self.chip(nand), values.join(", "))
        };
        let all: Vec<String> = self.fitted.chips.iter().map(values).collect();
        (!all.is_empty())
            .then(|| format!("Chips: {}. The other figures of all chips: --parameters.", all.join("; ")))
    }

    /// Outcomes by volume, then by case.
    fn outcomes(&self, cases: &[Case]) -> anyhow::Result<Vec<Vec<Outcome>>> {
        let progress = Progress::new("simulating", (cases.len() * self.workloads.len()) as u64);
        Ok(simulate_all(cases, &self.workloads, processors(), || progress.add(1))?)
    }

    /// Names of volumes, and the marks of their results.
    fn volumes(&self) -> impl Iterator<Item = (&str, Mark)> {
        self.workloads.iter().map(|workload| {
            (workload.name.as_str(), if workload.is_synthetic() { Mark::Synthetic } else { Mark::Simulated })
        })
    }

    fn origin_of_requests(&self) -> String {
        let names = |synthetic: bool| {
            let of = self.workloads.iter().filter(|workload| workload.is_synthetic() == synthetic);
            of.map(|workload| workload.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (synthetic, real) = (names(true), names(false));
        let fit = if self.fitted.source.is_empty() {
            ""
        } else {
            "Parameters were fitted to Table 2, so its agreement proves nothing \
            about the model; agreement of what was not fitted may. "
        };
        match (synthetic.is_empty(), real.is_empty()) {
            (false, true) => format!("{fit}All requests are synthetic: generators stand in for the traces."),
            (true, false) => format!("{fit}All requests are of real traces."),
            _ => format!("{fit}Synthetic requests: {synthetic}. Real traces: {real}."),
        }
    }

    /// Adds the figures of all chips that the fit did not change.
    fn chip_figures(&self, add: &mut impl FnMut(String, &str, Origin, &str)) {
        for nand in nands() {
            let Ok(profile) = Profile::by_name(nand) else { continue };
            let moved = self.fitted.chips.get(nand);
            for (name, figure) in &profile.figures {
                let setting = name.replace('_', "-");
                if moved.is_some_and(|moved| moved.contains_key(&setting)) {
                    continue;
                }
                let value = match &figure.value {
                    Value::One(value) => value.to_string(),
                    Value::Many(values) => {
                        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                    }
                };
                let value = format!("{value} {}", figure.unit);
                add(
                    format!("{}: {setting}", self.chip(nand)),
                    value.trim_end(),
                    figure.origin,
                    &figure.source,
                );
            }
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = Vec::new();
        let mut add = |name: String, value: &str, origin: Origin, source: &str| {
            let (value, source) = (value.to_owned(), source.to_owned());
            let unit = if name.ends_with("bus") { "B/s" } else { "" }.to_owned();
            all.push(Parameter { name, value, unit, origin, source });
        };
        let base = &self.base;
        let fitted = self.fitted.common.iter().map(|(name, value)| (name.clone(), value));
        let of_chips = self.fitted.chips.iter().flat_map(|(nand, values)| {
            values.iter().map(move |(name, value)| (format!("{}: {name}", self.chip(nand)), value))
        });
        for (name, value) in fitted.chain(of_chips) {
            add(name, value, Origin::Fitted, &self.fitted.source);
        }
        for (name, value) in &self.changes {
            add(name.clone(), value, Origin::Chosen, SET);
        }
        if let Amount::Share(share) = base.scm
            && !self.fitted.common.contains_key("scm")
        {
            add("scm".to_owned(), &format!("{}%", share * 100.0), Origin::Estimated, "1 to 10 % is usual");
        }
        self.chip_figures(&mut add);
        let assumed = "not in the paper";
        let over = format!("{}%", base.ssd.over_provisioning * 100.0);
        add(
            "over-provisioning".to_owned(),
            &over,
            Origin::Estimated,
            "at most 25 % in an earlier paper of the group",
        );
        add("precondition".to_owned(), "sequential", Origin::Estimated, assumed);
        add("depth".to_owned(), "1", Origin::Estimated, assumed);
        add("front".to_owned(), "instant", Origin::Estimated, "SSDs are compared, not links");
        let free = format!("{}%", base.cache.low_water * 100.0);
        add("low-water".to_owned(), &free, Origin::Published, "the paper's text");
        let latency = format!("{}ns", base.cache.memory.latency_ns);
        add("scm-latency".to_owned(), &latency, Origin::Published, "papers on NV-WB: 100 ns for 512 bytes");
        add("traffic".to_owned(), &Size(base.traffic_bytes).to_string(), Origin::Chosen, "--traffic");
        add("warm-up".to_owned(), &format!("{}%", base.warm_up * 100.0), Origin::Chosen, "not measured");
        add("seed".to_owned(), &base.seed.to_string(), Origin::Chosen, "--seed");
        // A parameter that --set changes has its new value for all chips, so only the new value is
        // shown.
        let changed = |name: &str| self.changes.iter().any(|(changed, _)| changed == name);
        all.retain(|one| one.source == SET || !changed(one.name.rsplit(": ").next().unwrap_or_default()));
        all
    }
}

/// A study with a heading of the paper.
fn headed(title: &str) -> Study {
    Study { title: format!("{title} (Fukuchi, Sakaki, Matsui, Takeuchi)"), ..Study::default() }
}

/// The paper's name for a kind of NAND.
fn title(nand: &str) -> String {
    nand.to_uppercase().replace('-', " ")
}

/// The name of results with this mark.
fn called(mark: Mark) -> &'static str {
    if mark == Mark::Synthetic { "synthetic" } else { "real trace" }
}

/// The four kinds of NAND, 2D FG MLC first.
fn nands() -> [&'static str; 4] {
    NANDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        figures: Figures,
    }

    #[test]
    fn options_that_a_figure_has_no_use_for_are_refused() {
        for (line, part) in [
            ("fig3 --seeds 2", "--seeds: it is for table2"),
            ("fig6 --quick", "--quick: it is for table2"),
            ("fig5-reverse --quick", "--quick: it is for table2"),
            ("fig3 --set seed=2", "--set seed: use --seed"),
            ("fig3 --set nand=samsung-96l", "--set nand: the figures compare chips"),
            ("fig3 --trace hm_0=a --trace hm_0=b", "--trace hm_0: it is given twice"),
        ] {
            let words = std::iter::once("x").chain(line.split(' '));
            let figures = <Line as clap::Parser>::try_parse_from(words).unwrap().figures;
            let said = figures.run().unwrap_err().to_string();
            assert!(said.contains(part), "{line}: {said}");
        }
    }

    #[test]
    fn a_value_that_is_set_stands_on_the_page_once() {
        let changes = [("depth", "8"), ("program", "700us"), ("channels", "4")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let bench = Bench {
            base: Case::default(),
            fitted: Fitted::built_in(),
            changes: changes.to_vec(),
            long: false,
            workloads: Vec::new(),
        };
        let all = bench.parameters();
        for (name, value) in &bench.changes {
            let named = |one: &&Parameter| one.name.rsplit(": ").next() == Some(name);
            let found: Vec<&Parameter> = all.iter().filter(named).collect();
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!((found[0].value.as_str(), found[0].origin), (value.as_str(), Origin::Chosen));
        }
        assert!(all.iter().any(|one| one.name == "3d-ct-tlc-fitted: read" && one.origin == Origin::Fitted));
    }
}
