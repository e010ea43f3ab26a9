//! The memory of this machine, or of the container.

use std::fs;
use std::path::Path;

/// Bytes of memory that this process can use: the minimum of the machine's memory and the limits of
/// its cgroup and of those above. `None` if `/proc` is missing.
pub fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(memory_total);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = cgroup_limit(Path::new("/sys/fs/cgroup"), &groups);
    machine.into_iter().chain(limit).min()
}

/// `MemTotal` of `/proc/meminfo`, bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest memory limit, bytes, from the groups in `groups` (the text of `/proc/self/cgroup`) up
/// to the root of the hierarchy that is mounted under `root`.
fn cgroup_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mounts, files): (_, &[&str]) = if controllers.is_empty() {
            // Above `memory.high` a program is not stopped, but slowed down very much.
            (vec![root.to_owned(), root.join("unified")], &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|name| name == "memory") {
            (vec![root.join("memory")], &["memory.limit_in_bytes"])
        } else {
            continue;
        };
        for mount in mounts {
            // In a container the path may exist only on the host. Then all its ancestors are
            // missing up to the mount itself, which is the container's own group.
            for above in Path::new(group).ancestors() {
                let at = mount.join(above.strip_prefix("/").unwrap_or(above));
                let limits = files.iter().filter_map(|file| fs::read_to_string(at.join(file)).ok());
                least = least.into_iter().chain(limits.filter_map(|text| text.trim().parse().ok())).min();
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert_eq!(memory_total("MemTotal:       24684096 kB\nMemFree: 1 kB\n"), Some(24684096 * 1024));
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups| cgroup_limit(root.path(), groups);
        put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/a/memory.limit_in_bytes", "1000000\n");
        put("slice/unit/memory.max", "max\n");
        put("slice/memory.max", "2000000\n");
        assert_eq!(limit("4:memory:/a/b\n1:cpu:/\n0::/\n"), Some(1_000_000));
        assert_eq!(limit("0::/slice/unit\n"), Some(2_000_000));
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
