//! The processes of a cgroup, for `terapage adopt --cgroup`.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that lists the processes of a cgroup, in both versions.
const PROCESSES: &str = "cgroup.procs";

/// A cgroup of version 1 or 2, with all cgroups below it.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Finds the cgroup at `path`.
    ///
    /// # Errors
    /// There is none, or it has all processes of the machine.
    pub fn find(path: &Path) -> anyhow::Result<Cgroup> {
        let path = fs::canonicalize(path).with_context(|| format!("--cgroup: {}", path.display()))?;
        if !path.join(PROCESSES).is_file() {
            bail!("--cgroup: {} is not a cgroup (name a directory below /sys/fs/cgroup)", path.display());
        }
        if !path.parent().is_some_and(|parent| parent.join(PROCESSES).is_file()) {
            bail!("--cgroup: {} has all processes of the machine (name one below)", path.display());
        }
        Ok(Cgroup { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The numbers of its processes, ascending: most parents come before their children.
    ///
    /// # Errors
    /// The list cannot be read, or names a process that has no number here.
    pub fn processes(&self) -> anyhow::Result<Vec<u32>> {
        let mut all = Vec::new();
        add_processes(&self.path, &mut all)?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

fn add_processes(path: &Path, all: &mut Vec<u32>) -> anyhow::Result<()> {
    let what = || format!("--cgroup: {}", path.display());
    let text = match fs::read_to_string(path.join(PROCESSES)) {
        // A cgroup below may have been removed since.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            return Ok(());
        }
        text => text.with_context(what)?,
    };
    for number in text.lines().filter_map(|line| line.trim().parse().ok()) {
        if number == 0 {
            bail!("{} has a process of another PID namespace (adopt from there)", what());
        }
        all.push(number);
    }
    for entry in fs::read_dir(path).with_context(what)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_processes(&entry.path(), all)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Cgroup;
    use std::fs;

    #[test]
    fn processes_of_cgroups_below_are_found_once_and_ascending() {
        let place = std::env::temp_dir().join(format!("terapage-cgroup-{}", std::process::id()));
        let group = place.join("job");
        fs::create_dir_all(group.join("below/deep")).unwrap();
        fs::write(place.join("cgroup.procs"), "1\n").unwrap();
        fs::write(group.join("cgroup.procs"), "40\n7\n").unwrap();
        fs::write(group.join("below/cgroup.procs"), "41\n7\n").unwrap();
        fs::write(group.join("below/deep/cgroup.procs"), "5\n").unwrap();
        let all = Cgroup::find(&group).and_then(|group| group.processes());
        let top = Cgroup::find(&place).map(|_| ()).unwrap_err().to_string();
        let none = Cgroup::find(&std::env::temp_dir()).map(|_| ()).unwrap_err().to_string();
        fs::write(group.join("below/cgroup.procs"), "0\n").unwrap();
        let other = Cgroup::find(&group).and_then(|group| group.processes()).unwrap_err().to_string();
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(all.unwrap(), [5, 7, 40, 41]);
        assert!(top.contains("all processes"), "{top}");
        assert!(none.contains("is not a cgroup"), "{none}");
        assert!(other.contains("namespace"), "{other}");
    }
}
