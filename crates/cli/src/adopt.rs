//! `terapage adopt`: pages a program that is already running.

use crate::cgroup::Cgroup;
use crate::{complain, library, options::Options, release, userfaultfd};
use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use rustix::fs::{stat, statvfs};
use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io::{ErrorKind, IsTerminal, Write, stderr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_adopt::{Adopted, Progress, Table, Wish, adopt};
use terapage_config::{Group, Settings, Size, StoreSpec};
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
  0; 125 if the program, or one of the cgroup's, was not adopted: then it goes on as before."
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
        let table = (!settings.per_process)
            .then(|| Inherited::make(settings.memory.size.0, settings.memory.is_auto))
            .transpose()
            .context("the table of the memory of all processes (--per-process needs none)")?;
        Ok(Plan { host, texts, table })
    }

    /// Adopts a process.
    pub fn adopt(&self, pid: u32) -> Result<Adopted, String> {
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
        match self.adopt(pid) {
            Ok(adopted) => follow(&[adopted], &format!("process {pid}")),
            Err(why) if has_ended(pid) => bail!("process {pid} is not adopted: {why}"),
            Err(why) => bail!("process {pid} is not adopted: {why}; it goes on as before"),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Adopts the processes of a cgroup, and those that appear there meanwhile.
    fn adopt_all(&self, cgroup: &Cgroup, mut processes: Vec<u32>) -> anyhow::Result<ExitCode> {
        let (mut seen, mut adopted) = (BTreeSet::from([std::process::id()]), Vec::new());
        let mut all_are = true;
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
                match self.adopt(pid) {
                    Ok(one) => adopted.push(one),
                    Err(_) if has_ended(pid) => {}
                    Err(why) => {
                        complain(&format!("process {pid} is not adopted: {why}; it goes on as before"));
                        all_are = false;
                    }
                }
            }
            processes = cgroup.processes()?;
        }
        let (count, path) = (adopted.len(), cgroup.path().display());
        if count == 0 {
            bail!("--cgroup: no process of {path} was adopted");
        }
        follow(&adopted, &format!("{count} process{} of {path}", if count == 1 { "" } else { "es" }));
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

/// Shows how far the hosts are, until all are done.
fn follow(adopted: &[Adopted], who: &str) {
    let began = Instant::now();
    if adopted.iter().any(|one| one.is_guarded) {
        complain(userfaultfd::GUARDED_ADOPTED);
    }
    let pause = adopted.iter().map(|one| one.pause).max().unwrap_or_default().as_secs_f64() * 1e3;
    let mut shown = false;
    loop {
        let seen: Vec<Progress> = adopted.iter().filter_map(Adopted::progress).collect();
        let sum = |of: fn(&Progress) -> u64| Size(seen.iter().map(of).sum::<u64>() >> 20 << 20);
        let (all, done) = (sum(|one| one.all_bytes), sum(|one| one.done_bytes));
        if seen.iter().all(|one| one.is_done) {
            clear(shown);
            let seconds = began.elapsed().as_secs_f64();
            let (have, are, stopped) = match adopted.len() {
                1 => ("has", "is", "it was stopped for"),
                _ => ("have", "are", "each was stopped for at most"),
            };
            complain(&match seen.len() {
                0 => format!("{who} {have} ended"),
                _ => format!(
                    "{who} {are} paged: {all} were taken over in {seconds:.1} s; {stopped} {pause:.0} ms"
                ),
            });
            return;
        }
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\rterapage: {who}: {done} of {all} taken over\x1b[K\r");
            shown = true;
        }
        std::thread::sleep(LOOK);
    }
}

/// Removes the progress line, if one was shown.
pub fn clear(shown: bool) {
    if shown {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// While this lives, signals that would end this command wait.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn begin() -> Quiet {
        // SAFETY: sets are plain data, for which zeros are a value, and have room for the answer.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Quiet(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
