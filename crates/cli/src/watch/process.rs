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

/// When a process started, in ticks since the machine did; the greatest number if it is gone.
fn started(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may contain anything; the first field after it is the third.
    let field = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(22 - 3));
    field.and_then(|ticks| ticks.parse().ok()).unwrap_or(u64::MAX)
}

/// All paged processes that this user may inspect, by id. A process that only inherited another's
/// counters does not count: it started later, though its number may be smaller.
pub fn all() -> Vec<Paged> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut paged: Vec<Paged> = pids.filter_map(|pid| Paged::find(pid).ok()?).collect();
    paged.sort_by_cached_key(|paged| (started(paged.pid), paged.pid));
    let mut seen = HashSet::new();
    paged.retain(|paged| paged.counters.metadata().is_ok_and(|file| seen.insert((file.dev(), file.ino()))));
    paged.sort_unstable_by_key(|paged| paged.pid);
    paged
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
    fn processes_start_in_turn() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(started(1) < started(std::process::id()));
        assert!(started(std::process::id()) <= started(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(started(child.id()), u64::MAX);
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
