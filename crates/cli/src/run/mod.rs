//! `terapage run`: replaces this process by the program, with the library loaded into it.

mod enforce;
mod job;
mod progress;
mod signals;
mod summary;

use crate::{
    OWN_ERROR, complain, far, library,
    options::{Options, strange_variables},
    program, ring, userfaultfd,
};
use anyhow::Context;
use anyhow::bail;
use clap::Args;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use terapage_config::{
    Budget, Group, Hosted, Io, PATH_VARIABLES, SETTINGS, Settings, Size, UnknownVariable, is_limit_hidden,
    memory_bytes,
};
use terapage_lease::JOB_VARIABLE;
use terapage_sys::executable;
use terapage_sys::userfaultfd::{DEVICE_VARIABLE, hand_on};
use terapage_trace::Misses;

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The arguments of `terapage run`.
#[derive(Args)]
#[command(
    override_usage = "terapage run [OPTIONS] [--] PROGRAM [ARGS]...",
    disable_help_flag = true,
    after_help = "\
Examples:
  terapage run -- ./simulation input.dat
  terapage run --memory 4G -- ./simulation input.dat
  terapage run --memory 8G -- make -j8
  terapage run -m 50% --store /mnt/nvme0 --store /mnt/nvme1 --placement round-robin -- ./solver
  terapage run -m 4G --store valkey://far1:6379 -- ./simulation input.dat
  terapage run -m 4G --store tier:ram:1G+/mnt/disk -- ./solver
  terapage run -m 2G --encrypt --store /var/tmp -- ./solver
  terapage run -m 2G --block 64K --stats counters.json -- python3 analyse.py

Exit status:
  that of the program; 125 if terapage itself fails, the store is full, or the paged program frees
  memory that malloc did not return or that is free already; 126 if the program cannot be
  executed; 127 if the program is not found."
)]
pub struct Run {
    #[command(flatten)]
    options: Options,
    /// Limit all memory of the program and its children with a cgroup: to SIZE, or to the budget
    /// plus 1 % and 64 MiB, or, without --memory, to the memory less a reserve. The kernel
    /// kills processes that need more
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = Group::Memory.heading())]
    enforce: Option<String>,
    /// At the end, print on standard error what the run has used, and which settings would help
    #[arg(long, help_heading = Group::Output.heading())]
    summary: bool,
    /// Show on standard error, if that is a terminal, one line while the program runs: memory,
    /// store, speed, the share of the time in which it waits, and the slowdown that follows
    #[arg(long, help_heading = Group::Output.heading())]
    progress: bool,
    /// Refuse, with status 125, a program that would run without being paged
    #[arg(long, help_heading = Group::Paged.heading())]
    require: bool,
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = Group::Advanced.heading())]
    help: Option<bool>,
    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Run {
    /// The limit that `--enforce` asks for, if the flag is given.
    fn limit(&self, Budget { size: budget, is_auto }: Budget) -> anyhow::Result<Option<Size>> {
        let limit = match self.enforce.as_deref() {
            None => return Ok(None),
            // The budget follows what the cgroup has, so any limit will do.
            Some("") if is_auto => enforce::limit_of_auto(budget),
            Some("") => enforce::limit_of(budget),
            Some(size) => size.parse().context("--enforce")?,
        };
        if limit < budget && !is_auto {
            bail!(
                "--enforce: {limit} is less than --memory, {budget} (without a size it is {})",
                enforce::limit_of(budget)
            );
        }
        Ok(Some(limit))
    }

    /// Returns only if the program could not be started.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        name_strange_variables();
        let settings = far::hand_over(self.options.settings()?)?;
        if self.progress
            && let Some(status) = progress::watch()?
        {
            return Ok(status);
        }
        let budget = settings.memory.size;
        if let Some(all) = memory_bytes().map(Size).filter(|&all| !settings.memory.is_auto && budget > all) {
            bail!("--memory: {budget} is more than the available memory, {all} (try without --memory)");
        }
        name_hidden_limit(&settings);
        let Some((name, arguments)) = self.command.split_first() else { bail!("no program is named") };
        if name.is_empty() {
            complain("the program's name is empty (write terapage run -- PROGRAM)");
            return Ok(ExitCode::from(NOT_FOUND));
        }
        let shown = name.display();
        let path = match find(name) {
            Ok(path) => path,
            Err(status) => return Ok(status),
        };
        let library = library::find()?;
        let preload = library::preload(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
        let unpaged = unpaged(&path, settings.io);
        let is_hosted = match (&unpaged, settings.hosted) {
            (_, Hosted::Off) => false,
            (Some(unpaged), _) => unpaged.is_hostable,
            (None, wanted) => (wanted == Hosted::All || library::IS_IN_HOST) && program::is_dynamic(&path),
        };
        let host = if is_hosted { library::host(&library) } else { None };
        let unpaged = unpaged.or_else(|| without_host(&path, settings.hosted)).filter(|_| host.is_none());
        let is_guarded = unpaged.is_none() && guards(&path, host.is_some());
        if let Some(Unpaged { why, .. }) = &unpaged {
            if self.require {
                bail!("{shown} is not run, since its memory would not be paged (--require): {why}");
            }
            complain(&format!("warning: {shown} runs, but its memory is not paged: {why}"));
        }

        let limit = self.limit(settings.memory)?;
        prepare_files(&settings)?;
        let mut command = match &host {
            None => Command::new(&path),
            Some(host) => Command::new(host),
        };
        let before = host.as_ref().and_then(|_| program::first_line(&path));
        command.arg0(before.as_ref().map_or(name.as_os_str(), |before| before[0].as_os_str()));
        command.args(before.iter().flat_map(|before| &before[1..]));
        command.args(arguments).env_remove("TERAPAGE");
        settle_variables(&mut command)?;
        if unpaged.is_some_and(|unpaged| unpaged.bars_library) {
            without_library(&mut command, &library);
        } else {
            with_library(&mut command, &settings, preload);
            match job::prepare(&settings)? {
                Some(inherited) => command.env(JOB_VARIABLE, inherited.to_string()),
                None => command.env_remove(JOB_VARIABLE),
            };
            if self.summary {
                command.env(summary::VARIABLE, summary::prepare()?);
            }
        }
        if host.is_some() {
            let program = before.as_ref().map_or(path.as_os_str(), |before| before[0].as_os_str());
            command.env(library::HOSTED, library::hosted(program, self.require, is_guarded));
        }
        signals::keep(&mut command);
        if is_guarded && host.is_none() {
            userfaultfd::lay_out_guarded().context("personality")?;
        }
        // This step is the last that can fail: once made, a cgroup is either entered or removed.
        limit.map(|limit| enforce::Cage::make(limit)?.enter()).transpose()?;
        Ok(not_executed(name, &command.exec()))
    }
}

/// Warns if the budget follows the free memory, and a limit on it is unknown.
fn name_hidden_limit(settings: &Settings) {
    if settings.memory.is_auto && is_limit_hidden() {
        complain(
            "warning: this cgroup's limit on memory cannot be seen, since /sys/fs/cgroup is not mounted \
             (give a budget by --memory)",
        );
    }
}

/// Warns about variables that look like settings.
fn name_strange_variables() {
    for UnknownVariable { name, nearest } in strange_variables() {
        let meant = nearest.map_or(String::new(), |nearest| format!(" (did you mean {nearest}?)"));
        complain(&format!("warning: no setting is called {name}{meant}"));
    }
}

/// Removes the variables of settings, which the resolved settings replace, and makes paths whole:
/// the program may change its directory.
fn settle_variables(command: &mut Command) -> anyhow::Result<()> {
    for setting in SETTINGS {
        command.env_remove(setting.variable);
    }
    for name in PATH_VARIABLES {
        if let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) {
            command.env(name, std::path::absolute(path).context(*name)?);
        }
    }
    command.env_remove(summary::VARIABLE);
    Ok(())
}

/// Checks the file of `--learn`, and removes files of an earlier run, which could be mistaken for
/// this run's.
fn prepare_files(settings: &Settings) -> anyhow::Result<()> {
    if let Some(path) = &settings.learn
        && let Err(why) = Misses::read(path)
    {
        bail!("--learn: {} {why}", path.display());
    }
    for file in [&settings.stats, &settings.trace].into_iter().flatten().filter(|file| file.is_file()) {
        std::fs::remove_file(file).with_context(|| format!("{} cannot be replaced", file.display()))?;
    }
    Ok(())
}

/// The file of the program `name`. If there is none, writes a line that says so, and returns the
/// exit status.
fn find(name: &OsStr) -> Result<PathBuf, ExitCode> {
    let shown = name.display();
    let (status, why) = match program::find(name, std::env::var_os("PATH")) {
        Ok(path) => return Ok(path),
        Err(program::Missing::NotFound) if is_size(name) => {
            (NOT_FOUND, format!("not found (a budget is written --memory {shown})"))
        }
        Err(program::Missing::NotFound) => (NOT_FOUND, "not found".to_owned()),
        Err(program::Missing::NotExecutable) => (NOT_EXECUTABLE, "not executable".to_owned()),
    };
    complain(&format!("{shown}: {why}"));
    Err(ExitCode::from(status))
}

/// Whether a program's calls are guarded, which is said: it is hosted, or loads the library and may
/// have the layout of guarded programs.
fn guards(path: &Path, is_hosted: bool) -> bool {
    let has_loader = |path: CString| executable::loader_of(&path).is_some();
    let guards = userfaultfd::guards()
        && (is_hosted || CString::new(path.as_os_str().as_bytes()).is_ok_and(has_loader));
    if guards {
        complain(userfaultfd::GUARDED);
    }
    guards
}

/// Whether a word reads as a budget, such as `1G`, `50%` or `auto`.
fn is_size(word: &OsStr) -> bool {
    let is_size = |word: &str| word == "auto" || word.trim_end_matches('%').parse::<Size>().is_ok();
    word.to_str().is_some_and(is_size)
}

/// Says why the program `name`, whose file was found, could not be executed. Returns the exit
/// status.
fn not_executed(name: &OsStr, error: &std::io::Error) -> ExitCode {
    let shown = name.display();
    let (status, why) = match error.raw_os_error() {
        Some(libc::ENOENT) => {
            (NOT_FOUND, "the interpreter or loader that it names does not exist".to_owned())
        }
        Some(libc::EACCES | libc::ENOEXEC) => (NOT_EXECUTABLE, error.to_string()),
        _ => (OWN_ERROR, error.to_string()),
    };
    complain(&format!("{shown}: {why}"));
    ExitCode::from(status)
}

/// Why a program is not paged.
struct Unpaged {
    /// In words that follow a colon.
    why: String,
    /// Neither the program nor what it starts can use the library.
    bars_library: bool,
    /// The host could page the program.
    is_hostable: bool,
}

/// Why the program at `path` cannot be paged, if that is known before it starts.
fn unpaged(path: &Path, io: Io) -> Option<Unpaged> {
    let guards = userfaultfd::guards();
    let refusal = userfaultfd::features().err().filter(|_| !guards);
    let right = refusal.map(|refusal| (refusal.what(), refusal.fix()));
    let right = right.or_else(|| ring::barred(io).map(|refusal| (refusal.what, refusal.fix)));
    if let Some((what, fix)) = right {
        return Some(Unpaged { why: format!("{what} (try: {fix})"), bars_library: true, is_hostable: false });
    }
    let (why, files) = if guards { program::judge_guarded(path) } else { program::judge(path) };
    let (why, judged) = (why?, files.last()?);
    let bars_library = why.bars_library();
    // Only the kernel can run a script whose interpreter is a script.
    let is_hostable = why.is_hostable() && files.len() <= 2;
    let why = match files.len() {
        1 => format!("it is {why}"),
        _ => format!("its interpreter, {}, is {why}", judged.display()),
    };
    Some(Unpaged { why, bars_library, is_hostable })
}

/// Why the program at `path` is not paged without a host, if there is no library.
fn without_host(path: &Path, hosted: Hosted) -> Option<Unpaged> {
    let why = match hosted {
        _ if !library::IS_IN_HOST => return None,
        Hosted::Off => "with --static off, this command, which is built for musl, pages no program",
        _ if program::judge(path).1.len() > 2 => "it is a script whose interpreter is a script",
        _ => return None,
    };
    Some(Unpaged { why: why.to_owned(), bars_library: true, is_hostable: false })
}

/// The environment of a paged program.
fn with_library(command: &mut Command, settings: &Settings, preload: Option<OsString>) {
    if let Some(preload) = preload {
        let options = library::sanitizer_options(std::env::var_os("ASAN_OPTIONS").as_deref());
        command.env("LD_PRELOAD", preload).env("ASAN_OPTIONS", options);
    }
    command.envs(settings.to_variables()).env("TERAPAGE_ROOT", std::process::id().to_string());
    // For programs that give up their present rights: the open descriptor stays open.
    match userfaultfd::inherited().or_else(hand_on) {
        Some(inherited) => command.env(DEVICE_VARIABLE, inherited.to_string()),
        None => command.env_remove(DEVICE_VARIABLE),
    };
}

/// The environment of a program that cannot be paged. `TERAPAGE=off`: if this command is itself
/// paged, the library in it would otherwise add itself again when it executes the program.
fn without_library(command: &mut Command, library: &Path) {
    match library::without(library, std::env::var_os("LD_PRELOAD").as_deref()) {
        Some(others) => command.env("LD_PRELOAD", others),
        None => command.env_remove("LD_PRELOAD"),
    };
    command.env_remove(DEVICE_VARIABLE).env_remove(JOB_VARIABLE).env("TERAPAGE", "off");
}
