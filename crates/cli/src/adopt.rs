//! `terapage adopt`: pages a program that is already running.

use crate::cgroup::Cgroup;
use crate::{complain, library, options::Options, release, signals::Quiet, userfaultfd};
use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueHint};
use rustix::fs::{stat, statvfs};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io::{ErrorKind, IsTerminal, Write, stderr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_adopt::{Adopted, Ending, Failure, Look, Progress, Table, Wish, adopt};
use terapage_config::{Budget, Group, Machine, Settings, Size, StoreSpec, machine_bytes};
use terapage_lease::{File, Inherited, JOB_VARIABLE};

/// The arguments of `terapage adopt`.
#[derive(Args)]
#[command(
    override_usage = "terapage adopt [OPTIONS] PID\n       terapage adopt [OPTIONS] --cgroup PATH",
    disable_help_flag = true,
    after_help = "\
Examples:
  terapage adopt --memory 32G 4711
  terapage adopt --memory 32G --store /mnt/nvme0 4711
  terapage adopt --memory 32G $(pidof solver)
  terapage adopt --memory 32G --cgroup /sys/fs/cgroup/system.slice/solver.service
  terapage stat 4711

The program is stopped for some milliseconds. From then on it is paged, and so are the processes
that it starts, which share the budget. Its memory leaves for the store while it runs, until the
rest fits into the budget. `terapage release` undoes the adoption of a process. A user without the
right to page adopts a program in guarded mode, as `terapage run` pages it. This is experimental:
docs/rescue.md has the limits. Do not adopt shells, make, or others that start very many programs.

Exit status:
  0; 125 if the program, or one of the cgroup's, was not adopted: then it goes on as before; or
  if it has ended meanwhile (one of a cgroup's: by a signal)."
)]
pub struct Adopt {
    #[command(flatten)]
    options: Options,
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = Group::Advanced.heading())]
    help: Option<bool>,
    /// Adopt all processes of this cgroup, and of those below
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath, help_heading = Group::Paged.heading())]
    cgroup: Option<PathBuf>,
    /// The number of the process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(required_unless_present = "cgroup", conflicts_with = "cgroup")]
    pid: Option<u32>,
}

/// What is said of programs that are adopted in guarded mode.
const GUARDED: &str = "without rights: system calls are guarded, and what the program executes from now on gains \
                       no rights (no_new_privs)";

/// The time between two looks at how far the host is.
const LOOK: Duration = Duration::from_millis(20);

/// How often a cgroup is searched for further processes. Those that adopted ones start are paged
/// already, so only ones that are refused can go on starting others.
const ROUNDS: usize = 20;

/// The exit status if a process was not adopted.
const NOT_ADOPTED: u8 = 125;

impl Adopt {
    /// Adopts the program, or all of a cgroup, and waits until their memory is within the budget.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.options.settings()?;
        refuse_far(&settings)?;
        if self.cgroup.is_some() && settings.per_process {
            bail!("--per-process: the processes of a cgroup share one budget (leave it out, or name a PID)");
        }
        let cgroup = self.cgroup.as_deref().map(Cgroup::find).transpose()?;
        let processes = match &cgroup {
            Some(cgroup) => cgroup.processes()?,
            None => self.pid.into_iter().collect(),
        };
        self.pid.into_iter().try_for_each(release::refuse_again)?;
        has_room(&settings, &processes)?;
        let plan = Plan::make(&settings)?;
        match (cgroup, self.pid) {
            (Some(cgroup), _) => plan.adopt_all(&cgroup, processes),
            (None, pid) => plan.adopt_one(pid.unwrap_or(0)),
        }
    }
}

/// What all processes that are adopted have in common.
pub struct Plan {
    host: PathBuf,
    texts: Vec<CString>,
    /// The table of their memory, unless each has a budget of its own.
    table: Option<Inherited>,
}

impl Drop for Plan {
    fn drop(&mut self) {
        if let Some(table) = self.table {
            File::from_number(table.number()).close();
        }
    }
}

impl Plan {
    /// Finds the host, and makes the table.
    pub fn make(settings: &Settings) -> anyhow::Result<Plan> {
        let (host, texts) = (library::static_host()?, texts(settings)?);
        let Budget { size: Size(budget), is_auto } = settings.memory;
        // The limits of this command's cgroups are not those of the program's.
        let most = if is_auto { machine_bytes().unwrap_or(budget) } else { budget };
        let table = (!settings.per_process)
            .then(|| Inherited::make(most, is_auto))
            .transpose()
            .context("the table of the memory of all processes (--per-process needs none)")?;
        Ok(Plan { host, texts, table })
    }

    /// Adopts a process.
    pub fn adopt(&self, pid: u32) -> Result<Adopted, Failure> {
        let setting = |number: i32| {
            let text = self.table.map(|table| format!("{JOB_VARIABLE}={}", table.under(number)));
            CString::new(text.unwrap_or_default()).unwrap_or_default()
        };
        // SAFETY: the table's descriptor stays open as long as the plan.
        let fd = self.table.map(|table| unsafe { BorrowedFd::borrow_raw(table.number()) });
        let table = fd.map(|fd| Table { fd, setting: &setting });
        let fault = std::env::var("TERAPAGE_ADOPT_FAULT").ok().and_then(|number| number.parse().ok());
        // An interrupted command would leave the program's threads in the middle of its work.
        let _signals = Quiet::begin();
        let guards = userfaultfd::is_forced();
        adopt(&Wish { pid, host: &self.host, settings: &self.texts, table, guards, fault })
    }

    fn adopt_one(&self, pid: u32) -> anyhow::Result<ExitCode> {
        let kills = Kills::around(pid);
        let adopted = self.adopt(pid).map_err(|failure| anyhow!(text(pid, &failure, &kills)))?;
        match follow(&[adopted], |_| format!("process {pid}"))[..] {
            [(_, ending)] => bail!(text(pid, &Failure::Ended(ending), &kills)),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Adopts the processes of a cgroup, and those that appear there meanwhile.
    fn adopt_all(&self, cgroup: &Cgroup, mut processes: Vec<u32>) -> anyhow::Result<ExitCode> {
        let (mut seen, mut adopted) = (BTreeSet::from([std::process::id()]), Vec::new());
        let (mut all_are, mut kills) = (true, BTreeMap::new());
        for _ in 0..ROUNDS {
            processes.retain(|&pid| seen.insert(pid));
            if processes.is_empty() {
                break;
            }
            for pid in processes.drain(..).filter(|&pid| !self.has_table(pid)) {
                if let Err(why) = release::refuse_again(pid) {
                    complain(&why.to_string());
                    all_are = false;
                    continue;
                }
                let around = kills.entry(pid).or_insert_with(|| Kills::around(pid));
                match self.adopt(pid) {
                    Ok(one) => adopted.push(one),
                    // Processes of a cgroup come and go.
                    Err(Failure::Ended(ending)) if ending.signal().is_none() => {}
                    Err(Failure::Refused(_)) if has_ended(pid) => {}
                    Err(failure) => {
                        complain(&text(pid, &failure, around));
                        all_are = false;
                    }
                }
            }
            processes = cgroup.processes()?;
        }
        let path = cgroup.path().display();
        if adopted.is_empty() {
            bail!("--cgroup: no process of {path} was adopted");
        }
        let who = |count: usize| format!("{count} process{} of {path}", if count == 1 { "" } else { "es" });
        for (pid, ending) in follow(&adopted, who) {
            if let (Some(_), Some(around)) = (ending.signal(), kills.get(&pid)) {
                complain(&text(pid, &Failure::Ended(ending), around));
                all_are = false;
            }
        }
        Ok(if all_are { ExitCode::SUCCESS } else { ExitCode::from(NOT_ADOPTED) })
    }

    /// Whether a process has the table: its parent was adopted.
    fn has_table(&self, pid: u32) -> bool {
        let Some(table) = self.table else { return false };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| stat(file.path()).ok()).any(|found| found.st_ino == table.file())
    }
}

/// Whether a process has ended, or is about to: then it has no executable any more.
pub fn has_ended(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// How often the kernel has ended processes of a process's cgroup because memory ran out.
struct Kills {
    machine: Machine,
    before: u64,
}

impl Kills {
    fn around(pid: u32) -> Kills {
        let machine = Machine::of(&pid.to_string(), &read);
        let before = machine.kills(&read);
        Kills { machine, before }
    }

    fn are_more(&self) -> bool {
        self.machine.kills(&read) > self.before
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Why a process was not adopted, or is not paged although it was.
fn text(pid: u32, failure: &Failure, kills: &Kills) -> String {
    let ending = match failure {
        Failure::Refused(why) if has_ended(pid) => return format!("process {pid} is not adopted: {why}"),
        Failure::Refused(why) => return format!("process {pid} is not adopted: {why}; it goes on as before"),
        Failure::Ended(ending) => *ending,
    };
    let how = match (ending.signal(), ending.status()) {
        (Some(libc::SIGKILL), _) if kills.are_more() => {
            ": the kernel killed it because memory ran out (adopt it earlier, or raise its limit)".to_owned()
        }
        (Some(signal), _) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!(": {name}"),
            None => format!(": signal {signal}"),
        },
        (None, Some(status)) => format!(": status {status}"),
        (None, None) => String::new(),
    };
    format!("process {pid} has ended while it was being adopted{how}")
}

/// The settings as variables. Nothing else of this command's environment goes to the program.
fn texts(settings: &Settings) -> anyhow::Result<Vec<CString>> {
    let text = |(name, value): (&str, OsString)| {
        let mut text = OsString::from(name);
        text.push("=");
        text.push(value);
        CString::new(text.into_vec()).context("a setting")
    };
    settings.to_variables().into_iter().map(text).collect()
}

/// Refuses far stores: their connections would be the program's.
pub fn refuse_far(settings: &Settings) -> anyhow::Result<()> {
    if settings.stores.iter().any(|store| store.is_far()) {
        bail!("--store: an adopted program has its store in files or on devices (name a directory)");
    }
    Ok(())
}

/// Refuses if a directory on a disk too small for the programs' memory is the only store: a store
/// that fills would end a program.
pub fn has_room(settings: &Settings, processes: &[u32]) -> anyhow::Result<()> {
    let [StoreSpec::File(path)] = &settings.stores[..] else { return Ok(()) };
    if !path.is_dir() {
        return Ok(());
    }
    let used = processes.iter().copied().map(used_bytes);
    // A budget that follows the memory may shrink.
    let stays = if settings.memory.is_auto { 0 } else { settings.memory.size.0 };
    let leaves = match settings.per_process {
        true => used.map(|used| used.saturating_sub(stays)).sum::<u64>(),
        false => used.sum::<u64>().saturating_sub(stays),
    };
    let free = statvfs(path).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if free < leaves {
        let [free, leaves] = [free, leaves].map(|bytes| Size(bytes >> 20 << 20));
        bail!(
            "--store: {} has {free} free, and {leaves} would leave for it (name a larger one)",
            path.display()
        );
    }
    Ok(())
}

/// The private memory of a process, swapped or not.
pub fn used_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    (kib("RssAnon:").unwrap_or(0) + kib("VmSwap:").unwrap_or(0)) << 10
}

/// Shows how far the hosts are, until all are done. Returns which processes have ended before, and
/// how. `who` names a number of processes.
fn follow(adopted: &[Adopted], who: impl Fn(usize) -> String) -> Vec<(u32, Ending)> {
    let began = Instant::now();
    if adopted.iter().any(|one| one.is_guarded) {
        complain(GUARDED);
    }
    let mut shown = false;
    // Whoever is done is not looked at again.
    let mut looks = vec![None; adopted.len()];
    loop {
        for (look, one) in looks.iter_mut().zip(adopted) {
            if !look.is_some_and(is_last) {
                *look = Some(one.look());
            }
        }
        if looks.iter().flatten().copied().all(is_last) {
            break;
        }
        if stderr().is_terminal() {
            let [done, all] = sums(&looks);
            let _ =
                write!(stderr(), "\rterapage: {}: {done} of {all} taken over\x1b[K\r", who(adopted.len()));
            shown = true;
        }
        std::thread::sleep(LOOK);
    }
    clear(shown);
    let ended = looks.iter().zip(adopted).filter_map(|(look, one)| match look {
        Some(Look::Ended(ending)) => Some((one.pid(), *ending)),
        _ => None,
    });
    let ended: Vec<(u32, Ending)> = ended.collect();
    let left = adopted.len() - ended.len();
    if left > 0 {
        let seconds = began.elapsed().as_secs_f64();
        let what = match looks[..] {
            [Some(Look::Executed)] => "it has executed another program".to_owned(),
            _ => format!("{} were taken over in {seconds:.1} s", sums(&looks)[1]),
        };
        let (are, stopped) = match left {
            1 => ("is", "it was stopped for"),
            _ => ("are", "each was stopped for at most"),
        };
        let pause = adopted.iter().map(|one| one.pause).max().unwrap_or_default().as_secs_f64() * 1e3;
        complain(&format!("{} {are} paged: {what}; {stopped} {pause:.0} ms", who(left)));
    }
    ended
}

/// Whether nothing more will be seen of a process.
fn is_last(look: Look) -> bool {
    !matches!(look, Look::Runs(progress) if !progress.is_done)
}

/// How much was taken over, and how much will have been.
fn sums(looks: &[Option<Look>]) -> [Size; 2] {
    let all =
        || looks.iter().filter_map(|look| if let Some(Look::Runs(seen)) = look { Some(seen) } else { None });
    let sum = |of: fn(&Progress) -> u64| Size(all().map(of).sum::<u64>() >> 20 << 20);
    [sum(|one| one.done_bytes), sum(|one| one.all_bytes)]
}

/// Removes the progress line, if one was shown.
pub fn clear(shown: bool) {
    if shown {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
