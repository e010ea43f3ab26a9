//! `program`: the user's own program, with more and with less memory than it wants: in memory, on
//! swap, with Terapage. Its output must be the same each time.

use crate::campaign::checks::{stamps, written};
use crate::campaign::session::Session;
use crate::campaign::{Plan, text};
use crate::commands::costs::{from_to, in_minutes};
use crate::commands::run::{finish, status};
use crate::commands::running::Running;
use crate::contender::run::Run;
use crate::contender::{Limits, contend};
use crate::experiment::unit::Unit;
use crate::experiment::{
    Cost, Experiment, Passes, PlotForm, Program as Form, Repetitions, Under, Value, atom,
};
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{End, Finished};
use crate::result::journal::{Journal, results_directory};
use anyhow::{anyhow, bail, ensure};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terapage_config::Size;
use twox_hash::xxhash3_128::Hasher;

/// A program that wants less has nothing to page.
const LEAST_BYTES: u64 = 16 << 20;

/// Options of `program`.
#[derive(Debug, clap::Args)]
pub struct Program {
    /// Fractions of the memory that the program wants, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1.5,1,1/2,1/4,1/8")]
    ratios: Vec<String>,
    /// The memory that the program wants; by default its peak of anonymous memory in the native run
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    wants: Option<String>,
    /// A file that the program writes, which must be the same each time; may be repeated
    #[arg(long, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// Maximum number of rounds; ratios do not settle before the sixth
    #[arg(long, value_name = "N", default_value_t = 8, conflicts_with = "quick", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    running: Running,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

impl Program {
    /// Measures the program's memory, runs the experiment and reports.
    ///
    /// # Errors
    /// The program does not run natively, or nothing can be measured.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.running.show.check()?;
        ensure!(self.running.device.is_empty(), "--device: it is for experiments (--dir names a directory)");
        ensure!(self.running.steady.is_none(), "--steady: it is for experiments");
        for ratio in &self.ratios {
            ensure!(
                atom(ratio).is_some_and(|part| part > 0.0 && part <= 1000.0),
                "--ratios: {ratio} is not a fraction"
            );
        }
        let wants = self.wants.as_ref().map(|text| size("--wants", text, LEAST_BYTES)).transpose()?;
        if self.running.dry_run {
            return self.say_what_it_takes();
        }
        // The user decides how long a run may take, even with --quick.
        let timeout = Duration::from_secs(self.running.timeout.unwrap_or(600));
        let mut session = Session::open("program", &self.running.dir, timeout)?;
        session.bounds = self.running.bounds();
        let place = results_directory(self.running.results.as_deref())?;
        let name = self.name();
        let path = place.join(format!("{name}.jsonl"));
        let experiment = match self.known(&path) {
            Some(known) => known,
            None => self.experiment(&session, wants)?,
        };
        session.far = self.running.far(&session, std::slice::from_ref(&experiment))?;
        let plan = Plan { name, experiment, retries: self.running.retries() };
        let mut groups = Vec::new();
        if let Err(error) = finish(&session, plan, &path, &mut groups) {
            session.progress.clear();
            self.running.show.so_far(&groups);
            return Err(error);
        }
        session.progress.clear();
        self.running.show.groups("A program", &groups)?;
        Ok(status(&groups, &self.running.contenders))
    }

    /// The name of its results: the program's name, and a hash of its arguments and options.
    fn name(&self) -> String {
        let mut hasher = Hasher::new();
        let others =
            [self.ratios.join(","), format!("{:?}{:?}", self.wants, self.output), self.rounds.to_string()];
        for part in self.command.iter().chain(&self.running.contenders).chain(&others) {
            hasher.write(part.as_bytes());
            hasher.write(&[0]);
        }
        hasher.write(&[u8::from(self.running.quick)]);
        let stem = Path::new(&self.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("program-{stem}-{:08x}", hasher.finish_128() as u32)
    }

    /// The experiment of an earlier run of the same command, which this run continues.
    fn known(&self, path: &Path) -> Option<Experiment> {
        let (_, groups) = path.exists().then(|| Journal::open(path).ok())??;
        let last = groups.into_iter().next_back()?;
        (last.head.experiment.program.run == self.command).then_some(last.head.experiment)
    }

    fn rounds(&self) -> Repetitions {
        match self.running.quick {
            true => Repetitions { least: 1, most: 1 },
            false => Repetitions { least: self.rounds.min(6), most: self.rounds },
        }
    }

    fn say_what_it_takes(&self) -> anyhow::Result<ExitCode> {
        let rounds = self.rounds();
        // In the first cell the baseline runs twice.
        let each = (self.ratios.len() * self.contenders().len()) as u64 + u64::from(!self.running.quick);
        writeln!(
            io::stdout(),
            "{} runs of {}, after two natively that find out what it wants and whether its output stays the \
             same; on disk at once, and written by each run that is paged, about what it wants of memory",
            from_to(each * u64::from(rounds.least), each * u64::from(rounds.most)),
            self.command[0]
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn contenders(&self) -> Vec<String> {
        let named = &self.running.contenders;
        let far = !self.running.far.is_empty();
        // Contenders with compressed memory take part only if they are named.
        let asked = |name: &&str| named.iter().any(|known| known == name);
        let others = ["zram", "zswap", "mglru"].into_iter().filter(asked);
        let able = ["memory", "swap", "terapage"].into_iter().chain(others).chain(far.then_some("far"));
        able.filter(|name| *name == "memory" || named.is_empty() || named.iter().any(|known| known == name))
            .map(str::to_owned)
            .collect()
    }

    /// Runs the program natively, and makes an experiment from the memory that it used.
    fn experiment(&self, session: &Session, wants: Option<u64>) -> anyhow::Result<Experiment> {
        let able = self.contenders();
        if let Some(unknown) = self.running.contenders.iter().find(|name| !able.contains(name)) {
            bail!("--contenders: {unknown} is none of {}", able.join(", "));
        }
        let (run, code, first) = self.natively(session, "to see what it wants")?;
        if code != 0 {
            session.progress.say(&format!(
                "{} ends with exit status {code}, so every run must end with it",
                self.command[0]
            ));
        }
        let wants = match wants {
            Some(wants) => wants,
            None => run.resident_peak_bytes.next_multiple_of(1 << 20),
        };
        ensure!(
            wants >= LEAST_BYTES,
            "{} wanted {} of memory, too little to be paged (set another size with --wants)",
            self.command[0],
            Size(wants)
        );
        let (_, _, second) = self.natively(session, "to see whether its output is the same each time")?;
        ensure!(
            first == second,
            "{}: its output differs from run to run natively, so runs cannot be compared (fix its seed or \
             its threads; if it prints times: terapage lab program -- sh -c '{} > /dev/null')",
            self.command[0],
            self.command.join(" ")
        );
        let experiment = self.form(wants, code, run.seconds);
        let runs = (experiment.cells().len() * able.len()) as u64;
        let rounds = self.rounds();
        let least = (runs * u64::from(rounds.least)) as f64 * run.seconds;
        session.progress.say(&format!(
            "{} wants {} and takes {:.1} s; {} runs will take {} and the time that swap and paging \
             add",
            self.command[0],
            Size(wants),
            run.seconds,
            from_to(runs * u64::from(rounds.least), runs * u64::from(rounds.most)),
            in_minutes((least, least))
        ));
        Ok(experiment)
    }

    /// Runs it natively: the run, its exit status, a hash of what it writes.
    fn natively(&self, session: &Session, why: &str) -> anyhow::Result<(Run, i32, Option<String>)> {
        let limits = Limits {
            data: 0,
            memory: u64::MAX / 4,
            block: None,
            options: Vec::new(),
            may_fit: true,
            places: Vec::new(),
        };
        let site = &session.site;
        let (_owned, output) = OwnedFile::create(&site.janitor, site.path("out"), 0o600)?;
        let taken = output.try_clone()?;
        let before = stamps(&self.output);
        let run = session.extra(format!("{}: natively, {why}", self.command[0]), || {
            let arguments = self.command[1..].iter().map(OsString::from).collect();
            let program = (PathBuf::from(&self.command[0]), arguments);
            let place = (site, site.throttle());
            contend(place, Under::Memory, program, &limits, Some(taken), |_: &Finished| Vec::new())
        })?;
        let run = run.run;
        let code = match (&run.end, run.code) {
            (End::Done, _) => 0,
            (End::Failed(_), Some(code)) => code,
            (end, _) => bail!("{} does not run natively: {}", self.command[0], end.text()),
        };
        let files = written(&self.output, &before).map_err(|why| anyhow!("{}: {why}", self.command[0]))?;
        let hash = text::hash(&site.stop, output)?.map(|hash| format!("{hash:032x}{files}"));
        Ok((run, code, hash))
    }

    fn form(&self, wants: u64, status: i32, seconds: f64) -> Experiment {
        let ratios: Vec<Value> = self.ratios.iter().map(|ratio| Value::Text(ratio.clone())).collect();
        let plot = PlotForm {
            title: "Time relative to all in memory, by the share of the memory that the program \
                    wants"
                .into(),
            x: "ratio".into(),
            only: Default::default(),
            passes: Vec::new(),
            relative: true,
            log: false,
            note: String::new(),
        };
        Experiment {
            title: self.command.join(" "),
            about: format!(
                "It wants {} of memory. Each run gave the same output, or counts as failed.",
                Size(wants)
            ),
            unit: Unit::Seconds,
            program: Form {
                run: self.command.clone(),
                passes: Passes::Time,
                text: None,
                status,
                writes: self.output.clone(),
                needs: Vec::new(),
                verbatim: true,
            },
            contenders: self.contenders(),
            contender: Vec::new(),
            baseline: None,
            sizes: [("data".into(), wants.to_string()), ("memory".into(), "data * ratio".into())].into(),
            matrix: [("ratio".to_owned(), ratios)].into(),
            skip: Vec::new(),
            random: None,
            repetitions: self.rounds(),
            control: !self.running.quick,
            settings: Default::default(),
            cost: Cost { seconds, disk: "data * 1.25".into(), written: "data".into() },
            quick: Default::default(),
            target: Vec::new(),
            plot: vec![plot],
            published: Vec::new(),
        }
    }
}

/// A size of at least `least` bytes, from the text of `option`.
///
/// # Errors
/// The text is not a size, or the size is too small; one line.
fn size(option: &str, text: &str, least: u64) -> anyhow::Result<u64> {
    let Size(bytes) = text.parse().map_err(|error| anyhow!("{option}: {error}"))?;
    ensure!(bytes >= least, "{option}: {} is too small (at least {})", Size(bytes), Size(least));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::size;
    use crate::commands::costs::from_to;

    #[test]
    fn one_number_is_no_range() {
        assert_eq!((from_to(3, 8).as_str(), from_to(3, 3).as_str()), ("3 to 8", "3"));
    }
    #[test]
    fn a_wrong_size_is_one_line_that_names_the_option() {
        assert_eq!(size("--data", "16M", 1).ok(), Some(16 << 20));
        for text in ["-5M", "abc", "0", "1K", ""] {
            let error = size("--data", text, 1 << 20).expect_err(text).to_string();
            assert!(error.starts_with("--data: ") && !error.contains('\n'), "{error}");
        }
    }
}
