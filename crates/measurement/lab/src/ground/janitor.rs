//! What the lab sets up, and who removes it if the lab cannot.
//!
//! The lab reports to the janitor everything that outlives a process (a swap file, a cgroup, a
//! file, a process group) before it is created (a file just after), and again after it is gone. The
//! janitor is a separate process, in its own process group, that reads these lines from a pipe.
//! When the pipe closes, because the lab has ended in any way, the janitor removes what is left.
//! The same lines are in a record on disk ([`crate::ground::record`]), in case the janitor ends
//! too.

use crate::ground::mount;
use crate::ground::network;
use crate::ground::record::{self, Record};
use crate::ground::swap;
use crate::ground::throttle;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::{fs, io};
use terapage_rig::md;

/// Something that outlives the lab unless it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A process group.
    Group(i32),
    /// A memory cgroup.
    Cgroup(PathBuf),
    /// A swap file; the file itself is reported separately.
    Swap(PathBuf),
    /// A compressed device in memory, by its number.
    Zram(u32),
    /// A mounted file system.
    Mount(PathBuf),
    /// A device that btrfs knows as one of several; btrfs must forget it before it gets another
    /// use.
    Btrfs(PathBuf),
    /// An array of the md driver.
    Md(PathBuf),
    /// A limit in a file of the root cgroup, and the number of its device.
    Throttle(PathBuf, String),
    /// A loop device, and the file behind it.
    Loop(PathBuf, PathBuf),
    /// A kernel file that has another value for a time, and the value to restore, which has no
    /// spaces.
    Setting(PathBuf, String),
    /// A network namespace, by its name.
    Namespace(String),
    /// A file.
    File(PathBuf),
    /// A directory, which is empty when it is removed.
    Directory(PathBuf),
}

impl Thing {
    /// The line that describes it.
    pub fn line(&self) -> String {
        match self {
            Thing::Group(id) => format!("group {id}"),
            Thing::Cgroup(path) => format!("cgroup {}", path.display()),
            Thing::Swap(path) => format!("swap {}", path.display()),
            Thing::Zram(number) => format!("zram {number}"),
            Thing::Mount(path) => format!("mount {}", path.display()),
            Thing::Btrfs(device) => format!("btrfs {}", device.display()),
            Thing::Md(array) => format!("md {}", array.display()),
            Thing::Throttle(file, device) => format!("throttle {device} {}", file.display()),
            Thing::Loop(device, file) => format!("loop {} {}", device.display(), file.display()),
            Thing::Setting(path, value) => format!("setting {value} {}", path.display()),
            Thing::Namespace(name) => format!("namespace {name}"),
            Thing::File(path) => format!("file {}", path.display()),
            Thing::Directory(path) => format!("directory {}", path.display()),
        }
    }

    /// The thing that such a line describes.
    pub fn parse(line: &str) -> Option<Thing> {
        let (kind, value) = line.split_once(' ')?;
        let pair = || value.split_once(' ');
        match kind {
            "group" => value.parse().ok().filter(|id| *id > 1).map(Thing::Group),
            "cgroup" => Some(Thing::Cgroup(value.into())),
            "swap" => Some(Thing::Swap(value.into())),
            "zram" => value.parse().ok().map(Thing::Zram),
            "mount" => Some(Thing::Mount(value.into())),
            "btrfs" => Some(Thing::Btrfs(value.into())),
            "md" => Some(Thing::Md(value.into())),
            "throttle" => pair().map(|(device, file)| Thing::Throttle(file.into(), device.into())),
            "loop" => pair().map(|(device, file)| Thing::Loop(device.into(), file.into())),
            "setting" => pair().map(|(value, path)| Thing::Setting(path.into(), value.into())),
            "namespace" => Some(Thing::Namespace(value.into())).filter(|_| !value.contains('/')),
            "file" => Some(Thing::File(value.into())),
            "directory" => Some(Thing::Directory(value.into())),
            _ => None,
        }
    }

    /// Processes go first, files and directories last.
    fn rank(&self) -> u8 {
        match self {
            Thing::Group(_) => 0,
            // Remaining data are written at full speed.
            Thing::Throttle(..) => 1,
            Thing::Cgroup(_) => 2,
            Thing::Swap(_) => 3,
            Thing::Mount(_) => 4,
            Thing::Btrfs(_) | Thing::Md(_) => 5,
            // A loop's own settings go before the loop.
            Thing::Setting(..) => 6,
            Thing::Loop(..) | Thing::Zram(_) | Thing::Namespace(_) => 7,
            Thing::File(_) => 8,
            Thing::Directory(_) => 9,
        }
    }

    /// Whether it survives a loss of power; the other things do not.
    pub fn is_on_disk(&self) -> bool {
        matches!(self, Thing::File(_) | Thing::Directory(_))
    }

    /// Takes it down. It is no error if it is already gone.
    pub fn take_down(&self) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        match self {
            Thing::Group(id) => {
                kill_group(*id);
                Ok(())
            }
            Thing::Cgroup(path) => terapage_sys::cgroup::remove(path),
            Thing::Swap(path) => terapage_rig::swap::off(path),
            Thing::Zram(number) => swap::remove_zram(*number),
            Thing::Mount(path) => mount::unmount(path),
            Thing::Btrfs(device) => mount::forget(device),
            Thing::Md(array) => md::stop(array),
            Thing::Throttle(file, device) => throttle::end(file, device),
            Thing::Loop(device, file) => mount::detach(device, file),
            Thing::Setting(path, value) => gone(fs::write(path, value)),
            Thing::Namespace(name) => network::remove_namespace(name),
            Thing::File(path) => gone(fs::remove_file(path)),
            Thing::Directory(path) => gone(fs::remove_dir(path)),
        }
    }
}

/// Kills a process group.
pub fn kill_group(id: i32) {
    // SAFETY: kill takes two integers and touches none of our memory.
    unsafe { libc::kill(-id, libc::SIGKILL) };
}

/// The lab's end of the pipe. Dropping it ends the janitor, and removes the record.
pub struct Janitor {
    process: Child,
    pipe: Mutex<Option<ChildStdin>>,
    record: Record,
}

impl Janitor {
    /// Starts the janitor: `program` with `arguments`, which must lead to [`serve`].
    pub fn start(program: &Path, arguments: &[String], record: Record) -> io::Result<Janitor> {
        let mut command = Command::new(program);
        // A separate process group, because signals that a terminal sends to the lab must not reach
        // it.
        command.process_group(0);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pipe = process.stdin.take().map(|mut pipe| {
            writeln!(pipe, "={}", record.path().display())?;
            io::Result::Ok(pipe)
        });
        let pipe = Mutex::new(pipe.transpose()?);
        Ok(Janitor { process, pipe, record })
    }

    fn say(&self, sign: char, thing: &Thing) -> io::Result<()> {
        let line = thing.line();
        if line.contains('\n') {
            return Err(io::Error::other("a path with a line break cannot be used"));
        }
        self.record.note(sign, thing)?;
        let mut pipe = self.pipe.lock().map_err(|_| io::Error::other("the janitor's pipe is lost"))?;
        let pipe = pipe.as_mut().ok_or_else(|| io::Error::other("the janitor has no pipe"))?;
        pipe.write_all(format!("{sign}{line}\n").as_bytes())
    }

    /// Reports a thing that is about to be made.
    pub fn tell(&self, thing: &Thing) -> io::Result<()> {
        self.say('+', thing)
    }

    /// Reports that a thing is gone.
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

    /// Makes the file, which must not exist yet: an existing file may be somebody else's, and
    /// stays. `mode`: its access rights, less the umask.
    pub fn create(janitor: &'a Janitor, path: PathBuf, mode: u32) -> io::Result<(OwnedFile<'a>, fs::File)> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path)?;
        // The file is reported after it was made: if the lab ends in between, an empty file
        // remains.
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

impl AsRef<Path> for OwnedFile<'_> {
    fn as_ref(&self) -> &Path {
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

/// A kernel setting that has another value until this value is dropped.
pub struct Held<'a> {
    path: PathBuf,
    before: String,
    janitor: &'a Janitor,
}

impl<'a> Held<'a> {
    /// Sets `path` to `value`; `before` is the present value.
    ///
    /// # Errors
    /// The value cannot be written.
    pub fn set(janitor: &'a Janitor, path: PathBuf, before: String, value: &str) -> io::Result<Held<'a>> {
        janitor.tell(&Thing::Setting(path.clone(), before.clone()))?;
        let held = Held { path, before, janitor };
        fs::write(&held.path, value)?;
        Ok(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let thing = Thing::Setting(self.path.clone(), self.before.clone());
        if thing.take_down().is_ok() {
            self.janitor.gone(&thing);
        }
    }
}

/// The janitor itself: reads lines until the pipe closes, then removes what is left.
pub fn serve() {
    // SAFETY: signal takes constants only. The janitor has one thread, and ignores signals that a
    // terminal or a supervisor sends to all processes.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let mut lines = io::stdin().lock();
    let mut path = String::new();
    // No process remains to read an error; the record then stays, for `lab clean`.
    let read = lines.read_line(&mut path);
    let mut all_gone = true;
    for thing in left(lines) {
        all_gone &= thing.take_down().is_ok();
    }
    if let (Ok(_), Some(path)) = (read, path.trim_end().strip_prefix('=')) {
        record::end(Path::new(path), all_gone);
    }
}

/// Things that were reported and are not gone, in the order in which they must be removed: the last
/// mount comes first.
pub fn left(lines: impl BufRead) -> Vec<Thing> {
    let mut things: Vec<Thing> = Vec::new();
    for line in lines.lines().map_while(Result::ok) {
        let Some((sign, thing)) = line.split_at_checked(1) else { continue };
        let Some(thing) = Thing::parse(thing) else { continue };
        match sign {
            "+" => things.push(thing),
            "-" => things.retain(|known| *known != thing),
            _ => {}
        }
    }
    let (mounts, mut others): (Vec<_>, Vec<_>) =
        things.into_iter().partition(|thing| matches!(thing, Thing::Mount(_)));
    others.extend(mounts.into_iter().rev());
    others.sort_by_key(Thing::rank);
    others
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
    fn lines_say_all_that_is_needed() {
        for thing in [
            Thing::Mount("/m n".into()),
            Thing::Zram(3),
            Thing::Btrfs("/dev/loop3".into()),
            Thing::Md("/dev/md_lab-7".into()),
            Thing::Throttle("/sys/a b".into(), "7:3".into()),
            Thing::Loop("/dev/loop3".into(), "/a b".into()),
            Thing::Setting("/sys/x y".into(), "mq-deadline".into()),
            Thing::Namespace("tplab1-0".into()),
            Thing::Directory("/d".into()),
        ] {
            assert_eq!(Thing::parse(&thing.line()), Some(thing));
        }
        let lines = "+mount /a\n+directory /a\n+mount /a/b\n+loop /dev/loop0 /f\n+throttle 7:0 /t\n\
                     +btrfs /dev/loop0\n";
        let names: Vec<_> = left(lines.as_bytes()).iter().map(Thing::line).collect();
        assert_eq!(
            names,
            [
                "throttle 7:0 /t",
                "mount /a/b",
                "mount /a",
                "btrfs /dev/loop0",
                "loop /dev/loop0 /f",
                "directory /a"
            ]
        );
    }

    #[test]
    fn no_line_leads_to_a_kill_of_everything() {
        assert!(left("+group 1\n+group 0\n+group -5\n+group x\n".as_bytes()).is_empty());
    }
}
