//! What was measured, where, and what it means: as a table and as JSON.

use crate::ground::runner::{End, fields};
use crate::result::statistics::{Spread, median_of_rounds, spread};
use crate::workload::Pass;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};
use terapage_config::Size;

/// The machine that it ran on.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    /// Processors that the lab may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The type of the file system that stores and swap files lie on.
    pub file_system: String,
    /// The day, UTC, as 2026-01-31.
    pub date: String,
}

impl Machine {
    /// This machine, and the file system of `directory`.
    pub fn here(directory: &Path) -> Machine {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Machine {
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: fields(&memory).get("MemTotal").copied().unwrap_or(0),
            kernel: kernel.trim().to_owned(),
            file_system: file_system(directory).unwrap_or_else(|| "unknown".into()),
            date: date(seconds),
        }
    }
}

/// The type of the file system that `path` lies on.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let of = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        let kind = after.split(' ').next()?.to_owned();
        path.starts_with(&point).then_some((point.len(), kind))
    };
    mounts.lines().filter_map(of).max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// The UTC day of a time in seconds since 1970.
fn date(seconds: u64) -> String {
    let seconds = seconds as libc::time_t;
    // SAFETY: `tm` is plain data, for which zeros are a value (its zone is a pointer that may be
    // null).
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values of ours that live through the call.
    if unsafe { libc::gmtime_r(&seconds, &mut parts) }.is_null() {
        return "unknown".into();
    }
    format!("{}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday)
}

/// Bytes free to us on the file system of `path`.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let name: &CStr = &name;
    // SAFETY: statvfs is plain data, for which zeros are a value.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends in a zero byte; both live through the call.
    if unsafe { libc::statvfs(name.as_ptr(), &mut answer) } != 0 {
        return None;
    }
    Some(answer.f_bavail * answer.f_frsize)
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes that a program touched by the second.
    #[serde(rename = "MiB/s")]
    Rate,
    /// Time of one read.
    #[serde(rename = "us")]
    Latency,
    /// Time of the whole.
    #[serde(rename = "s")]
    Seconds,
    /// Operations with floating-point numbers by the second.
    #[serde(rename = "MFLOPS")]
    Mflops,
    /// Bytes by the second, or operations by the second of passes that count those.
    #[serde(rename = "MiB/s or 1/s")]
    Speed,
    /// Time of one I/O.
    #[serde(rename = "us per I/O")]
    PerIo,
}

impl Unit {
    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Rate => "MiB/s",
            Unit::Latency => "us per read",
            Unit::Seconds => "s",
            Unit::Mflops => "MFLOPS",
            Unit::Speed => "MiB/s or 1/s",
            Unit::PerIo => "us per I/O",
        }
    }

    /// The same for some passes alone: of [`Unit::Speed`] their names end with their unit.
    pub fn name_of<'a>(self, passes: impl Iterator<Item = &'a str>) -> &'static str {
        let all = |end: &str, passes: &[&str]| passes.iter().all(|pass| pass.ends_with(end));
        let passes: Vec<&str> = passes.collect();
        match self {
            Unit::Speed if passes.is_empty() => self.name(),
            Unit::Speed if all(", MiB/s", &passes) => "MiB/s",
            Unit::Speed if all(", 1/s", &passes) => "1/s",
            _ => self.name(),
        }
    }

    /// The figure of a pass.
    pub fn of(self, pass: &Pass) -> f64 {
        match self {
            Unit::Mflops => pass.flops.unwrap_or(f64::NAN) / pass.seconds / 1e6,
            Unit::Speed if pass.operations.is_some() => pass.operations.unwrap_or(0.0) / pass.seconds,
            Unit::Rate | Unit::Speed => pass.bytes as f64 / pass.seconds / f64::from(1 << 20),
            Unit::PerIo => pass.seconds * 1e6 / pass.operations.unwrap_or(1.0),
            Unit::Latency => pass.seconds * 1e6 * pass.threads as f64 / (pass.bytes as f64 / 8.0),
            Unit::Seconds => pass.seconds,
        }
    }

    /// What the same work costs in time, in whatever measure: less is better.
    pub fn cost(self, pass: &Pass) -> f64 {
        match self {
            Unit::Rate | Unit::Mflops | Unit::Speed => 1.0 / self.of(pass),
            Unit::Latency | Unit::Seconds | Unit::PerIo => self.of(pass),
        }
    }
}

/// One run of one contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The round, from 1.
    pub round: u32,
    /// Who ran.
    pub contender: String,
    /// How it ended.
    pub end: End,
    /// The passes that it finished.
    pub passes: Vec<Pass>,
    /// The most anonymous memory that it was seen to have, bytes.
    pub resident_peak_bytes: u64,
    /// What its anonymous memory may be, where it has a budget, bytes.
    pub resident_limit_bytes: Option<u64>,
    /// The pager's counters at the end.
    pub stats: Option<serde_json::Value>,
    /// How long the program ran, seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Seconds of processor time that it took.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Bytes that it read from devices, without a pager's.
    #[serde(default)]
    pub own_read_bytes: u64,
    /// Its exit status.
    #[serde(default)]
    pub code: Option<i32>,
    /// What it says of itself, and of what it ran on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The output of another program that its figures come from, as it came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<String>,
}

/// Median and spread of one contender's pass.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// Who.
    pub contender: String,
    /// Which pass.
    pub pass: String,
    /// Of all rounds that have it.
    #[serde(flatten)]
    pub spread: Spread,
}

/// On which side of its target a value must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The target or more.
    #[default]
    AtLeast,
    /// The target or less.
    AtMost,
    /// Less than the target.
    Below,
    /// One, give or take the target.
    Within,
}

impl Side {
    /// Before the target.
    pub fn sign(self) -> &'static str {
        match self {
            Side::AtLeast => ">=",
            Side::AtMost => "<=",
            Side::Below => "<",
            Side::Within => "1 +-",
        }
    }
}

/// A target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is held against it.
    pub what: String,
    /// On which side it must be.
    pub side: Side,
    /// The target.
    pub target: f64,
    /// The measured value; `None` where a contender is missing.
    pub value: Option<f64>,
    /// Whether it is met; `None` where it was not measured.
    pub met: Option<bool>,
}

/// A contender's page-ins in one run, and the fewest possible for the references that a trace
/// recorded.
#[derive(Debug, Serialize)]
pub struct Optimum {
    /// Who.
    pub contender: String,
    /// Its budget, bytes.
    pub memory_bytes: u64,
    /// Bytes that the program could touch unseen while its references were recorded.
    pub recorded_window_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: Option<u64>,
    /// How many references the trace has.
    pub references: Option<u64>,
    /// Blocks read from the store.
    pub page_ins: Option<u64>,
    /// Blocks that Belady's algorithm reads for the references, with the frames of the budget.
    pub optimum: Option<u64>,
    /// `page_ins` / `optimum`; an optimum of 0 counts as 1.
    pub ratio: Option<f64>,
    /// First touches in the trace, blocks.
    pub first_touches: Option<u64>,
    /// The ratio with the first touches added to both sides.
    pub ratio_with_first_touches: Option<f64>,
    /// What is missing, or strange, and why.
    pub notes: Vec<String>,
}

impl Optimum {
    /// Nothing known yet.
    pub fn none(contender: &str, memory_bytes: u64) -> Optimum {
        Optimum {
            contender: contender.into(),
            memory_bytes,
            recorded_window_bytes: None,
            block_bytes: None,
            references: None,
            page_ins: None,
            optimum: None,
            ratio: None,
            first_touches: None,
            ratio_with_first_touches: None,
            notes: Vec::new(),
        }
    }

    /// The same with a note.
    pub fn note(mut self, note: String) -> Optimum {
        self.notes.push(note);
        self
    }

    /// Takes the optimum in, and holds the page-ins against it.
    pub fn compare(&mut self, page_ins: u64, optimum: u64, first_touches: u64) {
        self.optimum = Some(optimum);
        self.ratio = Some(page_ins as f64 / optimum.max(1) as f64);
        self.first_touches = Some(first_touches);
        self.ratio_with_first_touches =
            Some((page_ins + first_touches) as f64 / (optimum + first_touches).max(1) as f64);
        if page_ins < optimum {
            self.notes.push("fewer page-ins than the optimum: the recorded run touched more".into());
        }
    }
}

/// How the runs of a contender ended at the smallest of several budgets.
#[derive(Debug, Serialize)]
pub struct Completion {
    /// Who.
    pub contender: String,
    /// The budget, bytes.
    pub memory_bytes: u64,
    /// Runs.
    pub runs: usize,
    /// Those that did their work.
    pub done: usize,
    /// Those that were killed.
    pub killed: usize,
}

impl Completion {
    /// In words.
    fn text(&self) -> String {
        let of = |count: usize| match count == self.runs {
            true => String::new(),
            false => format!(" in {count} of {} runs", self.runs),
        };
        match (self.done, self.killed) {
            (0, 0) => format!("{} does not complete", self.contender),
            (0, killed) => format!("{} is killed{}", self.contender, of(killed)),
            (done, _) => format!("{} completes{}", self.contender, of(done)),
        }
    }
}

/// Everything that an experiment found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: String,
    /// Its sizes, in words.
    pub setting: String,
    /// Where it ran.
    pub machine: Machine,
    /// What figures count.
    pub unit: Unit,
    /// Contenders that could not take part, and why.
    pub left_out: Vec<(String, String)>,
    /// Medians and spreads.
    pub figures: Vec<Figure>,
    /// Page-ins against the optimum; only `sort` has it.
    pub optima: Vec<Optimum>,
    /// Who completes at the smallest budget; only `sort` has it.
    pub completions: Vec<Completion>,
    /// Targets.
    pub targets: Vec<Target>,
    /// Every run.
    pub runs: Vec<Run>,
}

impl Report {
    /// A report without targets yet.
    pub fn new(
        experiment: &str,
        setting: String,
        unit: Unit,
        machine: Machine,
        left_out: Vec<(String, String)>,
        runs: Vec<Run>,
    ) -> Report {
        let mut report = Report {
            experiment: experiment.into(),
            setting,
            machine,
            unit,
            left_out,
            figures: Vec::new(),
            optima: Vec::new(),
            completions: Vec::new(),
            targets: Vec::new(),
            runs,
        };
        for contender in report.contenders() {
            for pass in report.passes() {
                let values: Vec<f64> = report.by_round(&contender, &pass).into_iter().flatten().collect();
                if let Some(spread) = spread(&values) {
                    report.figures.push(Figure { contender: contender.clone(), pass, spread });
                }
            }
        }
        report
    }

    fn contenders(&self) -> Vec<String> {
        in_order(self.runs.iter().map(|run| &run.contender))
    }

    fn passes(&self) -> Vec<String> {
        in_order(self.runs.iter().flat_map(|run| run.passes.iter().map(|pass| &pass.pass)))
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
        let met = value.map(|value| match side {
            Side::AtLeast => value >= target,
            Side::AtMost => value <= target,
            Side::Below => value < target,
            Side::Within => (value - 1.0).abs() <= target,
        });
        self.targets.push(Target { what: what.into(), side, target, value, met });
    }

    /// Holds the median of per-round ratios of two (contender, pass) against a target.
    pub fn ratio(&mut self, one: (&str, &str), other: (&str, &str), side: Side, target: f64) {
        let name = |(contender, pass): (&str, &str)| format!("{contender} {pass}").trim_end().to_owned();
        let value =
            median_of_rounds(&self.by_round(one.0, one.1), &self.by_round(other.0, other.1), |a, b| a / b);
        self.target(format!("{} / {}", name(one), name(other)), side, target, value);
    }

    /// As [`Report::ratio`] with `least`, or 95 % of the device's bound if that is less: a pass
    /// over the data reads and writes all of it, for `depth` steps that each touch it once.
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

    /// As [`Report::ratio`], for the difference.
    pub fn difference(&mut self, one: (&str, &str), other: (&str, &str), side: Side, target: f64) {
        let value =
            median_of_rounds(&self.by_round(one.0, one.1), &self.by_round(other.0, other.1), |a, b| a - b);
        let what = format!("{} {} - {} {}, {}", one.0, one.1, other.0, other.1, self.unit.name());
        self.target(what, side, target, value);
    }

    /// Holds the reads that `threads` threads do in a time, as a multiple of what one does, against
    /// a target, or against what `device` itself does with as many in flight, if that is less.
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

    /// Holds the share of bytes written in a pass to bytes read in it against a target.
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

    /// Holds the most memory of each contender that has a limit against it, in MiB.
    pub fn residents(&mut self) {
        for contender in self.contenders() {
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

    /// Notes how the runs of `contender` ended at the smallest budget.
    pub fn completion(&mut self, contender: &str, memory_bytes: u64) {
        let ends: Vec<&End> =
            self.runs.iter().filter(|run| run.contender == contender).map(|run| &run.end).collect();
        if ends.is_empty() {
            return;
        }
        self.completions.push(Completion {
            contender: contender.into(),
            memory_bytes,
            runs: ends.len(),
            done: ends.iter().filter(|end| ***end == End::Done).count(),
            killed: ends.iter().filter(|end| ***end == End::Killed).count(),
        });
    }

    /// Takes in page-ins and their optimum, and holds their ratio against a target.
    pub fn optimum(&mut self, optimum: Optimum, target: f64) {
        let what = format!("{}: page-ins / optimum", optimum.contender);
        self.target(what, Side::AtMost, target, optimum.ratio);
        let what = format!("{}: the same with first touches", optimum.contender);
        self.target(what, Side::AtMost, target, optimum.ratio_with_first_touches);
        self.optima.push(optimum);
    }

    /// As text for people.
    /// Tables go up to `width` characters where they can.
    pub fn text(&self, width: usize) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{}: {}\n{} cores, {} memory, Linux {}, {}, {}\n\n",
            self.experiment,
            self.setting,
            machine.cores,
            Size(machine.memory_bytes),
            machine.kernel,
            machine.file_system,
            machine.date
        );
        self.write_figures(&mut text, width);
        for run in self.runs.iter().filter(|run| run.end != End::Done) {
            let _ = writeln!(text, "{}, round {}: {}", run.contender, run.round, run.end.text());
        }
        for (contender, why) in &self.left_out {
            let _ = writeln!(text, "left out: {contender}: {why}");
        }
        if !self.completions.is_empty() {
            let verdicts: Vec<String> = self.completions.iter().map(Completion::text).collect();
            let _ = writeln!(text, "smallest budget: {}", verdicts.join("; "));
        }
        self.write_optima(&mut text, width);
        self.write_targets(&mut text);
        text
    }

    fn write_figures(&self, text: &mut String, width: usize) {
        let passes = self.passes();
        let mut rows = vec![vec![self.unit.name().to_owned()]];
        rows[0].extend(passes.iter().cloned());
        rows[0].push("resident".into());
        for contender in self.contenders() {
            let mut row = vec![contender.clone()];
            for pass in &passes {
                let figure =
                    self.figures.iter().find(|figure| figure.contender == contender && figure.pass == *pass);
                row.push(match figure {
                    Some(figure) => cell(figure.spread),
                    None => self.missing(&contender),
                });
            }
            let runs = self.runs.iter().filter(|run| run.contender == contender);
            let peak = runs.map(|run| run.resident_peak_bytes).max().unwrap_or(0);
            row.push(Size(peak >> 20 << 20).to_string());
            rows.push(row);
        }
        write_table(text, &rows, width);
    }

    /// What stands where a contender has no figure.
    fn missing(&self, contender: &str) -> String {
        let runs = self.runs.iter().filter(|run| run.contender == contender);
        match runs.map(|run| &run.end).find(|end| **end != End::Done) {
            Some(End::Failed(_)) => "failed".into(),
            Some(end) => end.text(),
            None => "-".into(),
        }
    }

    fn write_optima(&self, text: &mut String, width: usize) {
        if self.optima.is_empty() {
            return;
        }
        let head = ["page-ins, blocks", "measured", "optimum", "ratio", "with first", "references", "window"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let count = |count: Option<u64>| count.map_or_else(|| "-".into(), |count| count.to_string());
        for optimum in &self.optima {
            rows.push(vec![
                optimum.contender.clone(),
                count(optimum.page_ins),
                count(optimum.optimum),
                optimum.ratio.map_or_else(|| "-".into(), number),
                optimum.ratio_with_first_touches.map_or_else(|| "-".into(), number),
                count(optimum.references),
                optimum.recorded_window_bytes.map_or_else(|| "-".into(), |bytes| Size(bytes).to_string()),
            ]);
        }
        text.push('\n');
        write_table(text, &rows, width);
        for optimum in &self.optima {
            for note in &optimum.notes {
                let _ = writeln!(text, "{}: {note}", optimum.contender);
            }
        }
    }

    fn write_targets(&self, text: &mut String) {
        if self.targets.is_empty() {
            return;
        }
        let head = ["against the targets", "value", "target", ""];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for target in &self.targets {
            let sign = target.side.sign();
            let met = match target.met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "not measured",
            };
            let value = target.value.map_or_else(|| "-".into(), number);
            rows.push(vec![
                target.what.clone(),
                value,
                format!("{sign} {}", number(target.target)),
                met.into(),
            ]);
        }
        text.push('\n');
        // A target and whether it is met belong in one line.
        write_table(text, &rows, usize::MAX);
    }
}

fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut known = Vec::new();
    for name in names {
        if !known.contains(name) {
            known.push(name.clone());
        }
    }
    known
}

/// A number with three or more digits that matter.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn cell(spread: Spread) -> String {
    if spread.min == spread.max {
        return number(spread.median);
    }
    format!("{} ({}..{})", number(spread.median), number(spread.min), number(spread.max))
}

/// Columns, the first to the left and the others to the right. What goes beyond `width` stands
/// below, behind the first column again.
fn write_table(text: &mut String, rows: &[Vec<String>], width: usize) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut from = 1;
    loop {
        let mut end = from;
        let mut taken = widths.first().copied().unwrap_or(0);
        while end < columns && (end == from || taken + 2 + widths[end] <= width) {
            taken += 2 + widths[end];
            end += 1;
        }
        for row in rows {
            let first = row.first().map_or("", String::as_str);
            let mut line = format!("{first:<0$}", widths[0]);
            for (cell, width) in row.iter().zip(&widths).take(end).skip(from) {
                let _ = write!(line, "  {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if end >= columns {
            return;
        }
        text.push('\n');
        from = end;
    }
}

#[cfg(test)]
mod tests {
    use super::{Machine, Optimum, Report, Run, Side, Unit, date, number, write_table};
    use crate::ground::runner::End;
    use crate::workload::Pass;
    use std::path::Path;

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
    fn figures_targets_and_the_killed_are_in_the_text() {
        let runs = vec![
            run(1, "fio", 1.0),
            run(1, "terapage", 2.0),
            run(1, "swap", 0.0),
            run(2, "terapage", 1.0),
            run(2, "fio", 1.0),
        ];
        let machine = Machine::here(Path::new("/"));
        let left_out = vec![("mmap".to_owned(), "no root".to_owned())];
        let mut report = Report::new("scan", "a test".into(), Unit::Rate, machine, left_out, runs);
        report.ratio(("terapage", "read"), ("fio", "read"), Side::AtLeast, 0.7);
        report.ratio(("terapage", "read"), ("swap", "read"), Side::AtLeast, 5.0);
        report.written_share("terapage", "read", 0.01);
        report.residents();
        let met: Vec<_> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(true), None, Some(true), Some(false)]);
        assert_eq!(report.targets[0].value, Some(0.75));
        let text = report.text(usize::MAX);
        for part in ["75.0 (50.0..100)", "killed", "left out: mmap: no root", "missed", "not measured"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn completions_and_optima_are_in_the_text() {
        let mut runs = vec![run(1, "swap", 0.0), run(2, "swap", 0.0), run(1, "terapage", 1.0)];
        let machine = Machine::here(Path::new("/"));
        let mut failed = run(3, "swap", 0.0);
        failed.end = End::TimedOut;
        runs.push(failed);
        let mut report = Report::new("sort", "a test".into(), Unit::Seconds, machine, Vec::new(), runs);
        report.completion("terapage", 1 << 20);
        report.completion("swap", 1 << 20);
        report.completion("absent", 1 << 20);
        let mut optimum = Optimum::none("terapage", 1 << 20);
        optimum.page_ins = Some(150);
        optimum.compare(150, 100, 300);
        assert_eq!((optimum.ratio, optimum.ratio_with_first_touches), (Some(1.5), Some(1.125)));
        report.optimum(optimum, 1.25);
        report.optimum(Optimum::none("other", 1 << 20).note("no trace".into()), 1.25);
        let met: Vec<_> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(false), Some(true), None, None]);
        let text = report.text(usize::MAX);
        let verdict = "smallest budget: terapage completes; swap is killed in 2 of 3 runs\n";
        for part in [verdict, "1.50        1.12", "other: no trace\n"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn an_optimum_of_none_counts_as_one() {
        let mut optimum = Optimum::none("terapage", 1 << 20);
        optimum.compare(3, 0, 0);
        assert_eq!((optimum.ratio, optimum.notes.len()), (Some(3.0), 0));
        optimum.compare(1, 2, 0);
        assert_eq!(optimum.notes.len(), 1);
    }

    #[test]
    fn wide_tables_go_on_below() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [row(["s", "write", "read", "rmw"]), row(["swap", "1", "2", "3"])];
        let text = |width| {
            let mut text = String::new();
            write_table(&mut text, &rows, width);
            text
        };
        assert_eq!(text(22), "s     write  read  rmw\nswap      1     2    3\n");
        assert_eq!(text(17), "s     write  read\nswap      1     2\n\ns     rmw\nswap    3\n");
        // Too narrow for anything: a column at a time.
        assert_eq!(text(1).lines().count(), 3 * 2 + 2);
    }

    #[test]
    fn latency_is_the_time_that_one_thread_waits() {
        let mut pass = run(1, "swap", 2.0).passes.remove(0);
        (pass.bytes, pass.threads) = (8 * 1000, 4);
        assert_eq!(Unit::Latency.of(&pass), 8000.0);
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
        let machine = Machine::here(Path::new("/"));
        let mut report = Report::new("random", "a test".into(), Unit::Latency, machine, Vec::new(), runs);
        for (threads, least) in [(2, 1.8), (4, 3.0)] {
            report.scaling("terapage", "fio", threads, least);
            report.scaling("terapage", "absent", threads, least);
        }
        let found: Vec<_> =
            report.targets.iter().map(|found| (found.value, found.target, found.met)).collect();
        let (double, less) = (Some(2.0), Some(false));
        let wanted =
            [(double, 1.6, Some(true)), (double, 1.8, Some(true)), (double, 3.0, less), (double, 3.0, less)];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found.1 - wanted.1).abs() < 1e-9 && found.2 == wanted.2, "{found:?}, not {wanted:?}");
            assert!(found.0.zip(wanted.0).is_some_and(|(one, other)| (one - other).abs() < 1e-9));
        }
        assert!(report.targets[0].what.ends_with("as fio") && !report.targets[2].what.contains("fio"));
    }

    #[test]
    fn days_and_numbers_are_written_plainly() {
        assert_eq!(date(951_782_400), "2000-02-29");
        for (value, text) in
            [(1234.5, "1234"), (12.34, "12.3"), (0.957, "0.96"), (0.0012, "0.0012"), (0.0, "0.00")]
        {
            assert_eq!(number(value), text);
        }
    }
}
