//! Memory cgroups, of version 1 or 2: where one can be made, and how one is removed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Which interface the memory controller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A separate hierarchy.
    One,
    /// One hierarchy for all controllers.
    Two,
}

/// Kills the processes in the cgroup and removes it; waits up to a minute for the last process to
/// end.
pub fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        for id in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
            // A process of another namespace appears as 0, which would mean our own process group.
            if let Some(id) = id.parse::<i32>().ok().filter(|id| *id > 0) {
                // SAFETY: kill takes two integers; the id is that of one process.
                unsafe { libc::kill(id, libc::SIGKILL) };
            }
        }
        match fs::remove_dir(path) {
            Err(_) if !path.exists() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// The directory in which a memory cgroup can be made.
///
/// # Errors
/// There is none; the text says what to do.
pub fn parent() -> io::Result<(Version, PathBuf)> {
    let (version, directory, top) = own()?;
    choose(version, &directory, &top).map(|parent| (version, parent))
}

/// The calling process's directory, and the mount point of its hierarchy.
///
/// # Errors
/// No hierarchy with the memory controller is mounted.
pub fn own() -> io::Result<(Version, PathBuf, PathBuf)> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    locate(&own, &mounts).ok_or_else(|| io::Error::other("no memory cgroup is mounted"))
}

/// The nearest of `directory` and its ancestors, up to `top`, that can have a child with a memory
/// limit.
fn choose(version: Version, directory: &Path, top: &Path) -> io::Result<PathBuf> {
    let lists_memory = |file: PathBuf| {
        fs::read_to_string(file).is_ok_and(|list| list.split_whitespace().any(|name| name == "memory"))
    };
    let mut above = directory.ancestors().take_while(|ancestor| ancestor.starts_with(top));
    let found = match version {
        // In a container the path may be visible only to the host.
        Version::One => above.find(|ancestor| ancestor.is_dir()),
        Version::Two => above.find(|ancestor| lists_memory(ancestor.join("cgroup.subtree_control"))),
    };
    found.map(Path::to_owned).ok_or_else(|| {
        let control = top.join("cgroup.subtree_control");
        io::Error::other(match version {
            Version::Two if lists_memory(top.join("cgroup.controllers")) => format!(
                "no cgroup passes the memory controller on (as root: echo +memory > {})",
                control.display()
            ),
            _ => format!("the memory controller is not available below {}", top.display()),
        })
    })
}

/// Version, own directory and mount point, from /proc/self/cgroup and /proc/self/mountinfo.
fn locate(own: &str, mounts: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let path_of = |wanted: fn(&str, &str) -> bool| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, controllers).then_some(path)
        })
    };
    let (version, path) = match path_of(|_, list| list.split(',').any(|name| name == "memory")) {
        Some(path) => (Version::One, path),
        None => (Version::Two, path_of(|id, list| id == "0" && list.is_empty())?),
    };
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
        let (root, point) = (before.next()?, before.next()?);
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let fits = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        fits.then(|| (version, Path::new(point).join(inside), PathBuf::from(point)))
    })
}

#[cfg(test)]
mod tests {
    use super::{Version, choose, locate};
    use std::fs;

    #[test]
    fn version_1_is_found_where_it_has_the_memory_controller() {
        let own = "4:memory:/a/b\n1:cpu:/\n0::/\n";
        let mounts = "30 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = locate(own, mounts);
        assert_eq!(
            found,
            Some((Version::One, "/sys/fs/cgroup/memory/a/b".into(), "/sys/fs/cgroup/memory".into()))
        );
    }

    #[test]
    fn the_nearest_group_that_may_have_limited_children_is_taken() {
        let tree = tempfile::tempdir().unwrap();
        let top = tree.path();
        let group = top.join("slice/unit");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(choose(Version::One, &group, top).unwrap(), group);
        assert_eq!(choose(Version::One, &top.join("slice/elsewhere"), top).unwrap(), top.join("slice"));
        // Version 2: first no group has the controller, then only the top has it, then the top
        // delegates it, then the slice does too.
        let put = |path: &str, text: &str| fs::write(top.join(path), text).unwrap();
        let says = || choose(Version::Two, &group, top).unwrap_err().to_string();
        assert!(says().contains("not available"), "{}", says());
        put("cgroup.controllers", "cpu memory pids\n");
        put("cgroup.subtree_control", "cpu\n");
        assert!(says().contains("echo +memory > "), "{}", says());
        put("cgroup.subtree_control", "cpu memory\n");
        assert_eq!(choose(Version::Two, &group, top).unwrap(), top);
        put("slice/cgroup.subtree_control", "memory\n");
        assert_eq!(choose(Version::Two, &group, top).unwrap(), top.join("slice"));
        put("slice/unit/cgroup.subtree_control", "\n");
        assert_eq!(choose(Version::Two, &group, top).unwrap(), top.join("slice"));
    }

    #[test]
    fn version_2_is_found_behind_a_mount_that_shows_a_part() {
        let own = "0::/machine/box/task\n";
        let mounts = "30 24 0:27 /machine /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup rw\n";
        let found = locate(own, mounts);
        assert_eq!(found, Some((Version::Two, "/sys/fs/cgroup/box/task".into(), "/sys/fs/cgroup".into())));
        assert_eq!(locate(own, ""), None);
    }
}
