//! What all experiments share: the machine as it is set, and how each contender runs a program.

use crate::campaign::bounds::Bounds;
use crate::campaign::progress::Progress;
use crate::campaign::steady::Steady;
use crate::contender::far::Far;
use crate::contender::run::Run;
use crate::ground::cgroup::Cgroup;
use crate::ground::chosen::{Chosen, Ground};
use crate::ground::janitor::{Held, Janitor, OwnedFile};
use crate::ground::record::Record;
use crate::ground::room::free_bytes;
use crate::ground::runner::{self, End, Finished, Job, Stop, fields};
use crate::ground::swap::{self, Swap};
use crate::ground::throttle::Throttle;
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{env, fs, process};
use terapage_config::Size;

const MIB: u64 = 1 << 20;

/// A way to have data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// All in memory, without a limit.
    Memory,
    /// The kernel's swap, with a limit.
    Swap,
    /// A mapped file, with a limit.
    Mmap,
    /// Terapage, with a budget.
    Terapage,
    /// A limit, without swap: for programs that use the page cache.
    Limit,
    /// Terapage, with a store elsewhere.
    Far,
    /// Swap to compressed memory, with a limit.
    Zram,
    /// The kernel's swap behind zswap, with a limit.
    Zswap,
    /// The kernel's swap with the multi-generational LRU, with a limit.
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
    /// Whether the program may be small enough not to be paged; else that is a failure.
    pub may_fit: bool,
}

impl Session {
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
        let limits =
            Limits { data: 32 * MIB, memory: 16 * MIB, block: None, options: Vec::new(), may_fit: false };
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
    /// the passes in what it did.
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
        let group = self.group_of_ground();
        let group = match group {
            Ok(group) => group,
            Err(error) => return Ok(failed(Contender::Terapage, format!("cannot be set up: {error}"))),
        };
        let job = Job { output, cgroup: group.as_ref(), ..self.job(terapage, all) };
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

    /// Does a piece of work beyond the rounds, which progress shows as `what`.
    pub fn extra<T>(&self, what: String, work: impl FnOnce() -> T) -> T {
        self.progress.expect(1);
        self.progress.begin(what);
        let done = work();
        self.progress.end();
        done
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
