//! Terapage, with a budget: `terapage run`, with a store on the disk or elsewhere.

use crate::contender::run::Run;
use crate::contender::{Answer, Contender, Limits, MIB, Outcome, Program, Room, contend, failed, limited};
use crate::experiment::Under;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End, Finished};
use crate::ground::site::Site;
use crate::ground::throttle::Throttle;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Bytes that Terapage may use beside the budget and a hundredth of it.
pub const BESIDE: u64 = 32 * MIB;

/// The small program of the probe: writes 32 MiB, and reads one word.
const SMALL: [&str; 11] =
    ["random", "--bytes", "33554432", "--reads", "1", "--seconds", "1", "--threads", "1", "--seed", "1"];

/// `terapage run`.
pub struct Terapage {
    /// Its name.
    pub name: &'static str,
}

impl Contender for Terapage {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Pages a small program, with more data than memory, because a program that fits is not paged.
    /// It writes its data once, so that it ends soon on a busy machine, too. If it does not end in
    /// time, it is slow, not impossible: the experiment's own runs show that.
    fn probe(&self, site: &Site, _limits: &Limits) -> Answer {
        if let Err(why) = terapage_program(&site.program()) {
            return Ok(Err(why));
        }
        let limits = Limits::of_probe(32 * MIB, 16 * MIB);
        let program = (site.program(), site.workload_arguments(&SMALL));
        let outcome =
            contend((site, site.throttle()), Under::Terapage, program, &limits, None, Finished::passes);
        answer(outcome)
    }

    fn set_up<'a>(&self, site: &'a Site, _: &Limits, throttle: Option<&Throttle>) -> io::Result<Room<'a>> {
        let cgroup = limited(site, u64::MAX, throttle)?;
        Ok(Room { stats: Some(stats(site)?), cgroup, ..Room::default() })
    }

    fn wrap(
        &self,
        site: &Site,
        limits: &Limits,
        room: &Room<'_>,
        program: Program,
    ) -> Result<Program, String> {
        wrapped(site, limits, room, (limits.memory, &[]), program)
    }

    fn ended(&self, limits: &Limits, room: &Room<'_>, run: Run) -> Run {
        let stats = room.stats.as_ref().and_then(|stats| counters_of_most(stats.path()));
        if run.end == End::Done && !limits.may_fit && !stats.as_ref().is_some_and(was_paged) {
            // The figures would be those of memory.
            let why = "its counters say that it was not paged (its data must be more than half of \
                       --memory)";
            return failed(self.name, why.into());
        }
        let limit = Some(resident_limit(limits.memory));
        Run { resident_limit_bytes: limit, stats, notes: Vec::new(), raw: Vec::new(), ..run }
    }
}

/// Whether Terapage can take part, from the run of a small program.
pub fn answer(outcome: Result<Outcome, runner::Error>) -> Answer {
    Ok(match outcome?.run {
        run if run.end == End::Done && !run.passes.is_empty() => Ok(()),
        run if run.end == End::Done => Err("terapage run does not run a program".into()),
        run if run.end == End::TimedOut => Ok(()),
        run => Err(format!("terapage {}", run.end.text())),
    })
}

/// The place of the counters.
pub fn stats(site: &Site) -> io::Result<OwnedFile<'_>> {
    OwnedFile::new(&site.janitor, site.path("stats.json"))
}

/// `terapage run` with a budget and further options of the contender.
pub fn wrapped(
    site: &Site,
    limits: &Limits,
    room: &Room<'_>,
    (budget, own): (u64, &[&str]),
    (program, arguments): Program,
) -> Result<Program, String> {
    let terapage = terapage_program(&site.program())?;
    let mut all: Vec<OsString> =
        vec!["run".into(), "--require".into(), "--memory".into(), budget.to_string().into()];
    all.extend(own.iter().map(OsString::from));
    match limits.options.iter().any(|option| option == "--store") {
        true => {}
        false if limits.places.is_empty() => {
            all.extend(["--store".into(), site.directory.clone().into()]);
        }
        false => {
            all.extend(limits.places.iter().flat_map(|place| ["--store".into(), place.clone().into()]));
        }
    }
    // The figures must be Terapage's, not those of a user's configuration file. The report names
    // variables that are set.
    all.extend(["--config".into(), "/dev/null".into()]);
    if let Some(block) = limits.block {
        all.extend(["--block".into(), block.to_string().into()]);
    }
    all.extend(limits.options.iter().cloned());
    all.extend(room.stats.iter().flat_map(|stats| ["--stats".into(), stats.path().into()]));
    all.extend(["--".into(), program.into()]);
    all.extend(arguments);
    Ok((terapage, all))
}

/// The pager's promise: the budget plus 1 % and 32 MiB.
pub fn resident_limit(budget: u64) -> u64 {
    budget + budget / 100 + BESIDE
}

/// The counters of the paged process that had the most memory: a wrapper that waits for its program
/// writes counters too. The files of further processes, which end in the process's number, are
/// removed.
pub fn counters_of_most(path: &Path) -> Option<serde_json::Value> {
    let prefix = format!("{}.", path.file_name()?.to_str()?);
    let others = fs::read_dir(path.parent()?).ok()?.flatten().map(|entry| entry.path());
    let is_other = |other: &PathBuf| {
        let number = other.file_name().and_then(|name| name.to_str()?.strip_prefix(&prefix));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let others: Vec<PathBuf> = others.filter(is_other).collect();
    let read = |path: &Path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok();
    let all: Vec<serde_json::Value> =
        std::iter::once(path).chain(others.iter().map(PathBuf::as_path)).filter_map(read).collect();
    for other in &others {
        // Nothing else removes this file.
        let _ = fs::remove_file(other);
    }
    let most = |counters: &serde_json::Value| {
        (was_paged(counters), counters["resident_peak_bytes"].as_u64().unwrap_or(0))
    };
    all.into_iter().max_by_key(most)
}

/// Whether these are the counters of a paged program: a program that never grew large enough leaves
/// counters too, but without a start.
fn was_paged(counters: &serde_json::Value) -> bool {
    counters["started_s"].as_u64().is_some_and(|started| started > 0)
}

/// `$TERAPAGE_BIN`, or this program if it is terapage.
///
/// # Errors
/// There is none.
pub fn terapage_program(own: &Path) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("TERAPAGE_BIN") {
        return Ok(path.into());
    }
    match own.file_name().is_some_and(|name| name == "terapage") {
        true => Ok(own.to_owned()),
        false => Err("no terapage program was found (TERAPAGE_BIN names one)".into()),
    }
}

/// Settings of Terapage in the environment, without those that are the lab's flags, or not for a
/// run.
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

#[cfg(test)]
mod tests {
    use super::counters_of_most;
    use std::fs;

    #[test]
    fn the_counters_are_those_of_the_process_that_was_paged() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("stats.json");
        let write = |name: &str, text: &str| fs::write(place.path().join(name), text).expect("a file");
        assert!(counters_of_most(&path).is_none());
        write("stats.json", r#"{"started_s": 0, "resident_peak_bytes": 9}"#);
        write("stats.json.71", r#"{"started_s": 5, "resident_peak_bytes": 3}"#);
        write("stats.json.72", r#"{"started_s": 5, "resident_peak_bytes": 7}"#);
        write("stats.json.old", "no counters");
        let found = counters_of_most(&path).expect("counters");
        assert_eq!(found["resident_peak_bytes"], 7);
        let mut left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["stats.json", "stats.json.old"]);
    }
}
