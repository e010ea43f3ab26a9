//! What a program runs on: memory alone, swap, a mapped file, Terapage, far memory. Each has one
//! file. fio and likwid-bench are contenders in an experiment's file: other programs in memory.

pub mod far;
pub mod files;
pub mod memory;
pub mod mmap;
pub mod run;
pub mod swap;
pub mod terapage;

use crate::contender::files::Files;
use crate::contender::memory::{Limit, Memory};
use crate::contender::mmap::Mmap;
use crate::contender::run::Run;
use crate::contender::swap::Swapping;
use crate::contender::terapage::Terapage;
use crate::experiment::Under;
use crate::ground::cgroup::Cgroup;
use crate::ground::janitor::{Held, OwnedFile};
use crate::ground::room::free_bytes;
use crate::ground::runner::{self, End, Finished, Job};
use crate::ground::site::Site;
use crate::ground::swap::Swap;
use crate::ground::throttle::Throttle;
use crate::workload::Pass;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use terapage_config::Size;

const MIB: u64 = 1 << 20;

/// A program and its arguments.
pub type Program = (PathBuf, Vec<OsString>);

/// Whether a contender can take part, or why not; an error if the lab must stop.
pub type Answer = Result<Result<(), String>, runner::Error>;

/// The parameters of a contender's run.
pub struct Limits {
    /// Bytes of data, for the size of swap and mapped files.
    pub data: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of Terapage's block.
    pub block: Option<u64>,
    /// Further options of `terapage run`.
    pub options: Vec<OsString>,
    /// Whether the program may be too small to be paged; otherwise that is a failure.
    pub may_fit: bool,
    /// The file systems of the contender's own disk, on which its swap, store or mapped file lies;
    /// if it has no own disk, these lie in the lab's directory.
    pub places: Vec<PathBuf>,
}

impl Limits {
    /// Those of a probe, with these bytes of data and of memory.
    fn of_probe(data: u64, memory: u64) -> Limits {
        Limits { data, memory, block: None, options: Vec::new(), may_fit: false, places: Vec::new() }
    }

    /// The directory of the contender's files.
    fn directory<'a>(&'a self, site: &'a Site) -> &'a Path {
        self.places.first().unwrap_or(&site.directory)
    }
}

/// What a contender has set up for a run; the fields are dropped in this order.
#[derive(Default)]
pub struct Room<'a> {
    /// The limits of memory and devices.
    pub cgroup: Option<Cgroup<'a>>,
    /// A file to map.
    pub map: Option<OwnedFile<'a>>,
    /// Swap in use.
    pub swap: Option<Swap<'a>>,
    /// A kernel setting that is restored when this value is dropped.
    pub _held: Option<Held<'a>>,
    /// The destination of Terapage's counters.
    pub stats: Option<OwnedFile<'a>>,
}

/// A way to have data in memory.
pub trait Contender {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether the contender can take part here, or why not.
    ///
    /// # Errors
    /// The lab must stop.
    fn probe(&self, site: &Site, limits: &Limits) -> Answer;

    /// Sets up what the contender's program needs.
    ///
    /// # Errors
    /// It cannot be set up; nothing of it remains.
    fn set_up<'a>(
        &self,
        site: &'a Site,
        limits: &Limits,
        throttle: Option<&Throttle>,
    ) -> io::Result<Room<'a>>;

    /// The program and arguments that are started.
    ///
    /// # Errors
    /// Why the program cannot be started.
    fn wrap(
        &self,
        site: &Site,
        limits: &Limits,
        room: &Room<'_>,
        program: Program,
    ) -> Result<Program, String>;

    /// The result of a run that has ended.
    fn ended(&self, _limits: &Limits, _room: &Room<'_>, run: Run) -> Run {
        run
    }
}

/// The contender for the value in an experiment.
pub fn of(under: Under) -> &'static dyn Contender {
    match under {
        Under::Memory => &Memory,
        Under::Limit => &Limit,
        Under::Mmap => &Mmap,
        Under::Swap => &Swapping::SWAP,
        Under::Zram => &Swapping::ZRAM,
        Under::Zswap => &Swapping::ZSWAP,
        Under::Mglru => &Swapping::MGLRU,
        Under::Terapage => &Terapage { name: "terapage" },
        Under::Files => &Files,
        Under::Far => &Terapage { name: "far" },
    }
}

/// Whether a contender can take part, or why not.
///
/// # Errors
/// The lab must stop.
pub fn probe(under: Under, site: &Site, limits: &Limits) -> Answer {
    let room = free_bytes(&site.directory).unwrap_or(u64::MAX);
    let need = swap_bytes(limits.data);
    if under != Under::Memory && room < need {
        return Ok(Err(format!("{} of disk needed, {} free", Size(need), Size(room))));
    }
    of(under).probe(site, limits)
}

/// A run, and bytes of other programs that were in the lab's swap after the run.
pub struct Outcome {
    /// The run.
    pub run: Run,
    /// See [`Outcome`].
    pub foreign_swap_bytes: u64,
}

/// Runs a program as a contender does, on devices with these limits. `output` gets its standard
/// output, and `passes` finds the passes in the finished run.
///
/// # Errors
/// The lab must stop. A contender that cannot be set up is a run that failed.
pub fn contend(
    (site, throttle): (&Site, Option<&Throttle>),
    under: Under,
    program: Program,
    limits: &Limits,
    output: Option<File>,
    passes: impl Fn(&Finished) -> Vec<Pass>,
) -> Result<Outcome, runner::Error> {
    let contender = of(under);
    let failed = |why| Ok(Outcome { run: failed(contender.name(), why), foreign_swap_bytes: 0 });
    let room = match contender.set_up(site, limits, throttle) {
        Ok(room) => room,
        Err(error) => return failed(format!("cannot be set up: {error}")),
    };
    let (program, arguments) = match contender.wrap(site, limits, &room, program) {
        Ok(wrapped) => wrapped,
        Err(why) => return failed(why),
    };
    let beside = || room.swap.as_ref().map_or(0, Swap::memory_bytes);
    let in_memory = matches!(under, Under::Zram | Under::Zswap);
    let job = Job {
        output,
        cgroup: room.cgroup.as_ref(),
        throttle,
        beside: in_memory.then_some(&beside),
        ..site.job(program, arguments)
    };
    let finished = match runner::run(&site.janitor, &site.stop, job) {
        Ok(finished) => finished,
        Err(runner::Error::Start { program, error }) => return failed(format!("{program}: {error}")),
        Err(stopped) => return Err(stopped),
    };
    let foreign_swap_bytes = room.swap.as_ref().map_or(0, Swap::foreign_bytes);
    let (notes, raw) = finished.said();
    let run = Run {
        round: 0,
        contender: contender.name().into(),
        passes: passes(&finished),
        notes,
        raw,
        seconds: finished.seconds,
        cpu_seconds: finished.cpu_seconds,
        own_read_bytes: finished.own_read_bytes,
        code: finished.code,
        end: finished.end,
        resident_peak_bytes: finished.resident_peak_bytes,
        resident_limit_bytes: None,
        stats: None,
    };
    Ok(Outcome { run: contender.ended(limits, &room, run), foreign_swap_bytes })
}

/// A cgroup with a limit of memory, and the limits of devices.
fn limited<'a>(site: &'a Site, memory: u64, throttle: Option<&Throttle>) -> io::Result<Option<Cgroup<'a>>> {
    let lines = throttle.map(Throttle::lines).unwrap_or_default();
    if memory == u64::MAX && lines.is_empty() {
        return Ok(None);
    }
    let cgroup = Cgroup::new(&site.janitor, memory)?;
    cgroup.limit_devices(&lines)?;
    Ok(Some(cgroup))
}

/// Whether a memory cgroup can be made.
fn probe_cgroup(site: &Site, limits: &Limits) -> Result<(), String> {
    let cgroup = Cgroup::new(&site.janitor, limits.memory);
    cgroup.map(drop).map_err(|error| format!("no memory cgroup can be made: {error}"))
}

/// The swap for `data` bytes and the other memory of a program.
fn swap_bytes(data: u64) -> u64 {
    data + data / 4 + 16 * MIB
}

/// A run without a result.
pub fn failed(contender: &str, why: String) -> Run {
    Run { round: 0, contender: contender.into(), end: End::Failed(why), ..Run::default() }
}
