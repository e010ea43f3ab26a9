//! The memory of this machine, or of the container: how much there is, and how much is free.

use std::fs;
use std::path::{Path, PathBuf};
use terapage_policy::elastic::Level;

/// Bytes of memory that this process can use: the minimum of the machine's memory and the limits of
/// its cgroup and of those above. `None` if `/proc` is missing.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).as_deref().and_then(machine_level);
    let groups = Machine::here(&read).groups;
    // Each process asks, so only the limits are read.
    let limits = groups.iter().filter_map(|group| group.limit(&read));
    machine.map(|level| level.limit).into_iter().chain(limits).min()
}

/// Bytes of the machine's memory, without the limits of cgroups. `None` if `/proc` is missing.
pub fn machine_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    machine_level(&meminfo).map(|level| level.limit)
}

/// Whether this process is in a memory cgroup whose limit cannot be seen: no hierarchy of cgroups
/// is mounted where it should be.
pub fn is_limit_hidden() -> bool {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    is_hidden(Path::new("/sys/fs/cgroup"), &groups)
}

fn is_hidden(root: &Path, groups: &str) -> bool {
    let is_mounted = ["cgroup.controllers", "unified", "memory"].iter().any(|name| root.join(name).exists());
    !is_mounted && of_memory(groups).any(|(_, group)| group != "/")
}

/// Reads a file as text; `None` if it cannot be read.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The places that say how much memory there is around this process.
#[derive(Debug, Default)]
pub struct Machine {
    groups: Vec<Group>,
}

/// A memory cgroup: the directory, and the files of its version.
#[derive(Debug)]
struct Group {
    at: PathBuf,
    files: &'static Files,
}

#[derive(Debug)]
struct Files {
    /// Where the hierarchy may be mounted, under its usual root.
    mounts: &'static [&'static str],
    limits: &'static [&'static str],
    usage: &'static str,
    /// Where the number of processes is that the kernel has ended.
    kills: &'static str,
    /// Beginnings of lines in `memory.stat`: file pages that the kernel drops first.
    first: &'static str,
    /// Others that it can drop: file pages, and objects of the kernel, such as names of files.
    others: &'static [&'static str],
}

const ONE: Files = Files {
    mounts: &["memory"],
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    kills: "memory.oom_control",
    first: "total_inactive_file ",
    others: &["total_active_file "],
};
/// Above `memory.high` a program is not stopped, but slowed down very much.
const TWO: Files = Files {
    mounts: &["", "unified"],
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    kills: "memory.events",
    first: "inactive_file ",
    others: &["active_file ", "slab_reclaimable "],
};

/// A limit of this much is none.
const UNLIMITED: u64 = 1 << 60;

impl Machine {
    /// The machine around this process, with the cgroups that it is in now.
    pub fn here(read: Read<'_>) -> Machine {
        Machine::of("self", read)
    }

    /// The machine around another process, by its number.
    pub fn of(process: &str, read: Read<'_>) -> Machine {
        let groups = read(&Path::new("/proc").join(process).join("cgroup")).unwrap_or_default();
        Machine { groups: groups_of(Path::new("/sys/fs/cgroup"), &groups, read) }
    }

    /// The machine, and each cgroup that has a limit: how much memory it has, and how much is free.
    pub fn levels(&self, read: Read<'_>) -> Vec<Level> {
        let machine = read(Path::new("/proc/meminfo")).as_deref().and_then(machine_level);
        let machine = machine
            .map(|level| Level { stalled_us: stalled_us(Path::new("/proc/pressure/memory"), read), ..level });
        machine.into_iter().chain(self.groups.iter().filter_map(|group| group.level(read))).collect()
    }

    /// How many processes of the cgroup the kernel has ended because memory ran out; 0 if that is
    /// not known.
    pub fn kills(&self, read: Read<'_>) -> u64 {
        self.groups.first().and_then(|group| kills(&read(&group.at.join(group.files.kills))?)).unwrap_or(0)
    }
}

impl Group {
    fn number(&self, file: &str, read: Read<'_>) -> Option<u64> {
        read(&self.at.join(file))?.trim().parse().ok()
    }

    /// Its limit, bytes; `None` if it has none.
    fn limit(&self, read: Read<'_>) -> Option<u64> {
        let numbers = self.files.limits.iter().filter_map(|file| self.number(file, read));
        numbers.filter(|&limit| limit < UNLIMITED).min()
    }

    fn level(&self, read: Read<'_>) -> Option<Level> {
        let limit = self.limit(read)?;
        let used = self.number(self.files.usage, read).unwrap_or(0);
        let stat = read(&self.at.join("memory.stat")).unwrap_or_default();
        let bytes = |name: &&str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        // As in `MemAvailable`, half of what is in use counts.
        let others: u64 = self.files.others.iter().map(bytes).sum();
        let used = used.saturating_sub(bytes(&self.files.first) + others / 2);
        let stalled_us = stalled_us(&self.at.join("memory.pressure"), read);
        Some(Level { limit, available: limit.saturating_sub(used), stalled_us })
    }
}

/// The number of ended processes in such a text.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Microseconds in which a task has waited for memory, by such a file; 0 if the kernel does not
/// count them.
fn stalled_us(file: &Path, read: Read<'_>) -> u64 {
    read(file).as_deref().and_then(stalled).unwrap_or(0)
}

/// The sum of a file `memory.pressure`: the line is `some avg10=0.00 ... total=123`.
fn stalled(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// A number of `/proc/meminfo`, bytes.
fn of_meminfo(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn machine_level(meminfo: &str) -> Option<Level> {
    let limit = of_meminfo(meminfo, "MemTotal:")?;
    let available = of_meminfo(meminfo, "MemAvailable:").unwrap_or(limit / 2);
    Some(Level { limit, available, stalled_us: 0 })
}

/// The cgroups in `groups` (the text of `/proc/self/cgroup`) that limit memory, with the files of
/// their version.
fn of_memory(groups: &str) -> impl Iterator<Item = (&'static Files, &str)> {
    groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_of_one = || controllers.split(',').any(|name| name == "memory");
        let files = if controllers.is_empty() { &TWO } else { is_of_one().then_some(&ONE)? };
        Some((files, group))
    })
}

/// The memory cgroups from those in `groups` (the text of `/proc/self/cgroup`) up to the root of
/// the hierarchy that is mounted under `root`.
fn groups_of(root: &Path, groups: &str, read: Read<'_>) -> Vec<Group> {
    let mut found = Vec::new();
    for (files, group) in of_memory(groups) {
        for mount in files.mounts.iter().map(|mount| root.join(mount)) {
            // In a container the path may exist only on the host. Then all its ancestors are
            // missing up to the mount itself, which is the container's own group.
            for above in Path::new(group).ancestors() {
                let at = mount.join(above.strip_prefix("/").unwrap_or(above));
                if files.limits.iter().any(|file| read(&at.join(file)).is_some()) {
                    found.push(Group { at, files });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn the_machine_has_memory() {
        let meminfo = "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(
            machine_level(meminfo),
            Some(Level { limit: 24684096 * 1024, available: 4 << 20, stalled_us: 0 })
        );
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(!Machine::here(&read).levels(&read).is_empty());
    }

    #[test]
    fn limits_are_hidden_if_no_hierarchy_is_mounted() {
        let root = tempfile::tempdir().unwrap();
        let hidden = |groups| is_hidden(root.path(), groups);
        assert!(hidden("0::/slice/unit\n") && hidden("4:cpu,memory:/a\n0::/\n"));
        assert!(!hidden("0::/\n") && !hidden("4:cpu:/a\n0::/\n") && !hidden(""));
        fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
        assert!(!hidden("0::/slice/unit\n"));
    }

    #[test]
    fn processes_that_the_kernel_has_ended_are_read_from_their_line() {
        let two = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n";
        let one = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
        assert_eq!((kills(two), kills(one), kills("oom 3\n")), (Some(2), Some(7), None));
    }

    #[test]
    fn a_stall_is_read_from_its_line() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=8417680\nfull avg10=0.00 total=5\n";
        assert_eq!((stalled(text), stalled("nothing")), (Some(8_417_680), None));
    }

    #[test]
    fn each_limit_on_the_way_up_counts_with_what_is_free_there() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let levels = |groups: &str| {
            Machine { groups: groups_of(root.path(), groups, &read) }
                .groups
                .iter()
                .filter_map(|group| group.level(&read))
                .collect::<Vec<_>>()
        };
        let limit = |groups| levels(groups).iter().map(|level| level.limit).min();
        put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/a/memory.limit_in_bytes", "1000000\n");
        put("memory/a/memory.usage_in_bytes", "900000\n");
        put("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 300000\ntotal_active_file 20000\n");
        put("slice/unit/memory.max", "max\n");
        put("slice/memory.max", "2000000\n");
        put("slice/memory.current", "500000\n");
        put("slice/memory.stat", "inactive_file 100000\nactive_file 20000\nslab_reclaimable 40000\n");
        put("slice/memory.pressure", "some avg10=0.00 total=77\nfull avg10=0.00 total=5\n");
        assert_eq!(
            levels("4:memory:/a/b\n1:cpu:/\n0::/\n"),
            [Level { limit: 1_000_000, available: 410_000, stalled_us: 0 }]
        );
        assert_eq!(
            levels("0::/slice/unit\n"),
            [Level { limit: 2_000_000, available: 1_630_000, stalled_us: 77 }]
        );
        assert_eq!(limit("4:cpu,memory:/a\n0::/slice/unit\n"), Some(1_000_000));
        assert_eq!(limit("0::/elsewhere\nnonsense\n"), None);
        put("slice/unit/memory.high", "1500000\n");
        assert_eq!(limit("0::/slice/unit\n"), Some(1_500_000), "what slows down counts too");
        put("unified/both/memory.max", "700000\n");
        assert_eq!(limit("4:memory:/\n0::/both\n"), Some(700_000), "version 2 beside version 1");
        put("memory.max", "500000\n");
        assert_eq!(limit("0::/only/the/host/sees/this\n"), Some(500_000));
    }
}
