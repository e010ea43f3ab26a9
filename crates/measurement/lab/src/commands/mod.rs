//! The commands on experiments: `list`, `run`, `all`, `report`, `compare`, `merge`.

pub mod bonnie;
pub mod program;
pub mod stack;

use crate::campaign::bounds::Bounds;
use crate::campaign::session::{Session, columns};
use crate::campaign::steady;
use crate::campaign::{Campaign, Cannot, Plan, clock, estimate, results_directory};
use crate::contender::far::{self, Far, Where};
use crate::experiment::{Experiment, SHIPPED};
use crate::ground::chosen::Chosen;
use crate::ground::janitor::OwnedFile;
use crate::ground::system::now_s;
use crate::guest::{self, Told};
use crate::result::journal::{self, Group, Line};
use crate::result::language::Texts;
use crate::result::pairs::unpaired;
use crate::result::solve::{Solved, of_cell, solve};
use crate::result::study::study;
use anyhow::{Context, anyhow, ensure};
use serde::Serialize;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terapage_config::{Size, can_be_written};
use terapage_report::{
    Language, Study, Table, TextOptions, render_csv, render_html, render_markdown, render_text,
    render_text_with,
};

/// How results are shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Write a page with plots and tables to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the study, with the computed results, as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A TOML file of prices, for what the same money buys: [[price]] tables with contender, price
    /// and capacity
    #[arg(long, value_name = "FILE.toml")]
    pub prices: Option<PathBuf>,
    /// Write the report as Markdown to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write every point that is drawn, with its spread, as CSV to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The report's language
    #[arg(long, value_name = "LANGUAGE", default_value = "en")]
    pub lang: Lang,
    /// Print the parameters and the machine as well
    #[arg(long)]
    pub parameters: bool,
    /// Whether to say where the page is: nobody named it.
    #[arg(skip)]
    pub says_where: bool,
}

/// A report's language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Lang {
    /// English
    #[default]
    En,
    /// Japanese
    Ja,
}

impl Lang {
    /// Its texts.
    pub fn texts(self) -> &'static Texts {
        Texts::of(match self {
            Lang::En => Language::En,
            Lang::Ja => Language::Ja,
        })
    }
}

/// A study with the results that it shows.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    study: &'a Study,
    results: &'a [Solved],
}

impl Show {
    /// Whether the files can be written, before the work begins.
    ///
    /// # Errors
    /// When one cannot.
    pub fn check(&self) -> anyhow::Result<()> {
        let all = self.outputs();
        for (at, (option, path, _)) in all.iter().enumerate() {
            can_be_written(path).map_err(|why| anyhow!("{option}: {} {why}", path.display()))?;
            let other = all[..at].iter().find(|(_, other, _)| other == path);
            ensure!(
                other.is_none(),
                "{} and {option} name the same file",
                other.map_or("", |(name, ..)| name)
            );
        }
        // An option whose file was forgotten takes the next word for it, which may be results.
        for (option, path, begins) in all.iter().filter(|(_, path, _)| path.is_file()) {
            let mut head = Vec::new();
            fs::File::open(path)?.take(16).read_to_end(&mut head)?;
            let head = String::from_utf8_lossy(&head).into_owned();
            let same = head.is_empty() || head.starts_with(begins) && !head.starts_with("{\"line\"");
            ensure!(
                same,
                "{option}: {} exists, and holds something else; name another file, or remove it",
                path.display()
            );
        }
        Ok(())
    }

    /// The files to write: by which option, and how such a file begins.
    fn outputs(&self) -> Vec<(&'static str, &Path, &'static str)> {
        let all = [
            ("--html", &self.html, "<!DOCTYPE html"),
            ("--json", &self.json, "{"),
            ("--markdown", &self.markdown, "# "),
            ("--csv", &self.csv, "part,plot,"),
        ];
        all.into_iter()
            .filter_map(|(option, path, begins)| Some((option, path.as_deref()?, begins)))
            .collect()
    }

    /// Shows what was measured.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn groups(&self, title: &str, groups: &[Group], guests: &[Told]) -> anyhow::Result<()> {
        let solved: Vec<Solved> = groups.iter().map(solve).collect();
        let title = self.lang.texts().text(title);
        let mut study = study(&title, groups, &solved, guests, self.lang.texts())?;
        if let Some(path) = &self.prices {
            study.tables.push(bonnie::prices(path, groups, &solved)?);
        }
        self.study(&study, &solved)
    }

    /// Shows what there is when a run was ended. The error that ended it is the one to be heard.
    pub fn so_far(&self, groups: &[Group]) {
        if !groups.is_empty() {
            let _ = self.groups("The lab, so far", groups, &[]);
        }
    }

    /// Shows a study.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn study(&self, study: &Study, results: &[Solved]) -> anyhow::Result<()> {
        let mut printed = false;
        for (option, path, _) in self.outputs() {
            let text = match option {
                "--html" => render_html(study),
                "--markdown" => render_markdown(study),
                "--csv" => render_csv(study),
                _ => serde_json::to_string_pretty(&Document { study, results })? + "\n",
            };
            match path == Path::new("-") {
                true => io::stdout().lock().write_all(text.as_bytes())?,
                false => fs::write(path, text).with_context(|| format!("{option} {}", path.display()))?,
            }
            printed |= path == Path::new("-");
        }
        if let Some(page) = self.html.as_ref().filter(|_| self.says_where) {
            let _ = writeln!(io::stderr(), "the report is in {}", page.display());
        }
        if printed {
            return Ok(());
        }
        let options = TextOptions {
            columns: columns(&io::stdout()).min(100),
            parameters: self.parameters,
            ..TextOptions::default()
        };
        Ok(io::stdout().lock().write_all(render_text_with(study, &options).as_bytes())?)
    }
}

/// Options of what runs experiments.
#[derive(Clone, Debug, clap::Args)]
pub struct Running {
    /// Where swap files, mapped files and stores lie
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// A device to measure instead, by a name and a directory on it; @hdd, @hdd-2008 or @sata-ssd
    /// makes a slower one of it, on a throttled image file. May be given several times
    #[arg(long, value_name = "NAME=PATH[@CLASS]")]
    pub device: Vec<Chosen>,
    /// Where results are kept; by default ~/.local/share/terapage-lab
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Less data, fewer cells, two rounds: a first impression
    #[arg(long)]
    pub quick: bool,
    /// Say how long the run would take and how much it would write, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Only these contenders, separated by commas, and the baseline
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Measures far memory too: on the server of this URL, which may be given several times; or on
    /// servers that the lab starts and ends: loopback (also without a value), unix (sockets), veth
    /// (network namespaces; root), veth:1gbit (with a rate)
    #[arg(long, value_name = "URL|HOW", num_args = 0..=1, default_missing_value = far::DEFAULT)]
    pub far: Vec<String>,
    /// Before each device is measured, write to it until its speed stays within a tenth of its mean
    /// for a while, for SECONDS at most (600): needs fio, and wears an SSD
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = steady::SECONDS,
          value_parser = clap::value_parser!(u64).range(8..))]
    pub steady: Option<u64>,
    /// How often a disturbed run is repeated; by default 2, with --quick 0
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Minutes after which no further run begins; the same command goes on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub most_minutes: Option<u64>,
    /// Bytes that all runs together may write to the device, by its own count; the run that reaches
    /// them is the last, and the same command goes on
    #[arg(long, value_name = "SIZE")]
    pub most_written: Option<Size>,
    /// Seconds that one run may take; by default 600, with --quick 60
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    #[command(flatten)]
    pub show: Show,
}

impl Running {
    /// How often a disturbed run is repeated.
    pub fn retries(&self) -> u32 {
        self.retries.unwrap_or(if self.quick { 0 } else { 2 })
    }

    /// The stores of the far contenders of these experiments, where any are wanted.
    ///
    /// # Errors
    /// When they cannot be had.
    pub fn far(&self, session: &Session, experiments: &[Experiment]) -> anyhow::Result<Option<Far>> {
        let Some(place) = Where::parse(&self.far)? else { return Ok(None) };
        let (mut servers, mut bytes) = (1, 0);
        for experiment in experiments {
            servers = servers.max(experiment.servers());
            for cell in experiment.cells() {
                bytes = bytes.max(far::part(experiment, &cell, &experiment.sizes_of(&cell)?, 1)?);
            }
        }
        Far::up(session, &place, servers, bytes).map(Some)
    }

    /// How long a run may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(if self.quick { 60 } else { 600 }))
    }
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub struct RunOne {
    /// An experiment's name (terapage lab list), or a TOML file
    #[arg(value_name = "NAME|FILE.toml", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    running: Running,
}

/// Options of `all`.
#[derive(Debug, clap::Args)]
pub struct All {
    #[command(flatten)]
    running: Running,
}

/// Options of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportOn {
    /// Files of results
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Results of one machine, kernel or version
    one: PathBuf,
    /// Results of another
    other: PathBuf,
    #[command(flatten)]
    show: Show,
}

/// Options of `merge`.
#[derive(Debug, clap::Args)]
pub struct Merge {
    /// Files of results
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl RunOne {
    /// Runs the experiments that are named.
    ///
    /// # Errors
    /// When one is wrong, or cannot be run.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let experiments: anyhow::Result<Vec<_>> =
            self.names.iter().map(|name| Experiment::find(name)).collect();
        run_all("run", experiments?, &self.running, None, false)
    }
}

impl All {
    /// Runs all experiments that come with the lab.
    ///
    /// # Errors
    /// When one cannot be run.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let experiments: anyhow::Result<Vec<_>> =
            SHIPPED.iter().map(|(name, _)| Experiment::find(name)).collect();
        let mut running = self.running;
        if running.show.html.is_none() && !running.dry_run {
            let name = if running.quick { "lab-quick.html" } else { "lab.html" };
            running.show.html = Some(results_directory(running.results.as_deref())?.join(name));
        }
        running.show.says_where = true;
        run_all("all", experiments?, &running, None, true)
    }
}

/// Runs experiments, on one device after the other. `may_erase`: a device that may be formatted.
/// `guest`: in the emulated machine too, which has no device.
///
/// # Errors
/// When one is wrong, or ended.
pub fn run_all(
    command: &str,
    mut experiments: Vec<(String, Experiment)>,
    running: &Running,
    may_erase: Option<PathBuf>,
    guest: bool,
) -> anyhow::Result<ExitCode> {
    running.show.check()?;
    Where::parse(&running.far)?;
    for chosen in &running.device {
        chosen.check()?;
    }
    for (_, experiment) in &mut experiments {
        if running.quick {
            *experiment = experiment.clone().quick();
        }
        // Nobody asked for it, and there is no store.
        if running.far.is_empty() && !running.contenders.iter().any(|name| name.starts_with("far")) {
            experiment.leave_far();
        }
        if !running.contenders.is_empty() {
            choose(experiment, &running.contenders)?;
        }
    }
    let mut costs = costs(&experiments, running.device.len().max(1), guest)?;
    if let Some(seconds) = running.steady {
        let seconds = (seconds as f64, seconds as f64);
        costs += &format!(
            "--steady takes up to {} more on each device, and writes as much as it can meanwhile.\n",
            in_minutes(seconds)
        );
    }
    if running.dry_run {
        let mut out = io::stdout().lock();
        out.write_all(costs.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let _ = io::stderr().write_all(costs.as_bytes());
    let mut session = Session::open(command, &running.dir, running.timeout())?;
    session.may_erase = may_erase;
    session.bounds = Bounds::new(running.most_minutes, running.most_written.map(|Size(bytes)| bytes));
    let plain: Vec<Experiment> = experiments.iter().map(|(_, experiment)| experiment.clone()).collect();
    session.far = running.far(&session, &plain)?;
    let place = results_directory(running.results.as_deref())?;
    let (mut groups, mut missing) = (Vec::new(), 0);
    let several = experiments.len() > 1;
    let devices: Vec<Option<&Chosen>> = match running.device.is_empty() {
        true => vec![None],
        false => running.device.iter().map(Some).collect(),
    };
    let all: Vec<(String, Experiment)> = devices.iter().flat_map(|_| experiments.clone()).collect();
    let janitor = session.janitor.clone();
    let mut settled: Option<(String, OwnedFile<'_>)> = None;
    let disk_bytes = most_disk(&experiments)?;
    let mut later_s = after_each(&all, if guest { guest::SECONDS } else { 0.0 })?;
    for (chosen, (name, experiment)) in
        devices.into_iter().flat_map(|device| experiments.iter().map(move |one| (device, one)))
    {
        let suffix = if running.quick { "-quick" } else { "" };
        let of_device = chosen.map(|chosen| format!("-{}", chosen.name)).unwrap_or_default();
        let path = place.join(format!("{name}{of_device}{suffix}.jsonl"));
        let (name, experiment) = (name.clone(), experiment.clone());
        let plan = Plan { name, experiment, retries: running.retries() };
        let mut done = match chosen {
            Some(chosen) => choose_device(&mut session, chosen, &plan.experiment),
            None => Ok(()),
        };
        let device = chosen.map(|chosen| chosen.name.clone()).unwrap_or_default();
        let fresh = settled.as_ref().is_none_or(|(known, _)| *known != device);
        if let Some(seconds) = running.steady.filter(|_| done.is_ok() && fresh) {
            // The device before gets its blocks back.
            (settled, session.steady) = (None, None);
            match chosen.and_then(|chosen| chosen.class) {
                Some(class) => {
                    session.progress.say(&format!("--steady: {device} is throttled ({})", class.name))
                }
                None => {
                    done = steady::reach(&session, &janitor, seconds, disk_bytes).map(|(steady, file)| {
                        session.steady = Some(steady);
                        settled = Some((device, file));
                    });
                }
            }
        }
        session.progress.later(later_s.pop().unwrap_or(0.0));
        match done.and_then(|()| finish(&session, plan, &path, &mut groups)) {
            Ok(()) => {}
            // What can still run is run.
            Err(error) if several && error.downcast_ref::<Cannot>().is_some() => {
                session.progress.say(&format!("{error:#}"));
                missing += 1;
            }
            Err(error) => {
                session.progress.clear();
                running.show.so_far(&groups);
                return Err(error);
            }
        }
    }
    let mut guests = Vec::new();
    if guest {
        session.progress.later(0.0);
        match guest::measure(&session, None, &place.join(guest::RESULTS)) {
            Ok(told) => guests.push(told),
            Err(error) if error.downcast_ref::<Cannot>().is_some() => {
                session.progress.say(&format!("guest: {error:#}"));
                missing += 1;
            }
            Err(error) => {
                session.progress.clear();
                running.show.so_far(&groups);
                return Err(error.context("guest"));
            }
        }
    }
    session.progress.clear();
    running.show.groups("The lab", &groups, &guests)?;
    Ok(if missing > 0 { ExitCode::FAILURE } else { status(&groups, &running.contenders) })
}

/// The most disk that one of the experiments needs at once.
fn most_disk(experiments: &[(String, Experiment)]) -> anyhow::Result<u64> {
    let each: anyhow::Result<Vec<u64>> =
        experiments.iter().map(|(_, experiment)| Ok(estimate(experiment)?.disk_bytes)).collect();
    Ok(each?.into_iter().max().unwrap_or(0))
}

/// Bytes of a device that is made for an experiment, beside what that needs.
const ROOM: u64 = 256 << 20;

fn choose_device(session: &mut Session, chosen: &Chosen, experiment: &Experiment) -> anyhow::Result<()> {
    let bytes = match experiment.has_own_disks() {
        true => None,
        false => Some(estimate(experiment)?.disk_bytes * 5 / 4 + ROOM),
    };
    session.choose(chosen, bytes)
}

/// What is still to come after each experiment, seconds; that of the first is the last.
fn after_each(experiments: &[(String, Experiment)], at_last: f64) -> anyhow::Result<Vec<f64>> {
    let mut later = vec![at_last];
    for (_, experiment) in experiments.iter().skip(1).rev() {
        let known = later.last().copied().unwrap_or(0.0);
        later.push(known + estimate(experiment)?.seconds.0);
    }
    Ok(later)
}

/// Keeps the contenders that are named.
fn choose(experiment: &mut Experiment, names: &[String]) -> anyhow::Result<()> {
    let known: Vec<String> =
        experiment.all_contenders()?.into_iter().map(|contender| contender.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("--contenders: {unknown} is none of {}", known.join(", "));
    }
    experiment.keep(names);
    Ok(())
}

/// Runs a campaign, and says where its results are. What was measured before it was ended is in
/// `groups` as well.
///
/// # Errors
/// When it is ended; what was measured stays in the results.
pub fn finish(session: &Session, plan: Plan, path: &Path, groups: &mut Vec<Group>) -> anyhow::Result<()> {
    let name = plan.name.clone();
    match Campaign::new(session, plan, path).and_then(Campaign::run) {
        Ok(group) => {
            session.progress.say(&format!("{name}: results in {}", path.display()));
            groups.push(group);
            Ok(())
        }
        Err(error) => {
            let known = journal::read(&[path.to_owned()]).unwrap_or_default();
            let last = known.into_iter().rfind(|group| !group.runs.is_empty());
            let kept = match &last {
                Some(_) => format!(" (what was measured is in {}; the same command goes on)", path.display()),
                None => String::new(),
            };
            groups.extend(last);
            Err(error.context(format!("{name}{kept}")))
        }
    }
}

/// Whether a run failed, or one of the contenders that were `named` could not take part. To be
/// killed, or to take too long, is a finding.
pub fn status(groups: &[Group], named: &[String]) -> ExitCode {
    let failed = |record: &journal::Record| matches!(record.run.end, crate::ground::runner::End::Failed(_));
    let misses = |(name, _): &(String, String)| named.contains(name);
    match groups.iter().any(|group| group.runs.iter().any(failed) || group.head.left_out.iter().any(misses)) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// What experiments will take, on each of so many devices.
fn costs(experiments: &[(String, Experiment)], devices: usize, guest: bool) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    let (mut least, mut most, mut written, mut disk) = (0.0, 0.0, 0, 0);
    for (name, experiment) in experiments {
        let one = estimate(experiment)?;
        least += one.seconds.0;
        most += one.seconds.1;
        written += one.written_bytes;
        disk = one.disk_bytes.max(disk);
        rows.push(vec![
            name.clone(),
            format!("{} to {}", one.runs_least, one.runs_most),
            minutes(one.seconds),
            Size(one.disk_bytes).to_string(),
            Size(one.written_bytes >> 20 << 20).to_string(),
        ]);
    }
    let columns = ["experiment", "runs", "minutes", "disk", "written to it"].map(str::to_owned).to_vec();
    (least, most, written) = (least * devices as f64, most * devices as f64, written * devices as u64);
    if guest {
        (least, most, disk) = (least + guest::SECONDS, most + guest::SECONDS, disk.max(guest::DISK_BYTES));
        let row =
            ["guest", "2", &minutes((guest::SECONDS, guest::SECONDS)), &Size(guest::DISK_BYTES).to_string()];
        rows.push([&row.map(str::to_owned)[..], &[Size(guest::DISK_BYTES).to_string()]].concat());
        written += guest::DISK_BYTES;
    }
    let ends = clock(now_s() + most as u64);
    let on_each =
        if devices > 1 { format!(", {devices} devices, the table is of one") } else { String::new() };
    let note = format!(
        "In all {}{on_each}, {} of disk at once, up to {} written; begun now it ends by {ends}. Runs that \
         are disturbed are repeated, which takes longer.",
        in_minutes((least, most)),
        Size(disk),
        Size(written >> 20 << 20)
    );
    let table = Table { title: "What it takes".into(), columns, rows, note };
    Ok(render_text(&Study { tables: vec![table], ..Study::default() }, 80).trim_start().to_owned())
}

pub fn minutes((least, most): (f64, f64)) -> String {
    let of = |seconds: f64| (seconds / 60.0).ceil();
    if of(least) == of(most) { of(most).to_string() } else { format!("{} to {}", of(least), of(most)) }
}

/// The same with its unit.
pub fn in_minutes(seconds: (f64, f64)) -> String {
    match minutes(seconds).as_str() {
        "1" => "1 minute".into(),
        several => format!("{several} minutes"),
    }
}

/// Prints the names of the experiments.
///
/// # Errors
/// When it cannot be written.
pub fn list() -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for (name, _) in SHIPPED {
        let (_, experiment) = Experiment::find(name)?;
        let names: Vec<String> = experiment.all_contenders()?.into_iter().map(|c| c.name).collect();
        let quick = estimate(&experiment.clone().quick())?;
        rows.push(vec![
            name.to_owned(),
            experiment.title.clone(),
            experiment.cells().len().to_string(),
            minutes(estimate(&experiment)?.seconds),
            minutes(quick.seconds),
            names.join(", "),
        ]);
    }
    let columns = ["name", "what", "cells", "minutes", "--quick", "contenders"].map(str::to_owned).to_vec();
    let table = Table { title: "Experiments".into(), columns, rows, note: String::new() };
    let text = render_text(&Study { tables: vec![table], ..Study::default() }, columns_of_terminal());
    io::stdout().lock().write_all(text.trim_start().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn columns_of_terminal() -> usize {
    columns(&io::stdout()).min(100)
}

impl ReportOn {
    /// Draws what was measured.
    ///
    /// # Errors
    /// When results cannot be read, or the report not be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.show.check()?;
        let groups = journal::read(&self.files)?;
        self.show.groups("The lab", &groups, &journal::guests(&self.files)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Compare {
    /// Holds two machines, kernels or versions against each other.
    ///
    /// # Errors
    /// When results cannot be read, or have nothing in common.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.show.check()?;
        let (one, other) = (
            journal::read(std::slice::from_ref(&self.one))?,
            journal::read(std::slice::from_ref(&self.other))?,
        );
        let texts = self.show.lang.texts();
        let title = texts.text("Two sets of results");
        let mut study = Study { title, language: texts.language(), ..Study::default() };
        for group in &one {
            for with in other.iter().filter(|with| with.head.name == group.head.name) {
                study.tables.extend(against(group, with, texts));
            }
        }
        ensure!(
            !study.tables.is_empty(),
            "{} and {} have no cell in common",
            self.one.display(),
            self.other.display()
        );
        study.summary.push(texts.say("compare", &[("first", &self.one.display().to_string())]));
        let (ours, theirs) = (one[0].head.machine.pairs(), other[0].head.machine.pairs());
        let others: Vec<String> = ours
            .iter()
            .filter_map(|(key, value)| {
                let with = theirs.iter().find(|(known, _)| known == key)?;
                (with.1 != *value).then(|| format!("{key}: {value} / {}", with.1))
            })
            .collect();
        study.summary.push(match others.is_empty() {
            true => texts.say("settings-same", &[]),
            false => texts.say("settings-differ", &[("settings", &others.join("; "))]),
        });
        self.show.study(&study, &[])?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The cells, contenders and passes that both have.
fn against(one: &Group, other: &Group, texts: &Texts) -> Option<Table> {
    let unit = one.head.experiment.unit;
    let mut rows = Vec::new();
    for cell in one.head.experiment.cells() {
        let (ones, others) = (of_cell(&one.runs, &cell), of_cell(&other.runs, &cell));
        let mut keys: Vec<(String, String)> = Vec::new();
        for record in &ones {
            for pass in &record.run.passes {
                let key = (record.run.contender.clone(), pass.pass.clone());
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        for (contender, pass) in keys {
            let of = |runs: &[&journal::Record]| -> Vec<f64> {
                let own = runs.iter().filter(|record| record.run.contender == contender);
                own.flat_map(|r| r.run.passes.iter().filter(|p| p.pass == pass).map(|p| unit.cost(p)))
                    .collect()
            };
            if let Some(ratio) = unpaired(&of(&ones), &of(&others)) {
                rows.push(vec![
                    texts.cell(&cell),
                    contender,
                    pass,
                    texts.interval(&ratio),
                    ratio.pairs.to_string(),
                ]);
            }
        }
    }
    let columns = vec![
        texts.say("cell", &[]),
        texts.say("contender", &[]),
        texts.say("pass", &[]),
        texts.say("first-over-second", &[]),
        texts.say("runs", &[]),
    ];
    (!rows.is_empty()).then(|| Table { title: one.head.name.clone(), columns, rows, note: String::new() })
}

impl Merge {
    /// Puts files of results into one, each run once.
    ///
    /// # Errors
    /// When one cannot be read, or the new one is there already.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let groups = journal::read(&self.files)?;
        let guests = journal::guests(&self.files)?;
        let made = fs::OpenOptions::new().write(true).create_new(true).open(&self.output);
        let mut file =
            io::BufWriter::new(made.with_context(|| format!("--output {}", self.output.display()))?);
        let mut count = 0;
        for group in groups {
            writeln!(file, "{}", serde_json::to_string(&Line::Head(Box::new(group.head)))?)?;
            let mut known = std::collections::HashSet::new();
            for run in group.runs {
                let line = serde_json::to_string(&Line::Run(Box::new(run)))?;
                if known.insert(line.clone()) {
                    writeln!(file, "{line}")?;
                    count += 1;
                }
            }
        }
        for told in guests {
            writeln!(file, "{}", serde_json::to_string(&Line::Guest(Box::new(told)))?)?;
            count += 1;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        writeln!(io::stdout(), "{count} runs in {}", self.output.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
