//! `terapage run --enforce`: a memory cgroup around the program and all that it starts, so that
//! they cannot exhaust the machine.
//!
//! The program replaces this process, so another process removes the cgroup: a *cleaner*, started
//! before, in a separate session and outside of the cgroup. The cleaner sees the program end (a
//! pidfd), says so if the kernel has killed processes because memory ran out, waits until the
//! cgroup is empty, and removes it. Each cgroup is noted in a file that its cleaner has locked. If
//! the cleaner itself is killed, the next run finds the file unlocked, and removes the cgroup once
//! it is empty.

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terapage_config::{Level, Size};
use terapage_sys::cgroup::{self, Version};

/// The default excess of a job over the budget: a hundredth, and this for the process and for
/// memory that the kernel keeps for it (page tables, sockets).
const ALLOWANCE: u64 = 64 << 20;

/// The beginning of the names of these cgroups.
const PREFIX: &str = "terapage-run-";

/// The limit of a job with this budget.
pub fn limit_of(budget: Size) -> Size {
    Size(budget.0.saturating_add(budget.0 / 100).saturating_add(ALLOWANCE))
}

/// The limit of a job whose budget follows the free memory of a machine that has this much: the
/// reserve remains for others.
pub fn limit_of_auto(all: Size) -> Size {
    Size(all.0 - Level { limit: all.0, available: 0, stalled_us: 0 }.reserve())
}

/// A cgroup with a limit, still without processes.
pub struct Cage {
    path: PathBuf,
    version: Version,
    limit: Size,
    /// Version 2: where the cleaner waits, if the job's cgroup lies beside the cleaner's in a
    /// delegated cgroup.
    aside: Option<PathBuf>,
    /// The note of the cgroup, if there is a place for notes.
    note: Option<Note>,
}

/// A file that names what must be removed, locked by the process that will remove it.
struct Note {
    path: PathBuf,
    file: File,
}

impl Cage {
    /// Makes a cgroup that may use `limit` bytes, and no swap.
    ///
    /// # Errors
    /// This user cannot make one here; the text says what helps.
    pub fn make(limit: Size) -> anyhow::Result<Cage> {
        let notes = place_of_notes();
        notes.iter().for_each(|notes| sweep(notes));
        let name = format!("{PREFIX}{}-{}", std::process::id(), now_ns());
        let made = match cgroup::parent() {
            Ok((version, parent)) => Cage::within(version, &parent, &name, limit, notes.as_deref())
                .or_else(|error| Cage::beside_us(&name, limit, notes.as_deref()).map_err(|_| error)),
            Err(error) => Cage::beside_us(&name, limit, notes.as_deref())
                .map_err(|other| if is_version_2() { other } else { error }),
        };
        made.map_err(|error| {
            anyhow::anyhow!(
                "--enforce: no memory cgroup can be made: {error} (try as root, or in a separate \
                 scope: systemd-run --user --scope -p Delegate=yes terapage run --enforce ...)"
            )
        })
    }

    fn within(
        version: Version,
        parent: &Path,
        name: &str,
        limit: Size,
        notes: Option<&Path>,
    ) -> io::Result<Cage> {
        let path = parent.join(name);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let note = notes.and_then(|notes| Note::write(&notes.join(name), &[&path]));
        let cage = Cage { path: path.clone(), version, limit, aside: None, note };
        if let Err(error) = fs::create_dir(&path).and_then(|()| cage.set_limits()) {
            cage.remove();
            return Err(named(error));
        }
        Ok(cage)
    }

    fn set_limits(&self) -> io::Result<()> {
        let limit = self.limit.0.to_string();
        let set = |file: &str, text: &str| fs::write(self.path.join(file), text);
        match self.version {
            Version::One => {
                set("memory.limit_in_bytes", &limit)?;
                // The limit of memory and swap together; a kernel may not count swap.
                if set("memory.memsw.limit_in_bytes", &limit).is_err() {
                    set("memory.swappiness", "0").ok();
                }
            }
            Version::Two => {
                set("memory.max", &limit)?;
                set("memory.swap.max", "0").ok();
            }
        }
        // Whether the program could enter is asked now, while it can be refused in one line.
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.procs")).map(drop)
    }

    /// Version 2, if this process's own cgroup is delegated and has no other member. One cgroup
    /// cannot have both processes and children with limits, so this process moves into one child,
    /// and the job gets another.
    fn beside_us(name: &str, limit: Size, notes: Option<&Path>) -> io::Result<Cage> {
        let (version, own, _) = cgroup::own()?;
        if version != Version::Two {
            return Err(io::Error::other("no cgroup is delegated"));
        }
        let aside = own.join(format!("{name}-aside"));
        fs::create_dir(&aside)?;
        let moved = fs::write(aside.join("cgroup.procs"), "0")
            .and_then(|()| fs::write(own.join("cgroup.subtree_control"), "+memory"))
            .and_then(|()| Cage::within(version, &own, name, limit, notes));
        match moved {
            Ok(mut cage) => {
                if let Some(note) = &cage.note {
                    note.set(&[&cage.path, &aside]);
                }
                cage.aside = Some(aside);
                Ok(cage)
            }
            Err(error) => {
                leave(&aside);
                Err(error)
            }
        }
    }

    /// Moves this process, which will become the program, into the cgroup, and starts a cleaner.
    ///
    /// # Errors
    /// The process cannot enter; the cgroup has been removed.
    pub fn enter(self) -> anyhow::Result<()> {
        let program = own_pidfd().inspect_err(|_| self.remove()).context("--enforce: pidfd_open")?;
        let procs = self.path.join("cgroup.procs");
        // SAFETY: this process has no other active thread, so the child may do all that a process
        // may.
        match unsafe { libc::fork() } {
            -1 => {
                let error = io::Error::last_os_error();
                self.remove();
                bail!("--enforce: fork: {error}");
            }
            0 => {
                // The program must not find a child that it did not start. SAFETY: as above.
                if unsafe { libc::fork() } == 0 {
                    self.clean(&program);
                }
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the status is ours to write to.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
            }
        }
        fs::write(&procs, "0").with_context(|| format!("--enforce: {}", procs.display()))
    }

    /// The cleaner's life.
    fn clean(self, program: &OwnedFd) -> ! {
        // SAFETY: these take numbers only, and a path that ends in a zero byte.
        unsafe {
            libc::setsid();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
                libc::signal(signal, libc::SIG_IGN);
            }
            libc::prctl(libc::PR_SET_NAME, c"terapage-clean".as_ptr());
            libc::chdir(c"/".as_ptr());
        }
        let note = self.note.as_ref().map(|note| note.file.as_raw_fd());
        close_all_but(&[Some(2), Some(program.as_raw_fd()), note]);
        let mut poll = libc::pollfd { fd: program.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor is polled.
        while unsafe { libc::poll(&raw mut poll, 1, -1) } != 1 {}
        if let Some(line) = self.killed() {
            crate::complain(&line);
        }
        // A reader of the program's errors must see their end.
        close_all_but(&[Some(program.as_raw_fd()), note]);
        let mut pause = Duration::from_millis(5);
        while !self.is_empty() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
        self.remove();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }

    /// The message if the kernel has killed processes because memory ran out.
    fn killed(&self) -> Option<String> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim();
        (kills != "0").then(|| {
            format!(
                "--enforce: the run needed more than {}, and the kernel killed {kills} of its processes (raise --memory, or give the run more: \
                 --enforce=SIZE)",
                self.limit
            )
        })
    }

    fn is_empty(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.procs")).map_or(true, |procs| procs.trim().is_empty())
    }

    /// Removes the cgroup, which is empty, and its note.
    fn remove(&self) {
        let gone = remove_empty(&self.path);
        self.aside.iter().for_each(|aside| leave(aside));
        if let Some(note) = self.note.as_ref().filter(|_| gone) {
            fs::remove_file(&note.path).ok();
        }
    }
}

/// Removes a cgroup, or finds it gone; tries for a while, since the last process may still count.
fn remove_empty(path: &Path) -> bool {
    for _ in 0..100 {
        match fs::remove_dir(path) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return false,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    false
}

/// Moves the calling process out of the cgroup in which the cleaner waits, and removes that.
fn leave(aside: &Path) {
    let Some(own) = aside.parent() else { return };
    fs::write(own.join("cgroup.subtree_control"), "-memory").ok();
    fs::write(own.join("cgroup.procs"), "0").ok();
    fs::remove_dir(aside).ok();
}

impl Note {
    fn write(path: &Path, cgroups: &[&Path]) -> Option<Note> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let note = Note { path: path.to_owned(), file };
        note.set(cgroups);
        Some(note)
    }

    fn set(&self, cgroups: &[&Path]) {
        let text: String = cgroups.iter().map(|path| format!("{}\n", path.display())).collect();
        self.file.set_len(0).ok();
        io::Seek::rewind(&mut &self.file).ok();
        (&self.file).write_all(text.as_bytes()).ok();
    }
}

/// The directory for notes: root's, or this user's.
fn place_of_notes() -> Option<PathBuf> {
    let place = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run/terapage")
    } else {
        PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?).join("terapage")
    };
    match fs::DirBuilder::new().mode(0o700).create(&place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => None,
        _ => Some(place),
    }
}

/// Removes cgroups whose cleaners were killed, if they are empty.
fn sweep(notes: &Path) {
    for note in fs::read_dir(notes).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(file) = File::open(&note) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let text = fs::read_to_string(&note).unwrap_or_default();
        let gone = text.lines().map(Path::new).all(|path| {
            let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
            ours && (fs::remove_dir(path).is_ok() || !path.exists())
        });
        if gone {
            fs::remove_file(&note).ok();
        }
    }
}

fn is_version_2() -> bool {
    cgroup::own().is_ok_and(|(version, ..)| version == Version::Two)
}

/// A descriptor that is readable when this process, which will be the program by then, ends.
fn own_pidfd() -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid() as i64, 0i64) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now. (It is closed on exec.)
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Closes all descriptors but these.
fn close_all_but(kept: &[Option<i32>]) {
    let mut kept: Vec<u32> = kept.iter().flatten().map(|&fd| fd as u32).collect();
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if from < fd {
            let last = if fd == u32::MAX { fd } else { fd - 1 };
            // SAFETY: this process no longer uses any of these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, from, last, 0u32) };
        }
        from = fd.saturating_add(1);
    }
}

fn now_ns() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_budget_and_what_was_promised() {
        assert_eq!(limit_of(Size(100 << 30)), Size((101 << 30) + ALLOWANCE));
        assert_eq!(limit_of(Size(u64::MAX)), Size(u64::MAX));
    }

    #[test]
    fn a_sweep_takes_what_nobody_holds_and_is_noted() {
        let place = tempfile::tempdir().unwrap();
        let notes = place.path().join("notes");
        fs::create_dir(&notes).unwrap();
        let group = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (dead, busy, held, foreign) =
            (group("terapage-run-1-1"), group("terapage-run-2-2"), group("terapage-run-3-3"), group("other"));
        fs::write(busy.join("member"), "").unwrap();
        for (name, path) in [("1", &dead), ("2", &busy), ("4", &foreign)] {
            drop(Note::write(&notes.join(name), &[path]).unwrap());
        }
        let holder = Note::write(&notes.join("3"), &[&held]).unwrap();
        // A child of a test beside this one holds the notes, too, until it executes.
        let sweep_until_gone = |path: &Path| {
            let until = std::time::Instant::now() + Duration::from_secs(60);
            while path.exists() && std::time::Instant::now() < until {
                sweep(&notes);
            }
        };
        sweep_until_gone(&dead);
        assert!(!dead.exists() && busy.exists() && held.exists() && foreign.exists());
        let left: Vec<_> =
            ["1", "2", "3", "4"].into_iter().filter(|name| notes.join(name).exists()).collect();
        assert_eq!(left, ["2", "3", "4"]);
        drop(holder);
        sweep_until_gone(&held);
        assert!(!held.exists());
    }
}
