//! What the lab sets up, and who takes it down when the lab cannot.
//!
//! Whatever outlives a process (a swap file, a cgroup, a file, a process group) is told to the
//! janitor before it is made (a file just after) and ticked off after it is gone. The janitor is a
//! process of its own, in its own process group, that reads these lines from a pipe. When the pipe
//! closes, because the lab ended in whatever way, it takes down what was not ticked off.

use crate::{cgroup, swap};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::{fs, io};

/// One thing that outlives the lab unless someone takes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A process group.
    Group(i32),
    /// A memory cgroup.
    Cgroup(PathBuf),
    /// A swap file; as a file it is told separately.
    Swap(PathBuf),
    /// A file.
    File(PathBuf),
}

impl Thing {
    fn line(&self) -> String {
        match self {
            Thing::Group(id) => format!("group {id}"),
            Thing::Cgroup(path) => format!("cgroup {}", path.display()),
            Thing::Swap(path) => format!("swap {}", path.display()),
            Thing::File(path) => format!("file {}", path.display()),
        }
    }

    fn parse(line: &str) -> Option<Thing> {
        let (kind, value) = line.split_once(' ')?;
        match kind {
            "group" => value.parse().ok().filter(|id| *id > 1).map(Thing::Group),
            "cgroup" => Some(Thing::Cgroup(value.into())),
            "swap" => Some(Thing::Swap(value.into())),
            "file" => Some(Thing::File(value.into())),
            _ => None,
        }
    }

    /// Processes go first, files last.
    fn rank(&self) -> u8 {
        match self {
            Thing::Group(_) => 0,
            Thing::Cgroup(_) => 1,
            Thing::Swap(_) => 2,
            Thing::File(_) => 3,
        }
    }

    fn take_down(&self) {
        // Nobody is left to hear of an error.
        match self {
            Thing::Group(id) => kill_group(*id),
            Thing::Cgroup(path) => drop(cgroup::remove(path)),
            Thing::Swap(path) => drop(swap::off(path)),
            Thing::File(path) => drop(fs::remove_file(path)),
        }
    }
}

/// Kills a process group.
pub fn kill_group(id: i32) {
    // SAFETY: kill takes two integers and touches no memory of ours.
    unsafe { libc::kill(-id, libc::SIGKILL) };
}

/// The lab's end of the pipe. Dropping it ends the janitor.
pub struct Janitor {
    process: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Janitor {
    /// Starts the janitor: `program` with `arguments`, which must lead to [`serve`].
    pub fn start(program: &Path, arguments: &[String]) -> io::Result<Janitor> {
        let mut command = Command::new(program);
        // A group of its own: what a terminal sends to the lab does not reach it.
        command.process_group(0);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pipe = Mutex::new(process.stdin.take());
        Ok(Janitor { process, pipe })
    }

    fn say(&self, sign: char, thing: &Thing) -> io::Result<()> {
        let line = thing.line();
        if line.contains('\n') {
            return Err(io::Error::other("a path with a line break cannot be used"));
        }
        let mut pipe = self.pipe.lock().map_err(|_| io::Error::other("the janitor's pipe is lost"))?;
        let pipe = pipe.as_mut().ok_or_else(|| io::Error::other("the janitor has no pipe"))?;
        pipe.write_all(format!("{sign}{line}\n").as_bytes())
    }

    /// Tells of a thing that is about to be made.
    pub fn tell(&self, thing: &Thing) -> io::Result<()> {
        self.say('+', thing)
    }

    /// Ticks off a thing that is gone.
    pub fn gone(&self, thing: &Thing) {
        // Without a janitor there is nothing to tick off.
        let _ = self.say('-', thing);
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if let Ok(mut pipe) = self.pipe.lock() {
            pipe.take();
        }
        let _ = self.process.wait();
    }
}

/// A file with a name, removed when dropped.
pub struct OwnedFile<'a> {
    path: PathBuf,
    janitor: &'a Janitor,
}

impl<'a> OwnedFile<'a> {
    /// Will remove `path`, which need not exist yet.
    pub fn new(janitor: &'a Janitor, path: PathBuf) -> io::Result<OwnedFile<'a>> {
        janitor.tell(&Thing::File(path.clone()))?;
        Ok(OwnedFile { path, janitor })
    }

    /// Makes the file, which must not exist yet: it may be another's, and stays then.
    /// `mode`: its rights, less the umask.
    pub fn create(janitor: &'a Janitor, path: PathBuf, mode: u32) -> io::Result<(OwnedFile<'a>, fs::File)> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path)?;
        // Told after it was made: what ends the lab in between leaves an empty file.
        let owned = OwnedFile::new(janitor, path.clone()).inspect_err(|_| {
            fs::remove_file(&path).ok();
        })?;
        Ok((owned, file))
    }

    /// Makes the file with `bytes` bytes of disk, so that a full disk is an error now.
    pub fn allocate(janitor: &'a Janitor, path: PathBuf, bytes: u64) -> io::Result<OwnedFile<'a>> {
        use std::os::fd::AsRawFd;
        let (owned, file) = OwnedFile::create(janitor, path, 0o600)?;
        let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open for the whole call; no memory is passed.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => Ok(owned),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnedFile<'_> {
    fn drop(&mut self) {
        let removed = fs::remove_file(&self.path);
        if removed.is_ok() || !self.path.exists() {
            self.janitor.gone(&Thing::File(self.path.clone()));
        }
    }
}

/// The janitor itself: reads lines until the pipe closes, then takes down what is left.
pub fn serve() {
    // SAFETY: signal takes constants only. The janitor has one thread, and ignores what a terminal
    // or a supervisor sends to everybody.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    for thing in left(io::stdin().lock()) {
        thing.take_down();
    }
}

/// What was told and not ticked off, in the order in which it must be taken down.
fn left(lines: impl BufRead) -> Vec<Thing> {
    let mut things: Vec<Thing> = Vec::new();
    for line in lines.lines().map_while(Result::ok) {
        let Some((sign, thing)) = line.split_at_checked(1) else { continue };
        let Some(thing) = Thing::parse(thing) else { continue };
        match sign {
            "+" => things.push(thing),
            _ => things.retain(|known| *known != thing),
        }
    }
    things.sort_by_key(Thing::rank);
    things
}

#[cfg(test)]
mod tests {
    use super::{Thing, left};

    #[test]
    fn what_was_not_ticked_off_is_taken_down_processes_first() {
        let lines =
            "+file /a b\n+swap /a b\n+group 77\n+cgroup /c\n+file /gone\n-file /gone\nnonsense\n\n+file /z";
        let things = left(lines.as_bytes());
        assert_eq!(
            things,
            [
                Thing::Group(77),
                Thing::Cgroup("/c".into()),
                Thing::Swap("/a b".into()),
                Thing::File("/a b".into()),
                Thing::File("/z".into()),
            ]
        );
    }

    #[test]
    fn no_line_leads_to_a_kill_of_everything() {
        assert!(left("+group 1\n+group 0\n+group -5\n+group x\n".as_bytes()).is_empty());
    }
}
