//! `terapage sim far`: clients and servers of far memory.

use crate::publish::command_line;
use crate::show::Show;
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use terapage_config::nearest;
use terapage_farsim::Error::Unknown;
use terapage_farsim::{Outcome, Parameters, Part, simulate};
use terapage_report::{Axis, Mark, Parameter, Plot, PlotKind, Series, Study, Table, X};

/// The arguments of `terapage sim far`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage sim far
  terapage sim far --clients 1,16,256 --servers 32 --set client-nic=100 --set server-nic=100
  terapage sim far site.toml --set placement=simple --html far.html
  terapage sim far --clients 16 --servers 4 --set copies=2 --set fail=1 --set return=3 --set seconds=10
  terapage sim far --clients 16 --servers 6 --set code=4of6 --set fail=1 --set return=3 --set seconds=10
  terapage sim far --list

A file sets parameters as in `client-nic = 100`, one per line; --set overrides the file.")]
pub struct Far {
    /// A file of parameters
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Numbers of clients; each is simulated separately
    #[arg(long, value_name = "N,N...", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    clients: Vec<u32>,
    /// Server processes
    #[arg(long, value_name = "N")]
    servers: Option<u32>,
    /// Another value for a parameter
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// List the parameters and their values
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    show: Show,
}

/// A number of clients and the result of its simulation.
#[derive(Serialize)]
struct Run {
    clients: u32,
    outcome: Outcome,
}

impl Far {
    /// Runs the command.
    ///
    /// # Errors
    /// A parameter is wrong, or a file cannot be read or written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(self.file.as_deref())?;
        let parameters = self.parameters()?;
        if self.list {
            return crate::publish::print(&listed(&parameters));
        }
        if self.clients.is_empty() {
            bail!("--clients: how many?");
        }
        let setups = self.clients.iter().map(|&clients| {
            let mut parameters = parameters.clone();
            parameters.set("clients", &clients.to_string())?;
            Ok((clients, parameters.setup().with_context(|| format!("with {clients} clients"))?))
        });
        // Every value is checked before the first simulation.
        let setups: Vec<_> = setups.collect::<anyhow::Result<_>>()?;
        let runs = setups.iter().map(|(clients, setup)| Run { clients: *clients, outcome: simulate(setup) });
        let runs: Vec<Run> = runs.collect();
        let fails = setups.iter().any(|(_, setup)| setup.fail_ns > 0);
        let mut study = study(&parameters, &runs, fails);
        study.summary.extend(setups.first().map(|(_, setup)| setup.rounded()).unwrap_or_default());
        study.summary.extend(unused(&parameters, &runs));
        self.show.results(&study, &runs, || self.show.text(&study, true))
    }

    fn parameters(&self) -> anyhow::Result<Parameters> {
        let mut parameters = Parameters::default();
        if let Some(path) = &self.file {
            let shown = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(shown)?;
            parameters.read(&text).with_context(shown)?;
        }
        if let Some(servers) = self.servers {
            parameters.set("servers", &servers.to_string()).context("--servers")?;
        }
        for text in &self.set {
            let (name, value) = text.split_once('=').context("--set takes NAME=VALUE")?;
            if name == "clients" {
                bail!("--set clients: use --clients");
            }
            let known = nearest(name, parameters.iter().map(|(known, _)| known));
            match (parameters.set(name, value), known) {
                (Err(error @ Unknown(_)), Some(known)) => bail!("--set: {error}; did you mean {known}?"),
                (set, _) => set.context("--set")?,
            }
        }
        Ok(parameters)
    }
}

/// Names the parameters that were given and change nothing: with the built-in value, each number of
/// clients has the same outcome, to the last nanosecond.
fn unused(parameters: &Parameters, runs: &[Run]) -> Option<String> {
    let with_clients = |parameters: &Parameters, clients: u32| {
        let mut parameters = parameters.clone();
        parameters.set("clients", &clients.to_string()).ok()?;
        parameters.setup().ok()
    };
    let mut fewest_first: Vec<&Run> = runs.iter().collect();
    fewest_first.sort_by_key(|run| run.clients);
    let changes_nothing = |name: &str| {
        let other = parameters.without(name);
        fewest_first.iter().all(|run| {
            let setups = (with_clients(parameters, run.clients), with_clients(&other, run.clients));
            let (Some(given), Some(other)) = setups else { return false };
            given != other && simulate(&other) == run.outcome
        })
    };
    let names = parameters.iter().map(|(name, _)| name).filter(|name| *name != "clients");
    let names: Vec<&str> = names.filter(|name| changes_nothing(name)).collect();
    (!names.is_empty())
        .then(|| format!("Without effect here: {} (the built-in value gives the same).", names.join(", ")))
}

fn listed(parameters: &Parameters) -> String {
    let value = |value: &str| value.trim_matches('"').to_owned();
    let lines = parameters.iter().filter(|(name, _)| *name != "clients").map(|(name, it)| {
        let number = format!("{} {}", value(&it.value.to_string()), it.unit);
        format!("{name:16} {number:18} {:9}  {}\n", it.origin.name(), it.source)
    });
    lines.collect()
}

fn shown(parameters: &Parameters) -> Vec<Parameter> {
    let all = parameters.iter().filter(|(name, _)| *name != "clients");
    all.map(|(name, it)| Parameter::sourced(name, it.value.to_string().trim_matches('"').to_owned(), it))
        .collect()
}

fn study(parameters: &Parameters, runs: &[Run], fails: bool) -> Study {
    let mut plots = vec![rates(runs), times(runs), loads(runs)];
    if runs.len() == 1 {
        // A single number of clients gives no curve.
        plots.clear();
    }
    if fails {
        plots.push(timeline(parameters, runs));
    }
    let mut tables = vec![table(runs)];
    tables.extend(fails.then(|| failures(runs)));
    Study {
        title: "Far memory: clients and servers".to_owned(),
        summary: summary(runs),
        command: command_line(),
        parameters: shown(parameters),
        plots,
        tables,
        ..Study::default()
    }
}

/// The parts that saturate, and the number of clients at which they do.
fn summary(runs: &[Run]) -> Vec<String> {
    let mut said = Vec::new();
    let mut known: Vec<Part> = Vec::new();
    for run in runs {
        if let Some(part) = run.outcome.saturated().filter(|part| !known.contains(part)) {
            known.push(part);
            let rate = mib(run.outcome.bytes_per_s());
            said.push(format!(
                "From {} client(s) on, the {} is saturated: {rate} MiB/s.",
                run.clients,
                part.name()
            ));
        }
    }
    if said.is_empty()
        && let Some((run, load)) = runs.last().and_then(|run| Some((run, run.outcome.busiest()?)))
    {
        said.push(format!(
            "No part is saturated with {} clients. The busiest is the {}, {} % of the time. More \
             operations in flight (depth), or more clients, would move more.",
            run.clients,
            load.part.name(),
            percent(load.most)
        ));
    }
    let stopped: u32 = runs.iter().map(|run| run.outcome.stopped).max().unwrap_or(0);
    if stopped > 0 {
        said.push(format!(
            "Up to {stopped} clients are stopped: they need a block that no server has any more."
        ));
    }
    said
}

fn mib(bytes_per_s: f64) -> String {
    format!("{:.0}", bytes_per_s / f64::from(1 << 20))
}

fn percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

fn us(ns: f64) -> String {
    format!("{:.0}", ns / 1e3)
}

fn table(runs: &[Run]) -> Table {
    let columns = ["clients", "MiB/s", "a client", "median us", "p99 us", "busiest part", "% busy"];
    let row = |run: &Run| {
        let outcome = &run.outcome;
        let busiest = outcome.busiest();
        vec![
            run.clients.to_string(),
            mib(outcome.bytes_per_s()),
            mib(outcome.bytes_per_s() / f64::from(run.clients)),
            us(outcome.median_ns as f64),
            us(outcome.p99_ns as f64),
            busiest.map_or(String::new(), |load| load.part.name().to_owned()),
            busiest.map_or(String::new(), |load| percent(load.most)),
        ]
    };
    Table {
        title: "Rate, times of page-ins, and the busiest part".to_owned(),
        columns: columns.map(str::to_owned).into(),
        rows: runs.iter().map(row).collect(),
        note: "MiB/s are of blocks, page-ins and page-outs together.".to_owned(),
    }
}

fn failures(runs: &[Run]) -> Table {
    let columns = [
        "clients",
        "stopped",
        "done elsewhere",
        "longest ms",
        "copied MiB",
        "read for that MiB",
        "whole again s",
    ];
    let row = |run: &Run| {
        let outcome = &run.outcome;
        let whole = match outcome.whole_again_ns {
            0 => "not".to_owned(),
            ns => format!("{:.2}", ns as f64 / 1e9),
        };
        vec![
            run.clients.to_string(),
            outcome.stopped.to_string(),
            outcome.detours.to_string(),
            format!("{:.1}", outcome.longest_ns as f64 / 1e6),
            (outcome.resynced >> 20).to_string(),
            (outcome.read_for_resync >> 20).to_string(),
            whole,
        ]
    };
    Table {
        title: "When the first server is lost".to_owned(),
        columns: columns.map(str::to_owned).into(),
        rows: runs.iter().map(row).collect(),
        note: "Stopped clients need a block that no server has any more.".to_owned(),
    }
}

fn axis(name: &str, unit: &str, log: bool) -> Axis {
    Axis { name: name.to_owned(), unit: unit.to_owned(), log }
}

fn curve(runs: &[Run], name: &str, of: impl Fn(&Outcome) -> f64) -> Series {
    let points = runs.iter().map(|run| (X::Number(f64::from(run.clients)), of(&run.outcome))).collect();
    Series { name: name.to_owned(), mark: Mark::Simulated, points, ..Series::default() }
}

fn plot(title: &str, y: Axis, series: Vec<Series>) -> Plot {
    let x = axis("clients", "", true);
    Plot { title: title.to_owned(), kind: PlotKind::Line, x, y, series, note: String::new() }
}

fn rates(runs: &[Run]) -> Plot {
    let all = curve(runs, "all clients", Outcome::bytes_per_s);
    plot("What is moved", axis("bandwidth", "B/s", false), vec![all])
}

fn times(runs: &[Run]) -> Plot {
    let series = vec![
        curve(runs, "median", |outcome| outcome.median_ns as f64 / 1e9),
        curve(runs, "p99", |outcome| outcome.p99_ns as f64 / 1e9),
    ];
    plot("How long a page-in takes", axis("time", "s", true), series)
}

fn loads(runs: &[Run]) -> Plot {
    let series = Part::ALL.map(|part| {
        curve(runs, part.name(), |outcome| {
            let load = outcome.loads.iter().find(|load| load.part == part);
            load.map_or(0.0, |load| load.most * 100.0)
        })
    });
    plot("How busy the busiest of each kind is", axis("busy", "%", false), series.into())
}

fn timeline(parameters: &Parameters, runs: &[Run]) -> Plot {
    let seconds = parameters.setup().map_or(1.0, |setup| setup.end_ns as f64 / 1e9);
    let series = runs.iter().map(|run| {
        let step = seconds / run.outcome.timeline.len() as f64;
        let at = |(index, &bytes): (usize, &u64)| (X::Number(index as f64 * step), bytes as f64 / step);
        let points = run.outcome.timeline.iter().enumerate().map(at).collect();
        Series {
            name: format!("{} clients", run.clients),
            mark: Mark::Simulated,
            points,
            ..Series::default()
        }
    });
    Plot {
        title: "Rate over time".to_owned(),
        kind: PlotKind::Line,
        x: axis("time", "s", false),
        y: axis("bandwidth", "B/s", false),
        series: series.collect(),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use terapage_report::render_text;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        far: Far,
    }

    fn parse(flags: &str) -> Far {
        let line = ["far"].into_iter().chain(flags.split_whitespace());
        Line::try_parse_from(line).expect("good flags").far
    }

    fn shown_by(flags: &str) -> (Study, String) {
        let far = parse(flags);
        let parameters = far.parameters().unwrap();
        let run = |&clients: &u32| {
            let mut parameters = parameters.clone();
            parameters.set("clients", &clients.to_string()).unwrap();
            Run { clients, outcome: simulate(&parameters.setup().unwrap()) }
        };
        let runs: Vec<Run> = far.clients.iter().map(run).collect();
        let study = study(&parameters, &runs, true);
        let text = render_text(&study, 100);
        (study, text)
    }

    #[test]
    fn it_says_which_part_saturates_at_what_scale() {
        let (study, text) = shown_by(
            "--clients 1,8,32 --servers 1 --set writes=0 --set seconds=0.05 --set data=1 --set server-nic=100",
        );
        assert!(study.summary[0].contains("server's processor is saturated"), "{text}");
        let (study, text) = shown_by("--clients 1 --set depth=1 --set seconds=0.05");
        assert!(study.summary[0].contains("No part is saturated"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn parameters_tell_where_they_are_from() {
        let (study, _) = shown_by("--clients 1 --set latency=5 --set seconds=0.01");
        let origin = |name: &str| study.parameters.iter().find(|it| it.name == name).unwrap().origin;
        assert_eq!(origin("latency"), terapage_report::Origin::Chosen);
        assert_eq!(origin("server-out"), terapage_report::Origin::Fitted);
    }

    #[test]
    fn parameters_without_effect_are_named() {
        let said = |flags: &str| {
            let parameters = parse(flags).parameters().unwrap();
            let run = |clients: u32| {
                let mut parameters = parameters.clone();
                parameters.set("clients", &clients.to_string()).unwrap();
                Run { clients, outcome: simulate(&parameters.setup().unwrap()) }
            };
            unused(&parameters, &[run(2), run(1)])
        };
        let short = "--set seconds=0.01";
        assert_eq!(said(&format!("{short} --set latency=5 --servers 2")), None);
        let flags = "--set server-memory=32 --set resync=7 --set writes=0 --set server-write=9 --set depth=2";
        let told = said(&format!("{short} {flags}")).unwrap();
        assert!(told.starts_with("Without effect here: server-memory, server-write, resync ("), "{told}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for flags in
            ["--set x=1", "--set depth", "--set depth=x", "--servers 0", "--clients 0", "/nonexistent"]
        {
            let far = parse(flags);
            let why = format!("{:#}", far.run().unwrap_err());
            assert!(!why.contains('\n'), "{flags}: {why}");
        }
        let why = format!("{:#}", parse("--set client-nik=4").run().unwrap_err());
        assert!(why.ends_with("did you mean client-nic?"), "{why}");
    }
}
