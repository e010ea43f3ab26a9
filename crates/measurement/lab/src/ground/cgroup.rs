//! A memory cgroup with a limit, of version 1 or 2.
//!
//! The cgroup is made below the cgroup of the lab itself, so that limits of the lab also limit its
//! children. Version 2 needs a parent that delegates the memory controller. As one cgroup cannot
//! have both processes and children there, the parent is often an ancestor.

use crate::ground::janitor::{Janitor, Thing};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use terapage_sys::cgroup::{Version, parent, remove};

/// A cgroup with a memory limit; dropping this value removes it.
pub struct Cgroup<'a> {
    path: PathBuf,
    janitor: &'a Janitor,
}

impl<'a> Cgroup<'a> {
    /// Makes a cgroup that may use `limit` bytes of memory, and unlimited swap. Needs root or a
    /// delegated cgroup.
    pub fn new(janitor: &'a Janitor, limit: u64) -> io::Result<Cgroup<'a>> {
        let (version, parent) = parent()?;
        let path = parent.join(format!("terapage-lab-{}", process::id()));
        janitor.tell(&Thing::Cgroup(path.clone()))?;
        if let Err(error) = fs::create_dir(&path) {
            janitor.gone(&Thing::Cgroup(path));
            return Err(error);
        }
        let cgroup = Cgroup { path, janitor };
        let file = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        // A new cgroup has no limit.
        if limit < u64::MAX {
            fs::OpenOptions::new()
                .write(true)
                .open(cgroup.path.join(file))?
                .write_all(limit.to_string().as_bytes())?;
        }
        Ok(cgroup)
    }

    /// Also limits devices, by lines of `io.max`; only version 2 has this file.
    ///
    /// # Errors
    /// The group has no such file, or a line is refused.
    pub fn limit_devices(&self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            fs::write(self.path.join("io.max"), line)?;
        }
        Ok(())
    }

    /// The file through which a process enters the group: it writes "0" there.
    pub fn door(&self) -> io::Result<File> {
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))
    }
}

impl Drop for Cgroup<'_> {
    fn drop(&mut self) {
        if remove(&self.path).is_ok() {
            self.janitor.gone(&Thing::Cgroup(self.path.clone()));
        }
    }
}
