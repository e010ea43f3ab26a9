//! `terapage guard`: adopts the largest program of a list when memory is short.

mod choice;
mod programs;
mod shortage;

use crate::adopt::{Plan, has_ended, has_room, refuse_far};
use crate::cgroup::Cgroup;
use crate::{complain, library, options::Options, print, signals::Ends, userfaultfd};
use anyhow::bail;
use choice::{Candidate, Refusals, choose};
use clap::{Args, ValueHint};
use programs::Program;
use serde_json::json;
use shortage::{Shortage, Trend};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_adopt::Failure;
use terapage_config::{Group, Machine, Settings, Size};

/// The arguments of `terapage guard`.
#[derive(Args)]
#[command(
    override_usage = "terapage guard [OPTIONS] --allow NAME...",
    disable_help_flag = true,
    after_help = "\
Examples:
  terapage guard --allow solver
  terapage guard --allow 'python*' --allow solver --store /mnt/nvme0
  terapage guard --allow solver --cgroup /sys/fs/cgroup/system.slice/jobs.slice
  terapage guard --allow solver --json | jq -r .event

Until Ctrl-C, the free memory of the machine, and of each cgroup with a limit around programs of the
list, is watched. Before memory runs out, the largest of the programs there is adopted as by
`terapage adopt`: it and its children get one budget. Programs that are not on the list are left
alone, and so are those of other users, except by root, and those with less than 64 MiB. A program
that cannot be adopted is tried again later. Adopted programs go on when this command ends.
This is experimental: docs/rescue.md has the limits.

Exit status:
  that of the signal that ended the command; 125 if programs cannot be adopted here."
)]
pub struct Guard {
    #[command(flatten)]
    options: Options,
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = Group::Advanced.heading())]
    help: Option<bool>,
    /// Adopt programs of this name, of the process or of its file; * and ? stand for other
    /// characters. Repeat it for more names
    #[arg(long, value_name = "NAME", help_heading = Group::Paged.heading())]
    allow: Vec<String>,
    /// Adopt only processes of this cgroup, and of those below
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath, help_heading = Group::Paged.heading())]
    cgroup: Option<PathBuf>,
    /// Adopt if less than this share of the memory is free, and what is taken in a second [default:
    /// half of the reserve of --memory auto, and 32 MiB]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=90), help_heading = Group::Memory.heading())]
    free: Option<u64>,
    /// Print a line of JSON for each program that is adopted or refused
    #[arg(long, help_heading = Group::Output.heading())]
    json: bool,
}

/// The time between two looks at the free memory, and at which processes are new; it is less if
/// memory is taken fast.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_LEAST: Duration = Duration::from_millis(20);
/// There are this many looks until memory that is taken fast runs out.
const LOOKS: f64 = 16.0;
/// The time between two searches for programs: a search reads files of all processes.
const SEARCH: Duration = Duration::from_millis(500);
/// The time between two attempts while memory is short: an adopted program gives memory back only
/// after some time.
const REST: Duration = Duration::from_millis(500);

impl Guard {
    /// Watches until a signal.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.allow.is_empty() {
            bail!("--allow: no program is adopted without a list (name one: --allow solver)");
        }
        let settings = self.options.settings()?;
        refuse_far(&settings)?;
        let cgroup = self.cgroup.as_deref().map(Cgroup::find).transpose()?;
        library::static_host()?;
        if let Err(refusal) = userfaultfd::features() {
            bail!("no program can be adopted: {} ({})", refusal.what(), refusal.fix());
        }
        let signals = Ends::begin();
        stay_in_memory();
        if !self.json {
            complain(&format!("watches the memory of programs named {}", self.allow.join(", ")));
        }
        let mut watch = Watch {
            cgroup,
            settings,
            began: Instant::now(),
            seen: Default::default(),
            programs: Vec::new(),
            places: BTreeMap::new(),
            refusals: Refusals::default(),
            guard: self,
        };
        let (mut searched, mut rests_until) = (None::<Instant>, Instant::now());
        loop {
            if watch.has_new()? || searched.is_none_or(|at| at.elapsed() >= SEARCH) {
                watch.search()?;
                searched = Some(Instant::now());
            }
            if watch.look() && Instant::now() >= rests_until && watch.rescue()? {
                rests_until = Instant::now() + REST;
            }
            let_ended_go();
            if let Some(signal) = signals.come_within(watch.pause()) {
                signal_hook::low_level::emulate_default_handler(signal)?;
            }
        }
    }
}

/// Limits of memory around programs: the machine's, then those of cgroups.
struct Place {
    machine: Machine,
    /// The trend with which each limit begins.
    first: Trend,
    trends: Vec<Trend>,
    /// What was short at the last look, and whether that is a cgroup.
    short: Option<(Shortage, bool)>,
}

/// What this command knows.
struct Watch {
    guard: Guard,
    cgroup: Option<Cgroup>,
    settings: Settings,
    began: Instant,
    /// The processes of the last look, and of the one before.
    seen: [BTreeSet<u32>; 2],
    /// The programs that the list allows, as last found.
    programs: Vec<Program>,
    /// Their places.
    places: BTreeMap<String, Place>,
    refusals: Refusals,
}

impl Watch {
    /// All processes among which this command searches.
    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => Ok(programs::all()),
        }
    }

    /// Whether the list allows a process that has begun lately. Each process is looked at twice: it
    /// may not have executed its program before.
    fn has_new(&mut self) -> anyhow::Result<bool> {
        let all: BTreeSet<u32> = self.processes()?.into_iter().collect();
        let new: Vec<u32> = all.difference(&self.seen[1]).copied().collect();
        let [last, before] = &mut self.seen;
        *before = std::mem::replace(last, all);
        let is_known = |who| self.programs.iter().any(|known| known.candidate.who == who);
        let allowed = programs::allowed(&new, &self.guard.allow);
        Ok(allowed.iter().any(|one| !one.candidate.is_paged && !is_known(one.candidate.who)))
    }

    /// Finds the programs that the list allows, and their places.
    fn search(&mut self) -> anyhow::Result<()> {
        let found = programs::allowed(&self.processes()?, &self.guard.allow);
        self.refusals.keep(|who| found.iter().any(|one| one.candidate.who == who));
        self.places.retain(|place, _| found.iter().any(|one| one.place == *place));
        for program in &found {
            let process = program.candidate.who.0.to_string();
            self.places.entry(program.place.clone()).or_insert_with(|| {
                let here = found.iter().filter(|one| one.place == program.place);
                let trend = Trend::new(here.map(Program::taken_per_s).sum());
                Place { machine: Machine::of(&process, &read), first: trend, trends: Vec::new(), short: None }
            });
        }
        self.programs = found;
        Ok(())
    }

    /// Looks at the free memory of all places, and returns whether it is short in one.
    fn look(&mut self) -> bool {
        let (now, percent) = (self.began.elapsed(), self.guard.free);
        for place in self.places.values_mut() {
            let levels = place.machine.levels(&read);
            place.trends.resize(levels.len(), place.first.clone());
            let looks = levels.iter().zip(&mut place.trends).enumerate();
            let short = looks.map(|(at, (level, trend))| Some((trend.look(level, now, percent)?, at > 0)));
            // All are looked at. A cgroup says more than the machine.
            place.short = short.collect::<Vec<_>>().into_iter().flatten().next_back();
        }
        self.places.values().any(|place| place.short.is_some())
    }

    /// The time until the next look.
    fn pause(&self) -> Duration {
        let lasts_s = self.places.values().flat_map(|place| &place.trends).map(Trend::lasts_s);
        let least_s = lasts_s.fold(f64::INFINITY, f64::min);
        Duration::from_secs_f64((least_s / LOOKS).clamp(LOOK_LEAST.as_secs_f64(), LOOK.as_secs_f64()))
    }

    /// Adopts the largest of the programs where memory is short that can be adopted. Returns
    /// whether that was tried.
    fn rescue(&mut self) -> anyhow::Result<bool> {
        let known: Vec<u32> = self.programs.iter().map(|one| one.candidate.who.0).collect();
        let programs = programs::allowed(&known, &self.guard.allow);
        let (mut has_tried, short) = (false, |program: &Program| self.places.get(&program.place)?.short);
        let shortages: Vec<_> = programs.iter().map(short).collect();
        let candidates: Vec<_> = programs
            .iter()
            .zip(&shortages)
            .map(|(one, short)| Candidate { is_short: short.is_some(), ..one.candidate.clone() })
            .collect();
        while let Some(at) = choose(&candidates, &self.refusals, self.began.elapsed()) {
            let (program, Some(short)) = (&programs[at], &shortages[at]) else { break };
            has_tried = true;
            let outcome = match self.adopt(program.candidate.who.0) {
                Ok(stopped) => Ok(stopped),
                Err(Failure::Refused(why)) if !has_ended(program.candidate.who.0) => {
                    Err((why, self.refusals.note(program.candidate.who, self.began.elapsed())))
                }
                Err(_) => break,
            };
            self.report(program, short, &outcome)?;
            if outcome.is_ok() {
                break;
            }
        }
        Ok(has_tried)
    }

    /// Says what was done and why: a program was stopped for some time, or it was refused and is
    /// left alone for some time.
    fn report(
        &self,
        program: &Program,
        (short, in_cgroup): &(Shortage, bool),
        outcome: &Result<Duration, (String, Duration)>,
    ) -> anyhow::Result<()> {
        let (pid, name) = (program.candidate.who.0, &program.name);
        let whose = if *in_cgroup { "cgroup" } else { "machine" };
        if self.guard.json {
            let mut event = json!({
                "event": if outcome.is_ok() { "adopted" } else { "refused" },
                "pid": pid,
                "name": name,
                "private_bytes": program.candidate.bytes,
                "short": whose,
                "limit_bytes": short.limit,
                "free_bytes": short.free,
                "taken_bytes_per_s": short.taken_per_s,
            });
            match outcome {
                Ok(stopped) => event["stopped_ms"] = json!(stopped.as_secs_f64() * 1e3),
                Err((why, pause)) => {
                    (event["why"], event["again_s"]) = (json!(why), json!(pause.as_secs()));
                }
            }
            return print(&format!("{event}\n"));
        }
        let mib = |bytes: u64| Size(bytes >> 20 << 20);
        let (free, limit, taken) =
            (mib(short.free), mib(short.limit), mib(short.taken_per_s.max(0).unsigned_abs()));
        let reason = format!("{free} of the {whose}'s {limit} are free, and {taken} are taken each second");
        complain(&match outcome {
            Ok(stopped) => {
                let ms = stopped.as_secs_f64() * 1e3;
                format!("process {pid} ({name}) is adopted: {reason}; it was stopped for {ms:.0} ms")
            }
            Err((why, pause)) => {
                let pause = pause.as_secs();
                format!(
                    "process {pid} ({name}) is not adopted: {why}; it goes on as before, and is tried again \
                     after {pause} s ({reason})"
                )
            }
        });
        Ok(())
    }

    /// Adopts a process, with a budget for it and its children. Returns how long it was stopped.
    fn adopt(&self, pid: u32) -> Result<Duration, Failure> {
        let plan = has_room(&self.settings, &[pid]).and_then(|()| Plan::make(&self.settings));
        Ok(plan.map_err(|error| Failure::Refused(format!("{error:#}")))?.adopt(pid)?.pause)
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A program that is killed while it is being adopted stays, even for its parent, until its tracer
/// has seen its end. This command has no children of its own.
fn let_ended_go() {
    // SAFETY: the call writes nothing.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) } > 0 {}
}

/// Keeps this command in memory: where memory is short, its own pages would have to be read first.
/// Without the right to that, it may be slower.
fn stay_in_memory() {
    // SAFETY: this concerns where pages are, not what they contain.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
}
