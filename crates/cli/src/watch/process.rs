//! Paged processes, seen from outside through `/proc`.

use anyhow::{Context, bail};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use terapage_stats::{Condition, FILE_NAME, Region, Shared, Snapshot};

/// A paged process, with its memory file of counters open.
pub struct Paged {
    /// The process number, as seen from this process.
    pub pid: u32,
    /// Its name, of at most 15 bytes.
    pub name: String,
    counters: File,
}

impl Paged {
    /// The process `pid`, or `None` if it is not paged.
    pub fn find(pid: u32) -> anyhow::Result<Option<Paged>> {
        Paged::find_under(Path::new("/proc"), pid)
    }

    fn find_under(proc: &Path, pid: u32) -> anyhow::Result<Option<Paged>> {
        let process = proc.join(pid.to_string());
        if !process.exists() {
            bail!("there is no process {pid}");
        }
        let descriptors = match fs::read_dir(process.join("fd")) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!(
                    "process {pid} cannot be inspected (run this as the user of that process, or \
                       as root)"
                );
            }
            other => other.with_context(|| format!("process {pid}"))?,
        };
        let wanted = format!("/memfd:{FILE_NAME}");
        // A descriptor that closes meanwhile is not an error.
        for descriptor in descriptors.flatten() {
            let path = descriptor.path();
            let found = fs::read_link(&path);
            if !found.is_ok_and(|link| link.as_os_str().as_bytes().starts_with(wanted.as_bytes())) {
                continue;
            }
            let Ok(counters) = File::open(&path) else { continue };
            let paged = Paged { pid, name: name(&process), counters };
            if paged.snapshot().is_some() {
                return Ok(Some(paged));
            }
        }
        Ok(None)
    }

    /// The memory file of the counters; missing bytes are zeros.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Shared>()];
        let mut at = 0;
        while let Ok(read @ 1..) = self.counters.read_at(&mut bytes[at..], at as u64) {
            at += read;
        }
        bytes
    }

    /// Its counters now. They stay readable after the process has ended.
    pub fn snapshot(&self) -> Option<Snapshot> {
        Snapshot::from_bytes(&self.bytes())
    }

    /// What is wrong at present, in words.
    pub fn condition(&self) -> Option<String> {
        Condition::from_bytes(&self.bytes())
    }

    /// The memory file of the counters, opened for writing, too.
    #[cfg(target_arch = "x86_64")]
    pub fn writable(&self) -> std::io::Result<File> {
        let number = std::os::fd::AsRawFd::as_raw_fd(&self.counters);
        let path = format!("/proc/self/fd/{number}");
        File::options().read(true).write(true).open(path)
    }

    /// Its regions now, the largest first; none if it does not count regions.
    pub fn regions(&self) -> Vec<Region> {
        Region::from_bytes(&self.bytes())
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        // A zombie has no descriptors left to list.
        fs::read_dir(format!("/proc/{}/fd", self.pid)).is_ok_and(|mut fds| fds.next().is_some())
    }
}

fn name(process: &Path) -> String {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.trim_end().chars().filter(|c| !c.is_control()).collect()
}

/// The message for a process that has no counters.
pub fn not_paged(pid: u32) -> String {
    format!("process {pid} is not paged (not started with terapage run, or still small)")
}

/// The first process of the run to which a process belongs, by the number that this first process
/// had for itself.
pub fn root_of(pid: u32) -> Option<u32> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let root = environment.split(|&b| b == 0).find_map(|text| text.strip_prefix(b"TERAPAGE_ROOT="))?;
    std::str::from_utf8(root).ok()?.parse().ok()
}

/// The cgroup in the text of `/proc/PID/cgroup`; in version 1, the one of the memory controller.
pub fn cgroup_of(text: &str) -> &str {
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let of_memory = |controllers: &str| controllers.split(',').any(|name| name == "memory");
    let mut found = "/";
    for (number, controllers, path) in fields {
        if of_memory(controllers) {
            return path;
        }
        if number == "0" {
            found = path;
        }
    }
    found
}

/// Whether there are processes that this user may not inspect.
pub fn some_are_hidden() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    let look = |path: &Path| fs::read_dir(path.join("fd"));
    processes
        .map(|entry| entry.path())
        .any(|path| look(&path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied))
}

/// When a process began, in the kernel's ticks since the boot.
pub fn began(pid: u32) -> Option<u64> {
    began_by(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The same, by the text of `/proc/PID/stat`. The name, in brackets, may have any characters.
fn began_by(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// All paged processes that this user may inspect, by id. A process that only inherited another's
/// counters does not count.
pub fn all() -> Vec<Paged> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = pids.filter_map(|pid| {
        let paged = Paged::find(pid).ok()??;
        let file = paged.counters.metadata().ok()?;
        Some((began(pid)?, pid, (file.dev(), file.ino()), paged))
    });
    owners(found.collect())
}

/// Of the processes that have the same file open, the one that began first: a child may have the
/// smaller number. `found`: when each process began, its number, its file, and the process itself.
/// The processes are returned in the order of their numbers.
fn owners<P>(mut found: Vec<(u64, u32, (u64, u64), P)>) -> Vec<P> {
    found.sort_unstable_by_key(|&(began, pid, ..)| (began, pid));
    let mut seen = HashSet::new();
    found.retain(|&(_, _, file, _)| seen.insert(file));
    found.sort_unstable_by_key(|&(_, pid, ..)| pid);
    found.into_iter().map(|(.., process)| process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::io::Write;
    use terapage_stats::{BYTES, MAGIC};

    #[test]
    fn counters_are_found_among_the_descriptors() {
        let me = std::process::id();
        let name = CString::new(FILE_NAME).unwrap();
        let memory = rustix::fs::memfd_create(&name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut memory = File::from(memory);
        assert!(Paged::find(me).unwrap().is_none(), "an empty file holds no counters");
        let words = std::iter::once(MAGIC).chain(1..(BYTES / 8) as u64);
        memory.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()).unwrap();
        let paged = Paged::find(me).unwrap().expect("counters");
        assert_eq!(paged.snapshot().unwrap().budget_bytes, 3);
        assert!(paged.is_alive() && !paged.name.is_empty());
        // A child of a test beside this one may have the descriptor, too, until it executes.
        assert_eq!(all().iter().filter(|paged| paged.pid == me).count(), 1);
        drop(memory);
    }

    #[test]
    fn the_start_of_a_process_is_read_past_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        assert_eq!(began_by(stat), Some(4711));
        assert_eq!(began_by("7"), None);
        assert!(began(1) < began(std::process::id()) && began(u32::MAX).is_none());
    }

    #[test]
    fn counters_belong_to_the_process_that_began_first() {
        let (one, other) = ((1, 1), (1, 2));
        let found = vec![(7, 3, one, "child"), (5, 9, one, "parent"), (6, 4, other, "other")];
        assert_eq!(owners(found), ["other", "parent"]);
    }

    #[test]
    fn the_cgroup_is_that_of_the_memory_controller() {
        assert_eq!(cgroup_of("0::/user.slice/a:b\n"), "/user.slice/a:b");
        assert_eq!(cgroup_of("12:cpu,cpuacct:/x\n4:memory:/job/7\n0::/\n"), "/job/7");
        assert_eq!(cgroup_of(""), "/");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Paged::find(u32::MAX).is_err());
    }
}
