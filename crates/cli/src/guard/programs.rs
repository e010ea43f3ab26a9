//! The running programs that a list of names allows.

use super::choice::{Candidate, matches};
use crate::adopt::used_bytes;
use crate::watch::process;
use std::fs;

/// A program that the list allows.
pub struct Program {
    pub candidate: Candidate,
    pub name: String,
    /// The text of `/proc/PID/cgroup`: programs for which it is the same share limits of memory.
    pub place: String,
    /// How long it has run, s.
    age_s: f64,
}

/// A program counts as at least this old.
const BRIEF_S: f64 = 0.05;
/// The kernel's ticks in a second, for programs.
const TICKS: f64 = 100.0;

impl Program {
    /// Bytes of memory that it has taken in a second until now, as a mean.
    pub fn taken_per_s(&self) -> f64 {
        self.candidate.bytes as f64 / self.age_s
    }
}

/// All processes of the machine that are visible here.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Those of the processes that the list allows, and that this user may look at. Never this one, nor
/// the first process.
pub fn allowed(processes: &[u32], allow: &[String]) -> Vec<Program> {
    let others = processes.iter().filter(|&&pid| pid > 1 && pid != std::process::id());
    others.filter_map(|&pid| program(pid, allow)).collect()
}

/// A program, if it is allowed by its name, which it may choose, or by that of its file.
fn program(pid: u32, allow: &[String]) -> Option<Program> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let file = file.file_name()?.to_string_lossy().into_owned();
    let name = read("comm")?;
    let names = [name.trim_end(), file.trim_end_matches(" (deleted)")];
    if !allow.iter().any(|pattern| names.iter().any(|name| matches(pattern, name))) {
        return None;
    }
    let began = process::began(pid)?;
    let candidate =
        Candidate { who: (pid, began), bytes: used_bytes(pid), is_paged: is_paged(pid)?, is_short: false };
    let name = names[0].chars().filter(|c| !c.is_control()).collect();
    let now_s = fs::read_to_string("/proc/uptime").ok()?.split(' ').next()?.parse::<f64>().ok()?;
    // A program that has just begun has taken little, in a time that is not known well.
    let age_s = (now_s - began as f64 / TICKS).max(BRIEF_S);
    Some(Program { candidate, name, place: read("cgroup")?, age_s })
}

/// Whether a process has a pager, or the table of a run. A released program has its counters still.
fn is_paged(pid: u32) -> Option<bool> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
    Some(links.any(|link| link.to_string_lossy().starts_with("/memfd:terapage")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_file_and_by_its_name_but_not_this_one() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pids = [child.id(), std::process::id(), 1];
        // Until the exec, the child has this program's name.
        let found = (0..6000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            allowed(&pids, &["nothing".to_owned(), "sle?p".to_owned()]).pop()
        });
        let every = allowed(&pids, &["*".to_owned()]);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.expect("sleep");
        assert_eq!(
            (found.candidate.who.0, &*found.name, found.candidate.is_paged),
            (pids[0], "sleep", false)
        );
        assert_eq!(every.len(), 1);
        assert!(allowed(&all(), &["no such name".to_owned()]).is_empty());
    }
}
