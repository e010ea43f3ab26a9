//! `terapage advise` predicts how much memory a program needs, which settings suit it, and how long
//! it then takes.

mod show;

use crate::policy::budget;
use crate::progress::Progress;
use crate::publish;
use crate::show::Show;
use anyhow::{Context, ensure};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terapage_advise::advice::{Advice, Question};
use terapage_advise::cache::Measured;
use terapage_advise::child::{Stop, busy};
use terapage_advise::costs::{Bench, Costs, STEPS};
use terapage_advise::record::{Limits, Program};
use terapage_advise::{Device, Recording};
use terapage_config::Size;
use terapage_policy::replacement;

/// Block sizes for which costs are measured; costs for sizes between them are interpolated.
const MEASURED_BLOCKS: [u64; 2] = [16 << 10, 256 << 10];

/// Options of `advise`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "terapage advise [OPTIONS] [--] PROGRAM [ARGS]...\n       terapage advise [OPTIONS] --trace FILE --native SECONDS",
    after_help = "\
Examples:
  terapage advise -- sort -S 2G big.txt
  terapage advise --memory 25%,50%,75% --html advice.html -- ./solver input.dat
  terapage advise --device latency=20us,read=6G,write=4G -- ./solver input.dat
  terapage advise --trace app.trace --native 12.5

The program runs at least twice, natively and recorded. It gets no input, and its output is discarded."
)]
pub struct Advise {
    /// Use this trace, recorded by terapage run --trace, instead of running a program
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "native", conflicts_with = "command")]
    trace: Option<PathBuf>,
    /// With --trace: the time that the program takes with enough memory, seconds
    #[arg(long, value_name = "SECONDS", requires = "trace")]
    native: Option<f64>,
    /// With --trace: the number of its threads that run at once
    #[arg(long, value_name = "N", default_value_t = 1.0, requires = "trace")]
    parallelism: f64,
    /// Budgets to predict: sizes, or percentages of the most data in use at once
    #[arg(
        long = "memory",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "30%,40%,50%,60%,75%,90%,110%"
    )]
    budget: Vec<String>,
    /// Block sizes to predict, the usual one first: 16K times powers of two
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16K,64K,256K")]
    block: Vec<String>,
    /// Policies to predict, the usual one first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "auto,lru,clock,s3fifo,2q,arc")]
    policy: Vec<String>,
    /// The slow-down that you accept for less memory
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5)]
    slow_down: f64,
    /// The store that is measured and used for recordings: a directory
    #[arg(long, short, value_name = "DIR", default_value = "/var/tmp", value_hint = clap::ValueHint::DirPath)]
    store: PathBuf,
    /// Predict for this device instead of the store's: latency=80us,read=1800M,write=1600M
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// Time that all recordings together may take, seconds; by default 3 times the native run, at
    /// least 3 and at most 60; not with --quick
    #[arg(long, value_name = "SECONDS", requires = "command", conflicts_with_all = ["quick", "trace"], value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// One recording: quicker, and less exact; not with --timeout
    #[arg(long, requires = "command", conflicts_with = "trace")]
    quick: bool,
    /// Keep the recording in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "command", conflicts_with = "trace")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments, required_unless_present = "trace")]
    command: Vec<OsString>,
}

/// All results.
#[derive(Serialize)]
struct Results {
    program: String,
    native_s: f64,
    parallelism: f64,
    recorded_s: f64,
    references: usize,
    window_bytes: u64,
    /// The time that all recordings took, and the time that they may take.
    recording_s: Option<(f64, f64)>,
    device: Device,
    costs: Vec<Costs>,
    /// Why the predicted times cannot be trusted.
    trouble: Vec<String>,
    /// What is predicted for something else than was asked for.
    notes: Vec<String>,
    advice: Advice,
    /// The most bytes of files that the program mapped only to read; `None` if not measured.
    mapped_files_bytes: Option<u64>,
    /// The command to use; empty if no budget fits.
    command: String,
}

/// A program whose references are known.
struct Subject {
    recording: Recording,
    native_s: f64,
    parallelism: f64,
    shown: String,
    /// The time that all recordings took, and the time that they may take, seconds.
    recording_s: Option<(f64, f64)>,
    /// What the advice leaves out.
    left_out: Option<String>,
    /// The most bytes of files that the program mapped only to read; `None` if not measured.
    mapped_bytes: Option<u64>,
}

impl Advise {
    /// Runs the command.
    ///
    /// # Errors
    /// The program cannot be run or recorded, or the result cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(
            self.slow_down >= 1.0,
            "--slow-down {}: less memory does not make a program faster (write 1.5)",
            self.slow_down
        );
        for name in &self.policy {
            ensure!(
                replacement::NAMES.contains(&name.as_str()),
                "--policy: '{name}' is unknown (one of {})",
                replacement::NAMES.join(", ")
            );
        }
        let blocks = self
            .block
            .iter()
            .map(|text| text.parse::<Size>().map(|size| size.0))
            .collect::<Result<Vec<_>, _>>();
        let blocks = blocks.map_err(|error| anyhow::anyhow!("--block: {error}"))?;
        let terapage = std::env::current_exe().context("terapage itself cannot be found")?;
        self.show.check(self.trace.as_deref())?;
        if let Some(path) = &self.keep {
            publish::check(path, &[]).context("--keep")?;
        }
        let progress = Progress::endless("beginning");
        let measured = self.measured(&terapage, &progress)?;
        let subject = match &self.trace {
            Some(trace) => self.traced(trace)?,
            None => self.recorded(&terapage, blocks[0], &progress)?,
        };
        let data = subject.recording.uses(0).live_blocks as u64 * subject.recording.block_bytes;
        let mut budgets = self
            .budget
            .iter()
            .map(|text| budget("--memory", text, data))
            .collect::<anyhow::Result<Vec<_>>>()?;
        budgets.sort_unstable();
        let question = Question {
            recording: &subject.recording,
            native_s: subject.native_s,
            parallelism: subject.parallelism,
            measured: &measured,
            device: self.device.as_ref().unwrap_or(&measured.device),
            budgets,
            blocks,
            policies: self.policy.clone(),
            accepted: self.slow_down,
        };
        progress.phase("predicting");
        progress.steps(question.runs() as u64);
        let advice = question.answer(|| progress.add(1))?;
        drop(progress);
        self.publish(&subject, &measured, advice)
    }

    /// The costs of the store and of the pager with it, kept from an earlier run or measured now.
    fn measured(&self, terapage: &Path, progress: &Progress) -> anyhow::Result<Measured> {
        if let Some(known) = Measured::load(&self.store, &MEASURED_BLOCKS) {
            return Ok(known);
        }
        progress.phase(format!("measuring {}", self.store.display()));
        progress.steps(1 + STEPS * MEASURED_BLOCKS.len() as u64);
        let (device, unsure) = Device::measure(&self.store)?;
        progress.add(1);
        let (mut costs, mut trouble) = (Vec::new(), Vec::from_iter(unsure));
        for block_bytes in MEASURED_BLOCKS {
            let bench = Bench { terapage: terapage.to_owned(), store: self.store.clone(), block_bytes };
            let calibration = bench.measure(&device, || progress.add(1))?;
            costs.push(calibration.costs);
            trouble.extend(calibration.trouble);
        }
        let measured = Measured::new(&self.store, device, costs, trouble);
        // Without a directory for the costs, the next run measures them again.
        let _ = measured.save();
        Ok(measured)
    }

    fn traced(&self, trace: &Path) -> anyhow::Result<Subject> {
        let native_s = self.native.unwrap_or_default();
        ensure!(native_s.is_finite() && native_s > 0.0, "--native {native_s}: a time above 0 is needed");
        ensure!(self.parallelism >= 1.0, "--parallelism {}: at least 1 thread runs", self.parallelism);
        let recording = Recording::open(trace)?;
        let shown = format!("{} ...", recording.program);
        Ok(Subject {
            recording,
            native_s,
            parallelism: self.parallelism,
            shown,
            recording_s: None,
            left_out: None,
            mapped_bytes: None,
        })
    }

    fn recorded(&self, terapage: &Path, block_bytes: u64, progress: &Progress) -> anyhow::Result<Subject> {
        let program = Program {
            command: self.command.clone(),
            terapage: terapage.to_owned(),
            store: self.store.clone(),
            block_bytes,
            limits: Limits { asked: self.timeout.map(Duration::from_secs), quick: self.quick },
            stop: Stop::install()?,
        };
        progress.phase("natively");
        let native = program.time(|seconds| progress.say(format!("natively, {seconds:.0} s")))?;
        let directory =
            tempfile::tempdir_in(&self.store).with_context(|| format!("--store {}", self.store.display()))?;
        let limit_s = program.limits.all(native.seconds).as_secs_f64();
        let told = |window: u64, seconds: f64| {
            progress.say(format!(
                "recording, a window of {}, {seconds:.0} s of {limit_s:.0} s at most (--timeout)",
                Size(window)
            ))
        };
        let recorded = program.record(&native, directory.path(), told)?;
        if let Some(keep) = &self.keep {
            std::fs::copy(&recorded.trace, keep).with_context(|| format!("--keep {}", keep.display()))?;
        }
        let shown = self
            .command
            .iter()
            .map(|word| publish::quoted(&word.to_string_lossy()))
            .collect::<Vec<_>>()
            .join(" ");
        Ok(Subject {
            recording: recorded.recording,
            native_s: native.seconds,
            parallelism: native.parallelism,
            shown,
            recording_s: Some((recorded.seconds, limit_s)),
            left_out: native.note(),
            mapped_bytes: Some(recorded.mapped_bytes),
        })
    }

    fn publish(&self, subject: &Subject, measured: &Measured, advice: Advice) -> anyhow::Result<()> {
        let recording = &subject.recording;
        let results = Results {
            program: recording.program.clone(),
            native_s: subject.native_s,
            parallelism: subject.parallelism,
            recorded_s: recording.duration_us as f64 / 1e6,
            references: recording.steps.len(),
            window_bytes: recording.window as u64 * recording.block_bytes,
            recording_s: subject.recording_s,
            notes: subject
                .left_out
                .iter()
                .cloned()
                .chain(subject.mapped_bytes.and_then(|bytes| show::files(bytes, advice.choice.budget_bytes)))
                .chain(advice.notes(subject.parallelism))
                .collect(),
            mapped_files_bytes: subject.mapped_bytes,
            trouble: measured.trouble.iter().cloned().chain(busy()).collect(),
            device: self.device.clone().unwrap_or_else(|| measured.device.clone()),
            costs: measured.costs.clone(),
            command: match advice.fits {
                true => show::command(&advice.choice, &self.store, &subject.shown),
                false => String::new(),
            },
            advice,
        };
        let study = show::study(&results);
        self.show.results(&study, &results, || match self.show.wants_parameters() {
            true => self.show.text(&study, false),
            false => show::text(&results),
        })
    }
}
