//! What the lab has set up, as a record on disk, so that it can be undone when neither lab nor
//! janitor is left: after kill -9 of both, or a loss of power. Each lab has a separate record,
//! which is removed last.
//!
//! A record is a text: `boot ID`, `lab PID START`, then the lines that the janitor gets. Entries by
//! number (process groups) or by place (settings) are valid only within the same boot, and a group
//! only while its leader is the recorded process.

use crate::ground::janitor::{Thing, left};
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, process};

/// Names the directory of records and of the lock; for tests.
pub const VARIABLE: &str = "TERAPAGE_LAB_STATE";

/// The record of a lab that runs, and the lock that says so.
pub struct Record {
    path: PathBuf,
    file: Mutex<File>,
    /// The lock lasts while this file is open.
    _lock: File,
}

impl Record {
    /// Undoes what dead labs have left, and begins a record of this lab. `say` gets one line for
    /// each thing that could not be undone.
    ///
    /// # Errors
    /// Another lab runs, or no record can be written; one line.
    pub fn begin(say: impl FnMut(&str)) -> anyhow::Result<Record> {
        let directory = directory()?;
        let lock = lock(&directory)?;
        undo_all(&directory, say)?;
        let path = directory.join(format!("lab-{}.record", process::id()));
        let mut file = File::create(&path).with_context(|| path.display().to_string())?;
        let own = start_ticks(process::id() as i32).unwrap_or(0);
        write!(file, "boot {}\nlab {} {own}\n", boot(), process::id())?;
        file.sync_all().with_context(|| path.display().to_string())?;
        // The name too outlives the power.
        File::open(&directory)?.sync_all()?;
        Ok(Record { path, file: Mutex::new(file), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a thing is about to be made (`+`) or gone (`-`).
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn note(&self, sign: char, thing: &Thing) -> io::Result<()> {
        let mut line = format!("{sign}{}", thing.line());
        if let Thing::Group(id) = thing {
            line += &format!("\n@{id} {}", start_ticks(*id).unwrap_or(0));
        }
        let mut file = self.file.lock().map_err(|_| io::Error::other("the record is lost"))?;
        file.write_all((line + "\n").as_bytes())?;
        match thing.is_on_disk() {
            true => file.sync_data(),
            false => Ok(()),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // The janitor has already done this, unless it was killed.
        if let Ok(text) = fs::read_to_string(&self.path) {
            end(&self.path, left(text.as_bytes()).is_empty());
        }
    }
}

/// The janitor's last act: the record is removed if everything is gone.
pub fn end(path: &Path, all_gone: bool) {
    if all_gone {
        // No process remains to read an error; an empty record is harmless.
        let _ = fs::remove_file(path);
    }
}

/// Undoes what dead labs have left, by their records. Returns what was undone and what could not be
/// undone, a line each.
///
/// # Errors
/// A lab is running.
pub fn clean() -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let directory = directory()?;
    let _lock = lock(&directory)?;
    let mut failed = Vec::new();
    let undone = undo_all(&directory, |line| failed.push(line.to_owned()))?;
    Ok((undone, failed))
}

fn undo_all(directory: &Path, mut say: impl FnMut(&str)) -> anyhow::Result<Vec<String>> {
    let mut undone = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "record") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut all_gone = true;
        for thing in of_dead_lab(&text) {
            match thing.take_down() {
                Ok(()) => undone.push(thing.line()),
                Err(error) => {
                    all_gone = false;
                    say(&format!("left by an earlier run: {}: {error}", thing.line()));
                }
            }
        }
        end(&path, all_gone);
    }
    Ok(undone)
}

/// What remains according to a record, without entries that can no longer be distinguished from
/// others' things.
fn of_dead_lab(text: &str) -> Vec<Thing> {
    let same_boot = text.lines().next() == Some(&format!("boot {}", boot()));
    let is_noted = |id: i32| {
        let noted = text.lines().rev().find_map(|line| {
            let (noted, ticks) = line.strip_prefix('@')?.split_once(' ')?;
            (noted.parse() == Ok(id)).then(|| ticks.parse::<u64>().ok())?
        });
        noted.is_some_and(|ticks| ticks > 0 && start_ticks(id) == Some(ticks))
    };
    let mut things = left(text.as_bytes());
    things.retain(|thing| match thing {
        Thing::Group(id) => same_boot && is_noted(*id),
        Thing::File(_) | Thing::Directory(_) => true,
        // None of these survives a boot: a thing with the same name now belongs to somebody else.
        Thing::Swap(_)
        | Thing::Zram(_)
        | Thing::Cgroup(_)
        | Thing::Mount(_)
        | Thing::Btrfs(_)
        | Thing::Md(_)
        | Thing::Throttle(..)
        | Thing::Loop(..)
        | Thing::Namespace(_)
        | Thing::Setting(..) => same_boot,
    });
    things
}

/// The time when a process began, in clock ticks since the boot.
fn start_ticks(id: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// The directory of records, which is made if it is missing: one for the machine if the lab may
/// write there, otherwise the user's.
pub fn directory() -> anyhow::Result<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state/terapage-lab"));
    let of_user = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
    let of_user = of_user.map(|path: OsString| PathBuf::from(path).join("terapage-lab")).or_else(home);
    // SAFETY: geteuid takes nothing and cannot fail.
    let last = PathBuf::from(format!("/var/tmp/.terapage-lab-{}", unsafe { libc::geteuid() }));
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let places = match named {
        Some(named) => vec![named],
        None => [Some("/var/lib/terapage-lab".into()), of_user, Some(last)].into_iter().flatten().collect(),
    };
    let mut why = String::new();
    for place in places {
        match make(&place) {
            Ok(()) => return Ok(place),
            Err(error) => why = format!("{}: {error}", place.display()),
        }
    }
    bail!("no directory for the record of what is set up: {why} (name one with {VARIABLE})")
}

/// Makes the directory, only for this user, or checks that it is so.
fn make(place: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place)?;
    // Everything that a record names is removed, so no other user may write there.
    let found = fs::metadata(place)?;
    // SAFETY: geteuid takes nothing and cannot fail.
    if found.uid() != unsafe { libc::geteuid() } || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others may write there"));
    }
    Ok(())
}

/// Takes the lock, which only one lab at a time can have.
fn lock(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join("lock");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    // SAFETY: the descriptor is open for the call; no memory is passed.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error).with_context(|| path.display().to_string());
        }
        let holder = fs::read_to_string(&path).unwrap_or_default();
        bail!(
            "another lab runs ({}), and the two would disturb each other; wait for its end",
            holder.lines().next().unwrap_or("unknown")
        );
    }
    file.set_len(0)?;
    writeln!(file, "process {}", process::id())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::{boot, of_dead_lab, start_ticks};
    use crate::ground::janitor::Thing;
    use std::process;

    #[test]
    fn after_a_boot_only_files_are_left() {
        let lines = "lab 5 6\n+file /a\n+swap /a\n+cgroup /c\n+setting none /s\n+group 77\n@77 5\n+file /gone\n-file /gone\n";
        let earlier = of_dead_lab(&format!("boot earlier\n{lines}"));
        assert_eq!(earlier, [Thing::File("/a".into())]);
        let same = of_dead_lab(&format!("boot {}\n{lines}", boot()));
        assert_eq!(same.len(), 4, "{same:?}");
        // Group 77 may belong to somebody else by now, or not exist.
        assert!(!same.contains(&Thing::Group(77)));
    }

    #[test]
    fn a_group_is_known_by_the_start_of_its_leader() {
        let own = process::id() as i32;
        let ticks = start_ticks(own).expect("we run");
        let record = |ticks: u64| format!("boot {}\nlab 5 6\n+group {own}\n@{own} {ticks}\n", boot());
        assert_eq!(of_dead_lab(&record(ticks)), [Thing::Group(own)]);
        assert_eq!(of_dead_lab(&record(ticks + 1)), []);
    }
}
