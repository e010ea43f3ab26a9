//! What all experiments share: options, contenders, and how each contender runs a workload.

use crate::campaign::bounds::Bounds;
use crate::campaign::progress::Progress;
use crate::campaign::steady::Steady;
use crate::contender::far::Far;
use crate::ground::cgroup::Cgroup;
use crate::ground::chosen::{Chosen, Ground};
use crate::ground::janitor::{Held, Janitor, OwnedFile};
use crate::ground::record::Record;
use crate::ground::runner::{self, End, Finished, Job, Stop, fields};
use crate::ground::swap::{self, Swap};
use crate::ground::throttle::Throttle;
use crate::result::report::{Machine, Report, Run, Unit, free_bytes};
use anyhow::{Context, anyhow, ensure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{env, fs, process};
use terapage_config::{Size, can_be_written};

const MIB: u64 = 1 << 20;

/// Options of every experiment.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// How often each contender runs; they take turns.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// The contenders, separated by commas: memory, swap, mmap, terapage, fio.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub contenders: Vec<Contender>,
    /// Where the swap file, the mapped file and the store lie.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Writes everything that was measured as JSON to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Seconds that one run may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// A way to have data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Contender {
    /// All in memory, without a limit.
    Memory,
    /// The kernel's swap, with a limit.
    Swap,
    /// A mapped file, with a limit.
    Mmap,
    /// Terapage, with a budget.
    Terapage,
    /// The device's own limit, measured by fio.
    Fio,
    /// A limit, without swap: for programs that use the page cache.
    #[value(skip)]
    Limit,
    /// Terapage, with a store elsewhere.
    #[value(skip)]
    Far,
    /// Swap to compressed memory, with a limit.
    #[value(skip)]
    Zram,
    /// The kernel's swap behind zswap, with a limit.
    #[value(skip)]
    Zswap,
    /// The kernel's swap with the multi-generational LRU, with a limit.
    #[value(skip)]
    Mglru,
}

impl Contender {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Memory => "memory",
            Contender::Swap => "swap",
            Contender::Mmap => "mmap",
            Contender::Terapage => "terapage",
            Contender::Fio => "fio",
            Contender::Limit => "limit",
            Contender::Far => "far",
            Contender::Zram => "zram",
            Contender::Zswap => "zswap",
            Contender::Mglru => "mglru",
        }
    }

    /// Whether the kernel swaps for it.
    fn swaps(self) -> bool {
        matches!(self, Contender::Swap | Contender::Zram | Contender::Zswap | Contender::Mglru)
    }

    /// The kernel's file that is set for it, and to what.
    fn setting(self) -> Option<(&'static str, &'static str)> {
        match self {
            Contender::Zswap => Some((swap::ZSWAP, "Y")),
            Contender::Mglru => Some((swap::MGLRU, "7")),
            _ => None,
        }
    }
}

/// What stands below the help of each experiment.
pub const EXIT_STATUS: &str = "\
Exit status:
  0; 1 if a run failed, or a contender that --contenders names could not take part; 125 if an
  option is wrong or nothing can be measured, and after a signal. A run that was killed or took too
  long is a finding, not a failure.";

/// A size of at least `least` bytes, from what was given for `option`.
///
/// # Errors
/// When it is none, or less; one line.
pub fn size(option: &str, text: &str, least: u64) -> anyhow::Result<u64> {
    let Size(bytes) = text.parse().map_err(|error| anyhow!("{option}: {error}"))?;
    ensure!(bytes >= least, "{option}: {} is too small, the least is {}", Size(bytes), Size(least));
    Ok(bytes)
}

/// An experiment under way.
pub struct Session {
    /// The contender `far`'s stores, where it has any; they go before the janitor.
    pub far: Option<Far>,
    /// The device that `--device` has chosen, where it has; it goes before its janitor.
    pub ground: Option<Ground>,
    /// How long all runs may go on, and how much they may write.
    pub bounds: Bounds,
    /// What was written to the device before it is measured, where that was asked for.
    pub steady: Option<Steady>,
    /// Takes down what the lab cannot.
    pub janitor: Arc<Janitor>,
    /// Whether the lab shall stop.
    pub stop: Stop,
    /// Where files lie.
    pub directory: PathBuf,
    /// A device that may be formatted, instead of an image file.
    pub may_erase: Option<PathBuf>,
    /// How long a run may take.
    pub timeout: Duration,
    /// Who takes part, in this order.
    pub contenders: Vec<Contender>,
    left_out: Vec<(String, String)>,
    /// Who was named by `--contenders`.
    named: Vec<Contender>,
    rounds: u32,
    json: Option<PathBuf>,
    program: PathBuf,
    lab_arguments: Vec<String>,
    /// What the user sees meanwhile.
    pub progress: Progress,
    /// Bytes of others that were in the lab's swap after the last run.
    foreign_swap_bytes: AtomicU64,
}

/// What a contender's run is given.
pub struct Limits {
    /// Bytes of data, for the size of swap and mapped files.
    pub data: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of Terapage's block.
    pub block: Option<u64>,
    /// Further options of `terapage run`.
    pub options: Vec<OsString>,
    /// Bytes that are in the program's address space at once, of those in memory: a recording sees
    /// the touches of all others.
    pub window: Option<u64>,
    /// Whether the program may be small enough not to be paged; else that is a failure.
    pub may_fit: bool,
}

impl Limits {
    /// The same, with these options of `terapage run`.
    pub fn with(&self, options: Vec<OsString>) -> Limits {
        Limits { options, ..*self }
    }

    /// Whether the data is well within the memory, so that nothing is to be paged.
    pub fn all_fits(&self) -> bool {
        self.data <= self.memory / 10 * 9
    }
}

impl Session {
    /// Checks options, starts the janitor and finds out who can take part out of `able`.
    /// `name` is the experiment's subcommand; what stands before it leads to the lab.
    ///
    /// # Errors
    /// When an option is wrong or the janitor cannot be started.
    pub fn start(name: &str, common: Common, able: &[Contender], limits: &Limits) -> anyhow::Result<Session> {
        if let Some(path) = &common.json {
            can_be_written(path).map_err(|why| anyhow!("--json: {} {why}", path.display()))?;
        }
        let mut session = Session::open(name, &common.dir, Duration::from_secs(common.timeout))?;
        let wanted: BTreeSet<Contender> = match common.contenders.is_empty() {
            true => able.iter().copied().collect(),
            false => common.contenders.iter().copied().collect(),
        };
        (session.named, session.rounds, session.json) = (common.contenders, common.rounds, common.json);
        for contender in wanted {
            let answer = match able.contains(&contender) {
                true => session.probe(contender, limits)?,
                false => Err("it does not take part in this experiment".into()),
            };
            match answer {
                Ok(()) => session.contenders.push(contender),
                Err(why) => session.leave_out(contender, why),
            }
        }
        ensure!(!session.contenders.is_empty(), "no contender can take part");
        Ok(session)
    }

    /// Undoes what dead labs have left, and starts the janitor. `name` is the subcommand; what
    /// stands before it leads to the lab.
    ///
    /// # Errors
    /// When the directory is none, another lab runs, or the janitor cannot be started.
    pub fn open(name: &str, directory: &Path, timeout: Duration) -> anyhow::Result<Session> {
        let directory = directory.canonicalize().with_context(|| format!("--dir {}", directory.display()))?;
        ensure!(directory.is_dir(), "--dir {}: not a directory", directory.display());
        let program = env::current_exe().context("the lab's own program cannot be found")?;
        let lab_arguments: Vec<String> =
            env::args().skip(1).take_while(|argument| argument != name).collect();
        let stop = Stop::install().context("signals cannot be caught")?;
        let progress = Progress::new();
        let record = Record::begin(|line| progress.say(line))?;
        let mut janitor = lab_arguments.clone();
        janitor.push("janitor".into());
        let janitor = Janitor::start(&program, &janitor, record).context("the janitor cannot be started")?;
        Ok(Session {
            far: None,
            ground: None,
            bounds: Bounds::default(),
            steady: None,
            janitor: Arc::new(janitor),
            stop,
            directory,
            may_erase: None,
            timeout,
            contenders: Vec::new(),
            left_out: Vec::new(),
            named: Vec::new(),
            rounds: 1,
            json: None,
            program,
            lab_arguments,
            progress,
            foreign_swap_bytes: AtomicU64::new(0),
        })
    }

    /// Puts what follows on a device: its directory, or a slower device that is made of it, with
    /// room for `bytes` bytes; without `bytes` the contenders have disks of their own.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn choose(&mut self, chosen: &Chosen, bytes: Option<u64>) -> anyhow::Result<()> {
        self.ground = None;
        self.directory =
            chosen.path.canonicalize().with_context(|| format!("--device {}", chosen.path.display()))?;
        if let (Some(_), Some(bytes)) = (chosen.class, bytes) {
            let room = free_bytes(&self.directory).unwrap_or(u64::MAX);
            let place = self.directory.display();
            ensure!(bytes < room, "--device {place}: {} of disk needed, {} free", Size(bytes), Size(room));
        }
        let ground = Ground::up(self, chosen, bytes).with_context(|| format!("--device {}", chosen.name))?;
        self.directory = ground.place().canonicalize()?;
        self.ground = Some(ground);
        Ok(())
    }

    /// This machine, as it is set, with the device that was chosen.
    pub fn machine(&self) -> crate::ground::system::Machine {
        let mut machine = crate::ground::system::Machine::here(&self.directory);
        if let Some(ground) = &self.ground {
            ground.describe(&mut machine);
        }
        machine.steady = self.steady.clone();
        machine.far = self.far.as_ref().map(|far| far.text.clone());
        machine
    }

    fn leave_out(&mut self, contender: Contender, why: String) {
        self.progress.say(&format!("left out: {}: {why}", contender.name()));
        self.left_out.push((contender.name().into(), why));
    }

    /// Whether a contender can take part, and why not.
    pub fn probe(&self, contender: Contender, limits: &Limits) -> Result<Result<(), String>, runner::Error> {
        let room = free_bytes(&self.directory).unwrap_or(u64::MAX);
        let need = swap_bytes(limits.data);
        if contender != Contender::Memory && room < need {
            return Ok(Err(format!("{} of disk needed, {} free", Size(need), Size(room))));
        }
        Ok(match contender {
            Contender::Memory => {
                let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
                let free = fields(&memory).get("MemAvailable").copied().unwrap_or(u64::MAX);
                // A container may have less.
                let free = free.min(terapage_config::memory_bytes().unwrap_or(u64::MAX));
                match limits.data + limits.data / 16 < free {
                    true => Ok(()),
                    false => Err(format!("{} of memory needed, {} free", Size(limits.data), Size(free))),
                }
            }
            Contender::Swap | Contender::Zram | Contender::Zswap | Contender::Mglru => {
                self.probe_cgroup(limits).and_then(|()| self.probe_swap(contender))
            }
            Contender::Mmap | Contender::Limit => self.probe_cgroup(limits),
            Contender::Terapage | Contender::Far => match terapage_program(&self.program) {
                Ok(_) => return self.probe_terapage(),
                Err(why) => Err(why),
            },
            Contender::Fio => {
                let version = self.job("fio".into(), vec!["--version".into()]);
                match runner::run(&self.janitor, &self.stop, version) {
                    Ok(finished) if finished.end == End::Done => Ok(()),
                    Ok(finished) => Err(format!("fio {}", finished.end.text())),
                    Err(runner::Error::Start { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                        Err("it is not installed (apt-get install fio)".into())
                    }
                    Err(runner::Error::Start { error, .. }) => Err(format!("fio cannot be run: {error}")),
                    Err(stopped) => return Err(stopped),
                }
            }
        })
    }

    fn probe_cgroup(&self, limits: &Limits) -> Result<(), String> {
        let cgroup = Cgroup::new(&self.janitor, limits.memory);
        cgroup.map(drop).map_err(|error| format!("no memory cgroup can be made: {error}"))
    }

    fn probe_swap(&self, contender: Contender) -> Result<(), String> {
        if let Some(rival) = swap::rival() {
            return Err(format!("{rival} is swap of the highest priority too (swapoff {rival})"));
        }
        if let Some((file, _)) = contender.setting() {
            let known = fs::read_to_string(file).map_err(|_| format!("this kernel has no {file}"))?;
            // The LRU's are bits; some of them suffice for it.
            if known.trim() == "Y" || known.trim().strip_prefix("0x").is_some_and(|bits| bits != "0000") {
                return Err("it is on already, so that swap stands for it".into());
            }
        }
        match contender {
            Contender::Zram => Swap::on_zram(&self.janitor, 16 * MIB)
                .map(drop)
                .map_err(|error| format!("no compressed device can be used: {error} (modprobe zram)")),
            _ => Swap::on(&self.janitor, &self.directory, 16 * MIB)
                .map(drop)
                .map_err(|error| format!("no swap file can be used: {error}")),
        }
    }

    fn probe_terapage(&self) -> Result<Result<(), String>, runner::Error> {
        // More data than memory, as a program that fits is not paged.
        let limits = Limits {
            data: 32 * MIB,
            memory: 16 * MIB,
            block: None,
            options: Vec::new(),
            window: None,
            may_fit: false,
        };
        let program = (self.program.clone(), self.workload_arguments(&["scan", "--bytes", "33554432"]));
        let run = self.terapage(program, &limits, None, |finished| finished.passes());
        Ok(match run {
            Ok(run) if run.end == End::Done && !run.passes.is_empty() => Ok(()),
            Ok(run) if run.end == End::Done => Err("terapage run does not run a program".into()),
            Ok(run) => Err(format!("terapage {}", run.end.text())),
            Err(runner::Error::Start { program, error }) => Err(format!("{program} cannot be run: {error}")),
            Err(stopped) => return Err(stopped),
        })
    }

    /// The limits of the chosen device, where it is a throttled one.
    fn throttle(&self) -> Option<&Throttle> {
        self.ground.as_ref().and_then(Ground::throttle)
    }

    /// A job without a limit.
    pub fn job(&self, program: PathBuf, arguments: Vec<OsString>) -> Job<'_> {
        Job {
            program,
            arguments,
            variables: Vec::new(),
            output: None,
            cgroup: None,
            throttle: self.throttle(),
            beside: None,
            timeout: self.timeout,
        }
    }

    /// A path of this session's own in its directory.
    pub fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("terapage-lab-{}.{suffix}", process::id()))
    }

    /// What leads to the lab in its program's command line.
    pub fn lab_arguments(&self) -> &[String] {
        &self.lab_arguments
    }

    /// The lab's program in its workload mode.
    pub fn workload_arguments(&self, arguments: &[&str]) -> Vec<OsString> {
        let own = self.lab_arguments.iter().map(String::as_str).chain(["workload"]);
        own.chain(arguments.iter().copied()).map(OsString::from).collect()
    }

    /// The lab's program.
    pub fn program(&self) -> PathBuf {
        self.program.clone()
    }

    /// Runs a program as one contender does. `output` takes its standard output, `passes` finds
    /// the passes in what it did. [`Contender::Fio`] runs no programs.
    ///
    /// # Errors
    /// When the lab shall stop. A contender that cannot be set up is a run that failed.
    pub fn contend(
        &self,
        contender: Contender,
        program: (PathBuf, Vec<OsString>),
        limits: &Limits,
        output: Option<fs::File>,
        passes: impl Fn(&Finished) -> Vec<crate::workload::Pass>,
    ) -> Result<Run, runner::Error> {
        self.contend_on(self.throttle(), contender, program, limits, output, passes)
    }

    /// The same on devices with these limits.
    ///
    /// # Errors
    /// As above.
    pub fn contend_on(
        &self,
        throttle: Option<&Throttle>,
        contender: Contender,
        (program, mut arguments): (PathBuf, Vec<OsString>),
        limits: &Limits,
        output: Option<fs::File>,
        passes: impl Fn(&Finished) -> Vec<crate::workload::Pass>,
    ) -> Result<Run, runner::Error> {
        if matches!(contender, Contender::Terapage | Contender::Far) {
            return self.terapage((program, arguments), limits, output, passes);
        }
        let set_up = || -> io::Result<_> {
            let held = contender.setting().map(|(file, value)| {
                let before = fs::read_to_string(file)?.trim().to_owned();
                Held::set(&self.janitor, file.into(), before, value)
            });
            let held = held.transpose()?;
            let bytes = swap_bytes(limits.data);
            let swap = match contender {
                Contender::Zram => Some(Swap::on_zram(&self.janitor, bytes)?),
                _ if contender.swaps() => Some(Swap::on(&self.janitor, &self.directory, bytes)?),
                _ => None,
            };
            let map = match contender {
                Contender::Mmap => Some(OwnedFile::allocate(&self.janitor, self.path("map"), limits.data)?),
                _ => None,
            };
            let limited = contender.swaps() || matches!(contender, Contender::Mmap | Contender::Limit);
            let lines = throttle.map(Throttle::lines).unwrap_or_default();
            let memory = if limited { limits.memory } else { u64::MAX };
            let grouped = limited || !lines.is_empty();
            let cgroup = grouped.then(|| Cgroup::new(&self.janitor, memory)).transpose()?;
            cgroup.as_ref().map(|cgroup| cgroup.limit_devices(&lines)).transpose()?;
            Ok((held, swap, map, cgroup))
        };
        // The cgroup goes first, then the mapped file, then the swap file, then settings.
        let (_held, swap, map, cgroup) = match set_up() {
            Ok(things) => things,
            Err(error) => return Ok(failed(contender, format!("cannot be set up: {error}"))),
        };
        if let Some(map) = &map {
            arguments.extend(["--map".into(), map.path().into()]);
        }
        let beside = || swap.as_ref().map_or(0, Swap::memory_bytes);
        let job = Job {
            output,
            cgroup: cgroup.as_ref(),
            throttle,
            beside: matches!(contender, Contender::Zram | Contender::Zswap).then_some(&beside),
            ..self.job(program, arguments)
        };
        let finished = self.or_failed(contender, runner::run(&self.janitor, &self.stop, job));
        self.foreign_swap_bytes.store(swap.as_ref().map_or(0, Swap::foreign_bytes), Relaxed);
        finished.map(|finished| match finished {
            Ok(finished) => Run {
                round: 0,
                contender: contender.name().into(),
                passes: passes(&finished),
                notes: finished.said().0,
                raw: finished.said().1,
                seconds: finished.seconds,
                cpu_seconds: finished.cpu_seconds,
                own_read_bytes: finished.own_read_bytes,
                code: finished.code,
                end: finished.end,
                resident_peak_bytes: finished.resident_peak_bytes,
                resident_limit_bytes: None,
                stats: None,
            },
            Err(run) => run,
        })
    }

    /// Why the last run counts as disturbed, if others used the lab's swap too.
    pub fn foreign_swap(&self) -> Option<String> {
        let bytes = self.foreign_swap_bytes.swap(0, Relaxed);
        (bytes > 0).then(|| format!("others had {} MiB in its swap", bytes >> 20))
    }

    /// A program that cannot be started is a run that failed.
    fn or_failed(
        &self,
        contender: Contender,
        result: Result<Finished, runner::Error>,
    ) -> Result<Result<Finished, Run>, runner::Error> {
        match result {
            Ok(finished) => Ok(Ok(finished)),
            Err(runner::Error::Start { program, error }) => {
                Ok(Err(failed(contender, format!("{program}: {error}"))))
            }
            Err(stopped) => Err(stopped),
        }
    }

    fn terapage(
        &self,
        (program, arguments): (PathBuf, Vec<OsString>),
        limits: &Limits,
        output: Option<fs::File>,
        passes: impl Fn(&Finished) -> Vec<crate::workload::Pass>,
    ) -> Result<Run, runner::Error> {
        let terapage = match terapage_program(&self.program) {
            Ok(terapage) => terapage,
            Err(why) => return Ok(failed(Contender::Terapage, why)),
        };
        let stats = match OwnedFile::new(&self.janitor, self.path("stats.json")) {
            Ok(stats) => stats,
            Err(error) => return Ok(failed(Contender::Terapage, error.to_string())),
        };
        let mut all: Vec<OsString> =
            vec!["run".into(), "--require".into(), "--memory".into(), limits.memory.to_string().into()];
        if !limits.options.iter().any(|option| option == "--store") {
            all.extend(["--store".into(), self.directory.clone().into()]);
        }
        // The figures are Terapage's, not those of somebody's configuration file. Variables are
        // named in the report.
        all.extend(["--config".into(), "/dev/null".into()]);
        if let Some(block) = limits.block {
            all.extend(["--block".into(), block.to_string().into()]);
        }
        all.extend(limits.options.iter().cloned());
        all.extend(["--stats".into(), stats.path().into(), "--".into(), program.into()]);
        all.extend(arguments);
        let variables = limits.window.map_or_else(Vec::new, |window| {
            let rest = 1000 - (window * 1000 / limits.memory).clamp(1, 900);
            // From the first byte on, and the rest of the budget soft.
            vec![("TERAPAGE_START_BYTES", "0".into()), ("TERAPAGE_SOFT_PER_MILLE", rest.to_string())]
        });
        let group = self.group_of_ground();
        let group = match group {
            Ok(group) => group,
            Err(error) => return Ok(failed(Contender::Terapage, format!("cannot be set up: {error}"))),
        };
        let job = Job { output, variables, cgroup: group.as_ref(), ..self.job(terapage, all) };
        let finished = self.or_failed(Contender::Terapage, runner::run(&self.janitor, &self.stop, job))?;
        let finished = match finished {
            Ok(finished) => finished,
            Err(run) => return Ok(run),
        };
        let counters = fs::read_to_string(stats.path()).ok();
        let counters: Option<serde_json::Value> = counters.and_then(|text| serde_json::from_str(&text).ok());
        if finished.end == End::Done && !limits.may_fit && !counters.as_ref().is_some_and(was_paged) {
            // Its figures would be those of memory.
            let why = "by its counters it was not paged (its data must be over half of --memory)";
            return Ok(failed(Contender::Terapage, why.into()));
        }
        Ok(Run {
            round: 0,
            contender: Contender::Terapage.name().into(),
            passes: passes(&finished),
            seconds: finished.seconds,
            cpu_seconds: finished.cpu_seconds,
            own_read_bytes: finished.own_read_bytes,
            code: finished.code,
            end: finished.end,
            resident_peak_bytes: finished.resident_peak_bytes,
            // The pager's promise: the budget, 1 % and 32 MiB.
            resident_limit_bytes: Some(limits.memory + limits.memory / 100 + 32 * MIB),
            stats: counters,
            notes: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// A cgroup with the limits of the chosen device, where version 2 has them there.
    fn group_of_ground(&self) -> io::Result<Option<Cgroup<'_>>> {
        let lines = self.throttle().map(Throttle::lines).unwrap_or_default();
        if lines.is_empty() {
            return Ok(None);
        }
        let group = Cgroup::new(&self.janitor, u64::MAX)?;
        group.limit_devices(&lines)?;
        Ok(Some(group))
    }

    /// Runs every entrant once a round, in turns.
    ///
    /// # Errors
    /// What `run` fails with; that ends the experiment.
    pub fn rounds<E>(
        &self,
        entrants: &[E],
        name: impl Fn(&E) -> String,
        run: impl FnMut(&E) -> Result<Run, runner::Error>,
    ) -> Result<Vec<Run>, runner::Error> {
        self.rounds_of(entrants, name, |_| true, run)
    }

    /// The same, where those that do not come `again` run in the first round only.
    ///
    /// # Errors
    /// As above.
    pub fn rounds_of<E>(
        &self,
        entrants: &[E],
        name: impl Fn(&E) -> String,
        again: impl Fn(&E) -> bool,
        mut run: impl FnMut(&E) -> Result<Run, runner::Error>,
    ) -> Result<Vec<Run>, runner::Error> {
        let turns: Vec<(u32, &E)> = (1..=self.rounds)
            .flat_map(|round| entrants.iter().map(move |entrant| (round, entrant)))
            .filter(|(round, entrant)| *round == 1 || again(entrant))
            .collect();
        self.progress.expect(turns.len());
        let mut runs = Vec::with_capacity(turns.len());
        for (round, entrant) in turns {
            let name = name(entrant);
            self.progress.begin(format!("round {round}, {name}"));
            runs.push(Run { round, contender: name, ..run(entrant)? });
            self.progress.end();
        }
        Ok(runs)
    }

    /// Does a piece of work beyond the rounds, which progress shows as `what`.
    pub fn extra<T>(&self, what: String, work: impl FnOnce() -> T) -> T {
        self.progress.expect(1);
        self.progress.begin(what);
        let done = work();
        self.progress.end();
        done
    }

    /// The report of `runs`, without targets.
    pub fn report(&mut self, experiment: &str, setting: String, unit: Unit, runs: Vec<Run>) -> Report {
        self.progress.clear();
        let plural = if self.rounds == 1 { "" } else { "s" };
        let mut setting = format!("{setting}, {} round{plural}", self.rounds);
        if self.contenders.contains(&Contender::Terapage) {
            for (name, value) in variables() {
                setting += &format!(", {name}={value}");
            }
        }
        let machine = Machine::here(&self.directory);
        Report::new(experiment, setting, unit, machine, std::mem::take(&mut self.left_out), runs)
    }

    /// Prints the report, as a table and, where asked for, as JSON. The status says whether all
    /// that was asked for was measured.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn publish(&self, report: &Report) -> anyhow::Result<ExitCode> {
        let json = || serde_json::to_string_pretty(report);
        let table = || report.text(columns(&io::stdout()));
        match &self.json {
            Some(path) if path == Path::new("-") => {
                io::stderr().write_all(report.text(columns(&io::stderr())).as_bytes())?;
                writeln!(io::stdout(), "{}", json()?)?;
            }
            Some(path) => {
                // The table first: should the file fail, it has been seen.
                io::stdout().write_all(table().as_bytes())?;
                fs::write(path, json()? + "\n").with_context(|| format!("--json {}", path.display()))?;
            }
            None => io::stdout().write_all(table().as_bytes())?,
        }
        // To be killed, or to take too long, is a finding.
        let failed = report.runs.iter().any(|run| matches!(run.end, End::Failed(_)));
        let missing = |named: &Contender| report.left_out.iter().any(|(name, _)| name == named.name());
        Ok(match failed || self.named.iter().any(missing) {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }
}

/// Settings of Terapage that are in the environment, without those that are flags of the lab's, or
/// not for a run.
pub fn variables() -> Vec<(String, String)> {
    let others = ["MEMORY", "STORE", "STATS", "BIN", "LIBRARY", "LAB_STATE"];
    let mut named: Vec<_> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, value)| {
            let name = name.strip_prefix("TERAPAGE_");
            name.is_some_and(|name| !others.contains(&name)) && !value.is_empty()
        })
        .collect();
    named.sort();
    named
}

/// Characters of a line: `$COLUMNS`, or the terminal's; without limit where there is none.
pub fn columns(out: &impl AsFd) -> usize {
    terapage_report::columns(out).unwrap_or(usize::MAX)
}

/// Whether these are the counters of a program that was paged: one that never grew large enough
/// leaves counters too, without a start.
fn was_paged(counters: &serde_json::Value) -> bool {
    counters["started_s"].as_u64().is_some_and(|started| started > 0)
}

/// A run that came to nothing.
pub fn failed(contender: Contender, why: String) -> Run {
    Run { round: 0, contender: contender.name().into(), end: End::Failed(why), ..Run::default() }
}

/// Swap for `data` bytes and what else a program has.
fn swap_bytes(data: u64) -> u64 {
    data + data / 4 + 16 * MIB
}

/// `$TERAPAGE_BIN`, or this program where it is terapage.
pub fn terapage_program(own: &Path) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("TERAPAGE_BIN") {
        return Ok(path.into());
    }
    match own.file_name().is_some_and(|name| name == "terapage") {
        true => Ok(own.to_owned()),
        false => Err("no terapage program was found (TERAPAGE_BIN names one)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_wrong_size_is_one_line_that_names_the_option() {
        assert_eq!(size("--data", "16M", 1).ok(), Some(16 << 20));
        for text in ["-5M", "abc", "0", "1K", ""] {
            let error = size("--data", text, 1 << 20).expect_err(text).to_string();
            assert!(error.starts_with("--data: ") && !error.contains('\n'), "{error}");
        }
    }
}
