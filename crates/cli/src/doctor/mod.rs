//! `terapage doctor`: says whether paging can work here, and if not, what to do.

pub mod container;
mod disk;
pub mod fix;
mod follow;
mod forecast;

use crate::userfaultfd::{self, Refusal};
use crate::{
    library,
    options::{Options, strange_variables},
    print, ring,
};
use clap::{Args, ValueHint};
use forecast::{Paged, forecast};
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use terapage_config::{Heap, Hosted, Io, Level, Machine, Settings, Size, StoreSpec, memory_bytes};
use terapage_sys::ring::IoEngine;

/// The arguments of `terapage doctor`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage doctor
  terapage doctor --store /mnt/nvme0
  terapage doctor -- java -XX:+UseZGC -jar server.jar
  terapage doctor --fix --dry-run
  sudo terapage doctor --fix
  terapage doctor --json | jq '.checks[] | select(.status != \"ok\")'

Exit status:
  0 if paging works here, and for PROGRAM if one is given; 1 if it does not.")]
pub struct Doctor {
    /// Check this store instead of the configured one
    #[arg(short, long, value_name = "[file:]PATH", value_hint = ValueHint::AnyPath)]
    store: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Make the advised changes, as root, and say before each how to undo it: give
    /// /dev/userfaultfd to a group (and add the user of sudo to the group), or, before Linux 6.1,
    /// allow userfaultfd; allow io_uring; allow huge pages. In a container, the host's settings are
    /// changed only if the person at the terminal agrees
    #[arg(long, conflicts_with = "json")]
    fix: bool,
    /// With --fix: change nothing, and say what would be done
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// A program and its arguments: say which of the program's memory will be paged, without
    /// running it
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// All is well.
    Ok,
    /// Paging works, with something less.
    Warning,
    /// Paging cannot work.
    Failure,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Failure => "failure",
        }
    }
}

/// One check and its result.
pub struct Check {
    name: &'static str,
    status: Status,
    /// The result, one line.
    found: String,
    /// What mends it: a line, and others that do so too.
    fix: Option<String>,
    /// For a check that is well: the commands that lead there, in lines.
    how: Option<String>,
    /// The speed of a store's disk.
    disk: Option<disk::Disk>,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: found.into(), fix: None, how: None, disk: None }
    }

    /// Something works, but not as well as it could.
    pub fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Warning,
            found: found.into(),
            fix: Some(fix.into()),
            how: None,
            disk: None,
        }
    }

    /// All is well; `how` has the commands that lead there, in lines.
    pub fn advice(name: &'static str, found: impl Into<String>, how: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: found.into(), fix: None, how: Some(how.into()), disk: None }
    }

    /// Paging cannot work.
    pub fn failure(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Failure,
            found: found.into(),
            fix: Some(fix.into()),
            how: None,
            disk: None,
        }
    }

    /// What was found.
    #[cfg(test)]
    pub fn found(&self) -> &str {
        &self.found
    }
}

impl Check {
    /// A failure whose message ends in the remedy, in parentheses; `fix` is the remedy if it does
    /// not.
    fn of(name: &'static str, message: &str, fix: &str) -> Check {
        let parts = message.strip_suffix(')').and_then(|text| text.split_at_checked(opening(text)?));
        match parts {
            Some((found, advice)) => Check::failure(name, found.trim_end(), &advice[1..]),
            None => Check::failure(name, message, fix),
        }
    }
}

/// The place of the parenthesis that is closed at the end of `text`.
fn opening(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, c) in text.char_indices().rev() {
        match c {
            ')' => open += 1,
            '(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

impl Doctor {
    /// Runs all checks and prints them.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.fix {
            fix::fix(self.dry_run)?;
        }
        let mut checks = faults();
        checks.extend(strange_variables().into_iter().map(|unknown| {
            let found = format!("no setting is called {}", unknown.name);
            let fix = unknown.nearest.map_or("unset it".to_owned(), |nearest| format!("write {nearest}"));
            Check::warning("variable", found, fix)
        }));
        let settings = Options::with_stores(self.store).settings();
        checks.push(io(settings.as_ref().map_or(Io::Auto, |settings| settings.io)));
        checks.extend([huge_pages(), open_files(), locked_memory()]);
        let paged = settings.as_ref().map_or(Paged { heap: Heap::All, hosted: Hosted::On }, |settings| {
            Paged { heap: settings.heap, hosted: settings.hosted }
        });
        match settings {
            Ok(settings) => {
                checks.push(memory(&settings));
                let paths = settings.stores.iter().flat_map(StoreSpec::paths);
                checks.extend(paths.map(|path| check_store(path, settings.memory.size)));
            }
            Err(error) => checks.push(Check::of("settings", &format!("{error:#}"), "correct the setting")),
        }
        // A container has no part in the name of a variable.
        let missing = checks.iter().any(|check| check.status != Status::Ok && check.name != "variable");
        checks.extend(container::checks(missing));
        checks.push(match library::find() {
            Ok(path) => Check::ok(library::KIND, path.display().to_string()),
            Err(error) => Check::of(library::KIND, &format!("{error:#}"), "install terapage again"),
        });
        checks.extend(forecast(&self.command, paged));
        let works = checks.iter().all(|check| check.status != Status::Failure);
        print(&if self.json { to_json(&checks, works) } else { to_text(&checks, works) })?;
        Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn to_json(checks: &[Check], works: bool) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| {
            let disk = check.disk.map(|disk| {
                json!({"operations_per_s": disk.operations_per_s.round(), "mb_per_s": disk.mb_per_s.round()})
            });
            json!({"name": check.name, "status": check.status.name(), "found": check.found, "fix": check.fix, "how": check.how, "disk": disk})
        })
        .collect();
    format!("{:#}\n", json!({"works": works, "checks": checks}))
}

fn to_text(checks: &[Check], works: bool) -> String {
    let mut text = String::new();
    for check in checks {
        let _ = writeln!(text, "{:<8} {:<15} {}", check.status.name(), check.name, check.found);
        // The first line is what to do; those after it are other ways.
        for (label, others, text_of) in [("fix:", "or:", &check.fix), ("how:", "how:", &check.how)] {
            for (at, line) in text_of.iter().flat_map(|lines| lines.lines()).enumerate() {
                let label = if at == 0 { label } else { others };
                let _ = writeln!(text, "{:<8} {:<15} {label:<4} {line}", "", "");
            }
        }
    }
    let verdict = match works {
        true if userfaultfd::guards() => format!("Paging works here ({}).", userfaultfd::GUARDED),
        true => "Paging can work here.".to_owned(),
        false => "Paging cannot work here yet.".to_owned(),
    };
    text + &verdict + "\n"
}

/// userfaultfd, and moving pages with it.
fn faults() -> Vec<Check> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match userfaultfd::features() {
        Ok(features) => {
            let moves = if features & userfaultfd::FEATURE_MOVE != 0 {
                Check::ok("move", format!("Linux {release} moves pages without copying"))
            } else {
                let found = format!(
                    "Linux {release} cannot move pages, so they are copied, which \
                                     is slower"
                );
                Check::warning("move", found, "use Linux 6.8 or later")
            };
            vec![
                Check::ok("userfaultfd", "page faults can be handled, including those inside the kernel"),
                moves,
            ]
        }
        Err(_) if userfaultfd::guards() => {
            vec![Check::ok("userfaultfd", userfaultfd::GUARDED)]
        }
        Err(refusal) => {
            let fix = match refusal {
                Refusal::Permission if !container::is_inside() || fix::has_device() => {
                    format!("{}\n{}", fix::command(), userfaultfd::OTHER_WAYS)
                }
                Refusal::Permission if !container::hosts().is_empty() => {
                    "start it as `place` below says".to_owned()
                }
                _ => refusal.fix().to_owned(),
            };
            vec![Check::failure("userfaultfd", refusal.what(), fix)]
        }
    }
}

/// How stores are read and written: as `wish` says.
fn io(wish: Io) -> Check {
    let by = |engine: IoEngine| format!("by {}, as the setting io says", engine.name());
    let asked_for = |engine| match ring::works(engine) {
        Ok(()) => Check::ok("io", by(engine)),
        Err(error) => Check::failure("io", format!("{}: {error}", engine.name()), "set io to auto"),
    };
    match (wish, ring::refusal()) {
        (Io::Aio, _) => asked_for(IoEngine::Aio),
        (Io::Threads, _) => asked_for(IoEngine::Threads),
        (_, None) => Check::ok("io_uring", "a ring can be made"),
        (Io::Auto, Some(refusal)) if refusal.is_avoided() => {
            let instead = IoEngine::of_this_process().name();
            let found = format!("{}; stores are read and written by {instead} instead", refusal.what);
            Check::warning("io_uring", found, refusal.fix)
        }
        (_, Some(refusal)) => Check::failure("io_uring", refusal.what, refusal.fix),
    }
}

fn huge_pages() -> Check {
    let name = "huge pages";
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Ok(text) = fs::read_to_string(file) else {
        return Check::warning(name, "this kernel has none: blocks of 2 MiB are slower", "use blocks of 64K");
    };
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown");
    match chosen {
        "never" => {
            let found = "transparent huge pages are off: blocks of 2 MiB are slower";
            Check::warning(name, found, format!("{}\necho madvise | sudo tee {file}", fix::command()))
        }
        _ => Check::ok(name, format!("transparent huge pages: {chosen}")),
    }
}

fn open_files() -> Check {
    /// For the program and the pager's few.
    const ENOUGH: u64 = 256;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < ENOUGH => {
            Check::warning("open files", format!("at most {limit}"), "ulimit -n 1024")
        }
        Some(limit) => Check::ok("open files", format!("at most {limit}")),
        None => Check::ok("open files", "unlimited"),
    }
}

fn locked_memory() -> Check {
    /// For the rings of some processes, where the kernel counts them.
    const ENOUGH: u64 = 1 << 20;
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < ENOUGH => {
            let found = format!(
                "at most {}; most kernels count rings of io_uring against this limit, and a process \
                 without a ring is slower",
                Size(limit)
            );
            Check::warning("locked memory", found, ring::MORE_LOCKED)
        }
        Some(limit) => Check::ok("locked memory", format!("at most {}", Size(limit))),
        None => Check::ok("locked memory", "unlimited"),
    }
}

fn memory(settings: &Settings) -> Check {
    let budget = settings.memory.size;
    if settings.memory.is_auto {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let levels = Machine::here(&read).levels(&read);
        let room = |level: &Level| level.available.saturating_sub(level.reserve());
        let Some(level) = levels.iter().min_by_key(|level| room(level)) else {
            return Check::warning(
                "memory",
                "the free memory is unknown",
                "give the budget in bytes, as in 4G",
            );
        };
        let (room, free, reserve) = (Size(room(level)), Size(level.available), Size(level.reserve()));
        let found = format!(
            "auto: a budget that follows the free memory, {room} now ({free} of {budget} are free, {reserve} stay so)"
        );
        return Check::ok("memory", found);
    }
    match memory_bytes().map(Size) {
        Some(all) if budget > all => {
            let found = format!("the budget of {budget} is more than the available memory, {all}");
            Check::failure("memory", found, "set memory to auto")
        }
        Some(all) => Check::ok("memory", format!("a budget of {budget} of {all}")),
        None => Check::ok("memory", format!("a budget of {budget}")),
    }
}

/// Whether `path` supports direct I/O, and has as much space as the budget.
fn check_store(path: &Path, budget: Size) -> Check {
    let name = "store";
    let shown = path.display();
    let other = "name a directory on a local disk with --store";
    match terapage_store::takes_direct_io(path) {
        Ok(true) => {}
        Ok(false) => {
            let found = format!("{shown} takes no direct I/O: blocks go through the page cache");
            return Check::warning(name, found, other);
        }
        Err(error) => return Check::of(name, &error.to_string(), other),
    }
    if !path.is_dir() && !path.is_file() {
        return Check::ok(name, format!("{shown} takes direct I/O"));
    }
    match statvfs(path).map(|found| Size(found.f_bavail.saturating_mul(found.f_frsize))) {
        Ok(free) if free < budget => {
            let found = format!("{shown} takes direct I/O; {free} free, less than the budget");
            Check::warning(name, found, "make room, or name another directory with --store")
        }
        Ok(free) => {
            let check = Check::ok(name, format!("{shown} takes direct I/O; {free} free"));
            match path.is_dir().then(|| disk::measure(path)).flatten() {
                Some(disk) => disk::check(check, disk),
                None => check,
            }
        }
        Err(error) => Check::failure(name, format!("{shown}: {error}"), other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_the_verdict() {
        let checks = [Check::ok("a", "fine"), Check::failure("b", "broken", "mend it")];
        let text = to_text(&checks, false);
        assert!(text.contains("fix: mend it") && text.contains("cannot work"), "{text}");
        let several = to_text(&[Check::failure("b", "broken", "first\nsecond")], false);
        let lines: Vec<_> = several.lines().map(str::trim).collect();
        assert_eq!(lines[1..3], ["fix: first", "or:  second"], "each stands on a line of its own");
        let value: serde_json::Value = serde_json::from_str(&to_json(&checks, false)).unwrap();
        assert_eq!(value["works"], false);
        assert_eq!(value["checks"][1]["status"], "failure");
        assert_eq!(value["checks"][1]["fix"], "mend it");
    }

    #[test]
    fn the_messages_own_advice_is_the_fix() {
        let check = Check::of("a", "b is wrong (write c (or d), as in e)", "mend it");
        assert_eq!((&*check.found, check.fix.as_deref()), ("b is wrong", Some("write c (or d), as in e")));
        for message in ["b is wrong", "b) is wrong)", "(b) is wrong"] {
            let check = Check::of("a", message, "mend it");
            assert_eq!((&*check.found, check.fix.as_deref()), (message, Some("mend it")));
        }
    }

    #[test]
    fn a_store_that_cannot_be_opened_fails() {
        let check = check_store(Path::new("/nonexistent/store"), Size(1));
        assert_eq!(check.status, Status::Failure);
    }
}
